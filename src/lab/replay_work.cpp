#include "lab/replay_work.hpp"

#include <algorithm>
#include <cmath>

namespace vpmu::lab {
namespace {

using model::Event;

std::uint64_t hertz(double mhz) { return static_cast<std::uint64_t>(std::llround(std::clamp(mhz, 1e-6, 1e4) * 1e6)); }

/// value * numerator / denominator, without the product that might not fit.
constexpr std::uint64_t scale(std::uint64_t value, std::uint64_t numerator, std::uint64_t denominator) {
  return value / denominator * numerator + value % denominator * numerator / denominator;
}

}  // namespace

GuestWork::GuestWork(double core_mhz, double tsc_mhz, double ipc)
    : core_hz_{hertz(core_mhz)},
      tsc_hz_{hertz(tsc_mhz)},
      ipc_permille_{static_cast<std::uint64_t>(std::llround(std::clamp(ipc, 0.001, 1.0) * 1000))} {}

std::uint64_t GuestWork::ticks_to_ns(std::uint64_t ticks) const {
  const std::uint64_t seconds = ticks / tsc_hz_;
  if (seconds >= max_guest_ns / ns_per_second) return max_guest_ns;
  return seconds * ns_per_second + ticks % tsc_hz_ * ns_per_second / tsc_hz_;
}

model::Activity GuestWork::until(std::uint64_t ns) const {
  model::Activity activity;
  const std::uint64_t cycles = scale(ns, core_hz_, ns_per_second);
  const std::uint64_t instructions = scale(cycles, ipc_permille_, 1000);
  activity[Event::cycles] = cycles;
  activity[Event::ref_cycles] = scale(ns, tsc_hz_, ns_per_second);
  activity[Event::instructions] = instructions;
  activity[Event::branches] = instructions / instructions_per_branch;
  activity[Event::branch_misses] = instructions / instructions_per_branch_miss;
  activity[Event::llc_references] = instructions / instructions_per_llc_reference;
  activity[Event::llc_misses] = instructions / instructions_per_llc_miss;
  return activity;
}

model::Activity GuestWork::between(std::uint64_t from_ns, std::uint64_t to_ns) const {
  model::Activity activity = until(to_ns);
  const model::Activity before = until(from_ns);
  for (std::size_t i = 0; i < model::event_count; ++i) activity.count[i] -= before.count[i];
  const std::uint64_t cycles = activity[Event::cycles];
  for (std::size_t i = 0; i < model::event_count; ++i) {
    // As far apart as they can be.
    const std::uint64_t count = activity.count[i];
    const std::uint64_t others = cycles > count ? cycles - count : 0;
    activity.edges[i] = count == 0 ? 0 : std::max<std::uint64_t>(std::min(count, others), 1);
  }
  return activity;
}

}  // namespace vpmu::lab
