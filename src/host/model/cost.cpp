#include "host/model/cost.hpp"

#include <cmath>

namespace vpmu::model {
namespace {

std::uint64_t rounded(double value) { return static_cast<std::uint64_t>(std::llround(value)); }

std::uint64_t from_ns(const Figure& ns, double factor = 1) { return rounded(ns.value * factor * 1000); }

std::uint64_t from_cycles(const Platform& platform, const Figure& cycles) {
  return rounded(cycles.value * 1e6 / platform.core_mhz.value);
}

}  // namespace

Prices::Prices(const Platform& platform)
    : core_khz_{rounded(platform.core_mhz.value * 1000)},
      tsc_khz_{rounded(platform.tsc_mhz.value * 1000)},
      rdmsr_{from_cycles(platform, platform.rdmsr_cycles)},
      wrmsr_{from_cycles(platform, platform.wrmsr_cycles)},
      rdpmc_{from_cycles(platform, platform.rdpmc_cycles)},
      exit_{from_cycles(platform, platform.exit_cycles)},
      free_read_{from_cycles(platform, platform.free_read_cycles)},
      open_{from_ns(platform.open_ns, platform.recreate_scale.value)},
      close_{from_ns(platform.close_ns, platform.recreate_scale.value)},
      set_period_{from_ns(platform.set_period_ns)},
      live_set_period_{from_ns(platform.live_set_period_ns)},
      enable_{from_ns(platform.enable_ns)},
      disable_{from_ns(platform.disable_ns)},
      read_{from_ns(platform.read_ns)},
      live_read_{from_ns(platform.live_read_ns)},
      signal_{from_ns(platform.signal_ns)} {}

std::uint64_t Prices::picoseconds(const AccessCounts& accesses) const {
  return accesses.rdmsr * rdmsr_ + accesses.wrmsr * wrmsr_ + accesses.rdpmc * rdpmc_;
}

std::uint64_t Prices::picoseconds(const HostCallCounts& calls) const {
  return calls.open * open_ + calls.close * close_ + (calls.set_period - calls.live_set_period) * set_period_ +
         calls.live_set_period * live_set_period_ + calls.enable * enable_ + calls.disable * disable_ +
         (calls.read - calls.live_read) * read_ + calls.live_read * live_read_ + calls.signals * signal_ +
         calls.peek * free_read_;
}

std::uint64_t Prices::scale(std::uint64_t picoseconds, std::uint64_t khz) {
  // A kHz is a period in 10^9 ps. In two parts, for the product does not fit.
  constexpr std::uint64_t ps_a_ms = 1'000'000'000;
  return picoseconds / ps_a_ms * khz + picoseconds % ps_a_ms * khz / ps_a_ms;
}

}  // namespace vpmu::model
