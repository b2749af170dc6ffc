// Measuring on this machine: several ways in turns, so that what disturbs one disturbs all; and medians.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/experiments/experiment.hpp"

namespace vpmu::lab {

double median(std::vector<double> values);

/// The VMM's time for a PMI of a guest with so many counters, of which one samples, on each real host and under each
/// policy. Puts medians in ns under "perf/POLICY" and "clock/POLICY", or why there is none.
void measure_pmis(Measurements& out, std::span<const char* const> policies, std::uint32_t counters,
                  const std::atomic<bool>& stop);

/// One of several ways to do a thing.
struct Way {
  std::string name;
  /// Does it `times` times.
  std::function<void(std::uint64_t times)> work;
  std::uint64_t times = 1000;
};
/// Puts the median of the time of one, in ns, under each way's name.
void measure_ways(Measurements& out, std::span<const Way> ways, const std::atomic<bool>& stop);

}  // namespace vpmu::lab
