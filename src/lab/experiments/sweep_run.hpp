// A sweep's points run: a line of JSON each, and tables.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/experiments/section.hpp"
#include "lab/experiments/sweep.hpp"

namespace vpmu::lab {

/// What came out of a point. All of it is modelled: the same on each run and machine.
struct SweepResult {
  std::size_t number = 0;
  std::string line;             // JSON, and the end of the line
  std::vector<double> figures;  // in the order of the point's guests and theirs; none if a guest failed
};

/// Runs the points of a slice, several at a time; gives their results in order. `progress`: how many are done, and of
/// how many; from any thread, one call at a time. Throws Interrupted.
std::vector<SweepResult> run_sweep(const Sweep& sweep, Slice slice, unsigned threads, const std::atomic<bool>& stop,
                                   const std::function<void(unsigned, unsigned)>& progress);

/// A table for each experiment in it, a row a point; of at most this many points.
std::vector<Table> sweep_tables(const Sweep& sweep, std::span<const SweepResult> results, std::size_t most);

}  // namespace vpmu::lab
