// Repeatable random numbers.
#pragma once

#include <cstdint>

namespace vpmu::guest {

/// SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014).
class Random {
 public:
  explicit constexpr Random(std::uint64_t seed) : state_{seed} {}
  constexpr std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB;
    return mixed ^ mixed >> 31;
  }
  /// 0 to limit - 1.
  constexpr std::uint64_t below(std::uint64_t limit) { return next() % limit; }

 private:
  std::uint64_t state_;
};

}  // namespace vpmu::guest
