// Minimum, mean, maximum and percentiles of many durations.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/print.hpp"

namespace vpmu::guest {

/// Counts values in buckets of at most 1/128 of their value; below 128 each has its own.
class Distribution {
 public:
  void add(std::uint64_t value);
  void clear();
  [[nodiscard]] std::uint64_t count() const { return count_; }
  /// The value that `share` thousandths of all do not exceed, rounded up to its bucket's end.
  [[nodiscard]] std::uint64_t percentile(std::uint64_t share) const;
  /// One line: `figure NAME count=.. min=.. mean=.. p50=.. p99=.. p99.9=.. max=.. unit=UNIT`.
  void print_figure(Text name, Text unit) const;

 private:
  static constexpr std::uint32_t sub_bits = 7;
  static constexpr std::uint32_t buckets = (64 - sub_bits + 1) << sub_bits;
  std::array<std::uint32_t, buckets> bucket_{};
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
  std::uint64_t max_ = 0;
};

}  // namespace vpmu::guest
