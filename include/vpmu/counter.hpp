// Counters and sets of them.
#pragma once

#include <bit>
#include <cstdint>

namespace vpmu {

inline constexpr std::uint32_t max_gp_counters = 16;
inline constexpr std::uint32_t max_fixed_counters = 8;
inline constexpr std::uint32_t max_counters = max_gp_counters + max_fixed_counters;

/// A set of counters in the layout of IA32_PERF_GLOBAL_CTRL: general-purpose counter n is bit n, fixed counter n is
/// bit 32 + n (SDM volume 3, section "Architectural Performance Monitoring Version 2"). AMD has no fixed ones.
using CounterSet = std::uint64_t;

inline constexpr std::uint32_t fixed_shift = 32;

/// One counter of a PMU.
class CounterId {
 public:
  static constexpr CounterId gp(std::uint32_t n) { return CounterId{n}; }
  static constexpr CounterId fixed(std::uint32_t n) { return CounterId{fixed_shift + n}; }
  /// The counter of bit `bit` of a CounterSet.
  static constexpr CounterId from_bit(std::uint32_t bit) { return CounterId{bit}; }

  [[nodiscard]] constexpr bool is_fixed() const { return bit_ >= fixed_shift; }
  /// Its number among its kind.
  [[nodiscard]] constexpr std::uint32_t number() const { return is_fixed() ? bit_ - fixed_shift : bit_; }
  [[nodiscard]] constexpr std::uint32_t bit() const { return bit_; }
  [[nodiscard]] constexpr CounterSet mask() const { return CounterSet{1} << bit_; }
  /// Its place in an array of max_counters.
  [[nodiscard]] constexpr std::uint32_t slot() const {
    return is_fixed() ? bit_ - fixed_shift + max_gp_counters : bit_;
  }
  static constexpr CounterId from_slot(std::uint32_t slot) {
    return slot < max_gp_counters ? gp(slot) : fixed(slot - max_gp_counters);
  }
  friend constexpr bool operator==(CounterId, CounterId) = default;

 private:
  constexpr explicit CounterId(std::uint32_t bit) : bit_{bit} {}
  std::uint32_t bit_;
};

/// Calls visit(CounterId) for each counter of the set, lowest bit first.
template <class Visit>
constexpr void for_each_counter(CounterSet set, Visit&& visit) {
  for (; set != 0; set &= set - 1) visit(CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(set))));
}

/// The first n general-purpose counters.
constexpr CounterSet first_gp(std::uint32_t n) { return (CounterSet{1} << n) - 1; }

}  // namespace vpmu
