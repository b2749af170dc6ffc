// The kvm machine before and after, in one run, where there is /dev/kvm: a guest's PMI handler, and exits by OUT. All
// by the guest's own TSC. Counting needs a host that counts instructions.
//
// Each iteration is a whole guest. `median_ns` is that of the iterations; `gain` the first policy's over this one's.
#include <benchmark/benchmark.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

#include "lab/experiments/kvm_guest.hpp"
#include "lab/experiments/measure.hpp"

namespace vpmu {
namespace {

constexpr int guests = 5;
const std::atomic<bool> never{false};

void run_guests(benchmark::State& state, const lab::KvmReading& reading, double pmis) {
  std::vector<double> times;
  double calls = 0;
  for ([[maybe_unused]] auto _ : state) {
    // A guest that was disturbed fails its own checks: another one.
    constexpr int tries = 3;
    std::string why;
    const std::size_t before_this = times.size();
    for (int n = 0; n < tries && times.size() == before_this; ++n) {
      const auto figures = lab::run_on_kvm(reading.guest, never);
      const auto ns = figures ? reading.of(*figures) : std::unexpected{figures.error()};
      if (ns) {
        times.push_back(*ns);
        calls = static_cast<double>(figures->system_calls);
      } else {
        why = ns.error();
      }
    }
    if (times.size() == before_this) return state.SkipWithError(why.c_str());
    constexpr double second = 1e9;
    state.SetIterationTime(times.back() / second);
  }
  static std::map<std::string, double> before;
  const double median = lab::median(times);
  before.emplace(reading.name, median);
  state.counters["median_ns"] = median;
  state.counters["gain"] = before[reading.name] / median;
  if (pmis != 0) state.counters["calls"] = calls / pmis;
}

[[maybe_unused]] const bool registered = [] {
  for (const char* policy : {"before-s0", "before-s1", "best", "best,events=keep"}) {
    benchmark::RegisterBenchmark(("pmi/" + std::string{policy}).c_str(),
                                 [policy](benchmark::State& state) {
                                   constexpr std::uint64_t samples = 20;
                                   run_guests(state, {"pmi", lab::kvm_sampling(policy, samples), lab::kvm_handler_ns},
                                              samples);
                                 })
        ->UseManualTime()
        ->Iterations(guests);
  }
  for (const char* pmu : {"off", "idle", "counting"}) {
    for (const char* policy : {"before-s0", "before-s2", "best"}) {
      const std::string table = "exit/" + std::string{pmu};
      benchmark::RegisterBenchmark((table + '/' + policy).c_str(),
                                   [=](benchmark::State& state) {
                                     run_guests(state, {table, lab::kvm_exits(policy, pmu), lab::kvm_exit_ns}, 0);
                                   })
          ->UseManualTime()
          ->Iterations(guests);
    }
  }
  return true;
}();

}  // namespace
}  // namespace vpmu
