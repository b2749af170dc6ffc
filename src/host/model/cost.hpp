// What counted work costs on a platform.
#pragma once

#include <cstdint>

#include "host/model/hardware.hpp"
#include "host/model/platform.hpp"
#include "vpmu/host/host_calls.hpp"

namespace vpmu::model {

/// A platform's prices in whole picoseconds, so that sums are the same on every machine and in every order.
class Prices {
 public:
  explicit Prices(const Platform& platform);

  /// Register accesses.
  [[nodiscard]] std::uint64_t picoseconds(const AccessCounts& accesses) const;
  /// Host calls, signals and free reads, without the register accesses behind the calls.
  [[nodiscard]] std::uint64_t picoseconds(const HostCallCounts& calls) const;
  /// VM exits, each with the entry after it.
  [[nodiscard]] std::uint64_t exits(std::uint64_t count) const { return count * exit_; }

  [[nodiscard]] std::uint64_t core_cycles(std::uint64_t picoseconds) const { return scale(picoseconds, core_khz_); }
  [[nodiscard]] std::uint64_t tsc_ticks(std::uint64_t picoseconds) const { return scale(picoseconds, tsc_khz_); }

 private:
  /// `picoseconds` in periods of a clock of that many kHz, rounded down.
  static std::uint64_t scale(std::uint64_t picoseconds, std::uint64_t khz);

  std::uint64_t core_khz_;
  std::uint64_t tsc_khz_;
  std::uint64_t rdmsr_;
  std::uint64_t wrmsr_;
  std::uint64_t rdpmc_;
  std::uint64_t exit_;
  std::uint64_t free_read_;
  std::uint64_t open_;
  std::uint64_t close_;
  std::uint64_t set_period_;
  std::uint64_t live_set_period_;
  std::uint64_t enable_;
  std::uint64_t disable_;
  std::uint64_t read_;
  std::uint64_t live_read_;
  std::uint64_t signal_;
};

}  // namespace vpmu::model
