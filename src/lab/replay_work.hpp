// What a recorded guest did while it ran: a trace tells only for how long.
#pragma once

#include <cstdint>

#include "host/model/activity.hpp"

namespace vpmu::lab {

inline constexpr std::uint64_t ns_per_second = 1'000'000'000;
/// Thirty years of guest time: more is a broken clock, and would overflow counts of cycles.
inline constexpr std::uint64_t max_guest_ns = ns_per_second * ns_per_second;

/// Turns guest time into events, at fixed rates.
class GuestWork {
 public:
  // Taken for granted of any guest.
  static constexpr std::uint64_t instructions_per_branch = 5;
  static constexpr std::uint64_t instructions_per_branch_miss = 250;
  static constexpr std::uint64_t instructions_per_llc_reference = 100;
  static constexpr std::uint64_t instructions_per_llc_miss = 500;

  /// Clocks in MHz, from 10^-6 to 10^4; instructions per core cycle, above 0 and at most 1.
  GuestWork(double core_mhz, double tsc_mhz, double ipc);

  /// Timestamps that count TSC ticks, as time.
  [[nodiscard]] std::uint64_t ticks_to_ns(std::uint64_t ticks) const;

  /// What happened from one point of the guest's own time to another, at most max_guest_ns. Stretches that follow each
  /// other lose nothing between them.
  [[nodiscard]] model::Activity between(std::uint64_t from_ns, std::uint64_t to_ns) const;

 private:
  [[nodiscard]] model::Activity until(std::uint64_t ns) const;

  std::uint64_t core_hz_;
  std::uint64_t tsc_hz_;
  std::uint64_t ipc_permille_;
};

}  // namespace vpmu::lab
