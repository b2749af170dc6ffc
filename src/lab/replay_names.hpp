// Counts by name, however many names there are.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace vpmu::lab {

/// Counts things by names that come from outside: a bounded number of names of bounded length, the rest together.
class NameCounts {
 public:
  static constexpr std::size_t max_names = 200;
  static constexpr std::size_t max_length = 60;
  static constexpr std::string_view others = "(others)";

  struct Named {
    std::string name;
    std::uint64_t count = 0;
  };

  /// Counts one, and gives the name's place: the same for the same name, below size().
  std::size_t add(std::string_view name);
  [[nodiscard]] std::size_t size() const { return names_.size(); }
  [[nodiscard]] const Named& operator[](std::size_t place) const { return names_[place]; }
  [[nodiscard]] std::uint64_t total() const;
  /// The most frequent first, then by name; `others` last.
  [[nodiscard]] std::vector<Named> sorted() const;

 private:
  static constexpr std::size_t buckets = 512;
  std::size_t find(std::string_view name);

  std::vector<Named> names_;
  std::array<std::uint16_t, buckets> table_{};  // place + 1; 0 is empty
};

}  // namespace vpmu::lab
