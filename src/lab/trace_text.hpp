// Small steps through the text of a trace line.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

namespace vpmu::lab {

constexpr bool is_blank(char c) { return c == ' ' || c == '\t'; }
constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Reads from the front of a text. Each step that fails takes nothing and says false.
class TraceText {
 public:
  constexpr explicit TraceText(std::string_view text) : text_{text} {}

  [[nodiscard]] constexpr std::string_view rest() const { return text_; }
  [[nodiscard]] constexpr bool empty() const { return text_.empty(); }

  constexpr TraceText& blanks() {
    std::size_t n = 0;
    while (n < text_.size() && is_blank(text_[n])) ++n;
    text_.remove_prefix(n);
    return *this;
  }
  constexpr bool word(std::string_view word) {
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }
  /// A decimal number that fits.
  template <class Number>
  constexpr bool decimal(Number& number) {
    std::size_t n = 0;
    std::uint64_t value = 0;
    constexpr std::uint64_t limit = std::numeric_limits<Number>::max();
    for (; n < text_.size() && is_digit(text_[n]); ++n) {
      const auto digit = static_cast<std::uint64_t>(text_[n] - '0');
      if (value > (limit - digit) / 10) return false;
      value = value * 10 + digit;
    }
    if (n == 0) return false;
    number = static_cast<Number>(value);
    text_.remove_prefix(n);
    return true;
  }
  /// A hexadecimal number that fits, with or without 0x in front, up to a character that can't be part of one.
  template <class Number>
  constexpr bool hex(Number& number) {
    std::string_view digits = text_;
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    std::size_t n = 0;
    std::uint64_t value = 0;
    for (int digit = 0; n < digits.size() && (digit = hex_value(digits[n])) >= 0; ++n) {
      if (value > std::numeric_limits<Number>::max() >> 4) return false;
      value = value << 4 | static_cast<std::uint64_t>(digit);
    }
    if (n == 0 || (n < digits.size() && is_word(digits[n]))) return false;
    number = static_cast<Number>(value);
    text_ = digits.substr(n);
    return true;
  }
  /// Everything up to the next blank; may be empty.
  constexpr std::string_view token() {
    std::size_t n = 0;
    while (n < text_.size() && !is_blank(text_[n])) ++n;
    const std::string_view token = text_.substr(0, n);
    text_.remove_prefix(n);
    return token;
  }

 private:
  static constexpr bool is_word(char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  std::string_view text_;
};

constexpr std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

}  // namespace vpmu::lab
