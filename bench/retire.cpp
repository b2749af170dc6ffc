// What an emulated instruction costs: `walk` (before S2) beside `cached`, and the whole of an exit.
#include <benchmark/benchmark.h>

#include <array>

#include "fakes/fake_host.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t counting = evtsel::user | evtsel::kernel | evtsel::enable;
constexpr std::uint64_t instructions = 0xC0;
constexpr std::uint64_t cycles = 0x3C;

/// An EventFilter that allows `size` events, instructions and cycles among them.
EventFilter filter_of(std::size_t size) {
  std::array<std::uint64_t, max_filter_events> events{};
  for (std::size_t i = 0; i < size; ++i) events[i] = 0x100 + i * 0x101 % 0xFFFF;
  if (size > 0) events[size / 2] = instructions;
  if (size > 1) events[size - 1] = cycles;
  EventFilter filter;
  const FilterRequest request{
      .action = FilterRequest::allow, .flags = 0, .fixed_bitmap = 7, .events = events.data(), .event_count = size};
  static_cast<void>(filter.load(Vendor::intel, request));
  return filter;
}

struct Bench {
  Bench(Policy::Retire retire, std::size_t filter_size, std::uint32_t matching_gp, std::uint32_t other_gp,
        std::uint64_t fixed_ctrl)
      : filter{filter_of(filter_size)}, backing{host}, pmu{find_profile("intel-v2")->profile, backing, [&] {
                                                             Policy policy;
                                                             policy.retire = retire;
                                                             return policy;
                                                           }()} {
    host.set_logging(false);
    if (filter_size > 0) pmu.set_filter(&filter);
    for (std::uint32_t n = 0; n < matching_gp + other_gp; ++n) {
      static_cast<void>(pmu.write_msr(ia32_perfevtsel[n], counting | (n < matching_gp ? instructions : cycles)));
    }
    static_cast<void>(pmu.write_msr(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl));
    static_cast<void>(pmu.write_msr(Msr::ia32_perf_global_ctrl, 0x7000000FF));
    static_cast<void>(pmu.enter());
  }

  fakes::FakeHost host;
  EventFilter filter;
  EmulatedBacking backing;
  VirtualPmu pmu;
};

/// range(0): 0 walk, 1 cached. range(1): events in the filter.
void both_ways(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"cached", "filter"})->ArgsProduct({{0, 1}, {0, 10, 300}});
}

Policy::Retire way(const benchmark::State& state) {
  return state.range(0) == 0 ? Policy::Retire::walk : Policy::Retire::cached;
}

void retire(benchmark::State& state, std::uint32_t matching_gp, std::uint32_t other_gp, std::uint64_t fixed_ctrl) {
  Bench bench{way(state), static_cast<std::size_t>(state.range(1)), matching_gp, other_gp, fixed_ctrl};
  for (auto _ : state) {
    bench.pmu.retire(EmulatedEvent::instruction, [] { return 0; });
    benchmark::ClobberMemory();
  }
}

// The peer: 2.3 ns.
void no_counter_enabled(benchmark::State& state) { retire(state, 0, 0, 0); }
BENCHMARK(no_counter_enabled)->Apply(both_ways);

// The peer: 2.3 ns.
void none_matching_of_8(benchmark::State& state) { retire(state, 0, 8, 0); }
BENCHMARK(none_matching_of_8)->Apply(both_ways);

// The peer: 9.2 ns; with a filter of 10 and 300 events 18 and 26.7 ns.
void one_matching(benchmark::State& state) { retire(state, 1, 0, 0); }
BENCHMARK(one_matching)->Apply(both_ways);

// The peer: 69 ns.
void nine_matching_of_8_and_3(benchmark::State& state) { retire(state, 8, 0, 0x333); }
BENCHMARK(nine_matching_of_8_and_3)->Apply(both_ways);

/// retire + leave + enter: what a PMU adds to each exit. range(0): 0 idle, 1 counting instructions, 2 no PMU at all.
void exit_and_entry(benchmark::State& state) {
  Bench bench{Policy::Retire::cached, 0, state.range(0) == 1 ? 1U : 0U, 0, 0};
  const bool off = state.range(0) == 2;
  for (auto _ : state) {
    if (!off) {
      bench.pmu.leave();
      bench.pmu.retire(EmulatedEvent::instruction, [] { return 0; });
      benchmark::DoNotOptimize(bench.pmu.enter());
    }
    benchmark::ClobberMemory();
  }
  state.SetLabel(off ? "PMU off" : state.range(0) == 0 ? "idle" : "counting instructions");
}
BENCHMARK(exit_and_entry)->Arg(2)->Arg(0)->Arg(1);

}  // namespace
}  // namespace vpmu
