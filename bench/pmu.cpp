// What one access costs, on a host that costs nothing: the PMU's own work.
//
// Beside each stands the peer's figure of docs/performance.md, measured on another run of another machine: compare
// ratios.
#include <benchmark/benchmark.h>

#include "fakes/fake_host.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t counting_cycles = 0x3C | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;

Policy policy_of(const benchmark::State& state) {
  return named_policies().first[static_cast<std::size_t>(state.range(0))].policy;
}

/// A PMU of intel-v2 with counters 0 to `gp` and fixed 0 to `fixed` counting.
struct Bench {
  Bench(const Policy& policy, std::uint32_t gp, std::uint32_t fixed)
      : backing{host}, pmu{find_profile("intel-v2")->profile, backing, policy} {
    host.set_logging(false);
    for (std::uint32_t n = 0; n < gp; ++n) static_cast<void>(pmu.write_msr(ia32_perfevtsel[n], counting_cycles));
    std::uint64_t ctrl = 0;
    for (std::uint32_t n = 0; n < fixed; ++n) ctrl |= 0xBULL << (4 * n);
    static_cast<void>(pmu.write_msr(Msr::ia32_fixed_ctr_ctrl, ctrl));
    mask = first_gp(gp) | first_gp(fixed) << fixed_shift;
    static_cast<void>(pmu.write_msr(Msr::ia32_perf_global_ctrl, mask));
    static_cast<void>(pmu.enter());
  }

  fakes::FakeHost host;
  EmulatedBacking backing;
  VirtualPmu pmu;
  CounterSet mask = 0;
};

/// Every policy of named_policies(), by its number.
void all_policies(benchmark::internal::Benchmark* bench) {
  bench->ArgName("policy");
  for (std::size_t i = 0; i < named_policies().count; ++i) bench->Arg(static_cast<std::int64_t>(i));
}

void label(benchmark::State& state) {
  state.SetLabel(named_policies().first[static_cast<std::size_t>(state.range(0))].name);
}

// The peer: 7.9 ns.
void global_ctrl_write(benchmark::State& state) {
  Bench bench{policy_of(state), 1, 0};
  for (auto _ : state) {
    benchmark::DoNotOptimize(bench.pmu.write_msr(Msr::ia32_perf_global_ctrl, bench.mask));
  }
  label(state);
}
BENCHMARK(global_ctrl_write)->Apply(all_policies);

// The peer: 7.2 ns.
void rdpmc_live(benchmark::State& state) {
  Bench bench{policy_of(state), 1, 0};
  for (auto _ : state) benchmark::DoNotOptimize(bench.pmu.read_pmc(0));
  label(state);
}
BENCHMARK(rdpmc_live)->Apply(all_policies);

// The peer: 14.5 ns.
void counter_read_live(benchmark::State& state) {
  Bench bench{policy_of(state), 1, 0};
  for (auto _ : state) benchmark::DoNotOptimize(bench.pmu.read_msr(ia32_pmc[0]));
  label(state);
}
BENCHMARK(counter_read_live)->Apply(all_policies);

// The peer: 21.7 ns.
void counter_write_live(benchmark::State& state) {
  Bench bench{policy_of(state), 1, 0};
  for (auto _ : state) benchmark::DoNotOptimize(bench.pmu.write_msr(ia32_a_pmc[0], 0xFFFF00000000));
  label(state);
}
BENCHMARK(counter_write_live)->Apply(all_policies);

void toggle(benchmark::State& state, std::uint32_t gp, std::uint32_t fixed) {
  Bench bench{policy_of(state), gp, fixed};
  std::uint64_t value = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(bench.pmu.write_msr(Msr::ia32_perf_global_ctrl, value));
    benchmark::DoNotOptimize(bench.pmu.enter());
    bench.pmu.leave();
    value ^= bench.mask;
  }
  label(state);
}

// The peer: 18.5 ns.
void toggle_and_entry_1(benchmark::State& state) { toggle(state, 1, 0); }
BENCHMARK(toggle_and_entry_1)->Apply(all_policies);

// The peer: 147 ns.
void toggle_and_entry_8_and_3(benchmark::State& state) { toggle(state, 8, 3); }
BENCHMARK(toggle_and_entry_8_and_3)->Apply(all_policies);

}  // namespace
}  // namespace vpmu
