#include "lab/experiments/measure.hpp"

#include <algorithm>
#include <map>

#include "lab/experiments/real_guest.hpp"

namespace vpmu::lab {
namespace {

double ns_of(std::uint64_t ticks) { return static_cast<double>(ticks) * 1e9 / static_cast<double>(tsc_hz()); }

void look_at(const std::atomic<bool>& stop) {
  if (stop.load(std::memory_order_relaxed)) throw Interrupted{};
}

/// A few PMIs; or, if they can't be had, why. Empty: all came.
template <class Side>
std::string some_pmis(const Policy& policy, std::uint32_t counters, std::vector<double>& times,
                      const std::atomic<bool>& stop) {
  constexpr int warm_up = 3;
  constexpr int wanted = 16;
  RealSampledGuest<Side> guest{policy, counters};
  if (guest.health() != Health::counting) return describe(guest.health());
  for (int i = 0; i < warm_up + wanted; ++i) {
    look_at(stop);
    const std::uint64_t took = guest.one_pmi();
    if (took == 0) return "no PMI came";
    if (i >= warm_up) times.push_back(ns_of(took));
  }
  return {};
}

template <class Side>
void measure_side(Measurements& out, std::span<const char* const> policies, std::uint32_t counters,
                  const std::atomic<bool>& stop) {
  constexpr int rounds = 3;
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < rounds; ++round) {
    for (const char* policy : policies) {
      const std::string why_not = some_pmis<Side>(policy_of(policy), counters, times[policy], stop);
      if (why_not.empty()) continue;
      for (const char* name : policies) out.put(std::string{Side::name} + "/" + name, why_not);
      return;
    }
  }
  for (const auto& [policy, all] : times) out.put(std::string{Side::name} + "/" + policy, median(all));
}

}  // namespace

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

void measure_pmis(Measurements& out, std::span<const char* const> policies, std::uint32_t counters,
                  const std::atomic<bool>& stop) {
  measure_side<PerfSide<LinuxPerf::Reads::each>>(out, policies, counters, stop);
  measure_side<ClockSide>(out, policies, counters, stop);
}

void measure_ways(Measurements& out, std::span<const Way> ways, const std::atomic<bool>& stop) {
  constexpr int rounds = 21;
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round < rounds; ++round) {
    for (const Way& way : ways) {
      look_at(stop);
      const std::uint64_t start = __rdtsc();
      way.work(way.times);
      times[way.name].push_back(ns_of(__rdtsc() - start) / static_cast<double>(way.times));
    }
  }
  for (const auto& [name, all] : times) out.put(name, median(all));
}

}  // namespace vpmu::lab
