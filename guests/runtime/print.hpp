// Text on the serial port.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace vpmu::guest {

/// A stretch of characters.
struct Text {
  const char* start = "";
  std::size_t length = 0;

  constexpr Text() = default;
  constexpr Text(const char* text) : start{text} {  // NOLINT(google-explicit-constructor): a literal is a text
    while (text[length] != '\0') ++length;
  }
  constexpr Text(const char* first, std::size_t count) : start{first}, length{count} {}

  friend constexpr bool operator==(Text a, Text b) {
    if (a.length != b.length) return false;
    for (std::size_t i = 0; i < a.length; ++i) {
      if (a.start[i] != b.start[i]) return false;
    }
    return true;
  }
};

/// One argument of print(): a number or a text.
class Argument {
 public:
  template <std::unsigned_integral T>
  Argument(T value) : kind_{Kind::number}, number_{value} {}  // NOLINT(google-explicit-constructor): see print()
  template <std::signed_integral T>
  Argument(T value)  // NOLINT(google-explicit-constructor): see print()
      : kind_{value < 0 ? Kind::negative : Kind::number},
        number_{value < 0 ? 0 - static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value)} {}
  Argument(Text text) : kind_{Kind::text}, text_{text} {}         // NOLINT(google-explicit-constructor): see print()
  Argument(const char* text) : kind_{Kind::text}, text_{text} {}  // NOLINT(google-explicit-constructor): see print()

  /// Writes it; hexadecimal if asked for.
  void write(bool hexadecimal) const;

 private:
  enum class Kind : std::uint8_t { number, negative, text };
  Kind kind_;
  std::uint64_t number_ = 0;
  Text text_;
};

void print_arguments(Text format, const Argument* arguments, std::size_t count);

/// Writes a text, each {} in it replaced by the next argument, {x} by it in hexadecimal.
template <class... Arguments>
void print(Text format, Arguments... arguments) {
  const Argument list[] = {Argument{arguments}..., Argument{0}};
  print_arguments(format, list, sizeof...(arguments));
}

}  // namespace vpmu::guest
