// What each call to the real hosts of this system costs. bench_emulated has what policies make of them.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "vpmu/event_select.hpp"
#include "vpmu/host/clock.hpp"
#include "vpmu/host/linux_perf.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t both_rings = evtsel::user | evtsel::kernel;
constexpr std::uint64_t cycles_code = 0x3C;
constexpr std::uint64_t far = std::uint64_t{1} << 40;

constexpr HostEventSpec cycles_of(CounterId counter) {
  return {.select = cycles_code, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = counter};
}

std::uint64_t tsc_hz() {
  static const std::uint64_t hz = linux_clock_system().measure_tsc_hz();
  return hz;
}

double ns_of(std::uint64_t cycles) { return static_cast<double>(cycles) * 1e9 / static_cast<double>(tsc_hz()); }

// --- Single calls ---

/// Times `call` after `prepare`, which is not timed.
template <class Prepare, class Call>
void time_call(benchmark::State& state, Prepare&& prepare, Call&& call) {
  std::vector<std::uint64_t> samples;
  samples.reserve(static_cast<std::size_t>(state.max_iterations));
  for (auto _ : state) {
    prepare();
    const std::uint64_t start = __rdtsc();
    call();
    const std::uint64_t took = __rdtsc() - start;
    samples.push_back(took);
    state.SetIterationTime(ns_of(took) * 1e-9);
  }
  std::sort(samples.begin(), samples.end());
  state.counters["median_ns"] = ns_of(samples[samples.size() / 2]);
}

using PerfSource = LinuxPerf::Source;

/// One perf event of this thread, open and disabled; skips the benchmark where there is none.
struct OnePerfEvent {
  explicit OnePerfEvent(benchmark::State& state, PerfSource source = PerfSource::task_clock)
      : host{{.source = source}} {
    const auto opened = host.open(cycles_of(CounterId::gp(0)), far);
    if (opened.ok()) {
      event = *opened;
    } else {
      state.SkipWithError(describe(opened.error()));
    }
  }
  LinuxPerf host;
  HostEvent event = HostEvent::none;
};

enum class Enabled : std::uint8_t { no, yes };

template <class Prepare, class Call>
void time_perf(benchmark::State& state, Enabled enabled, Prepare&& prepare, Call&& call) {
  OnePerfEvent one{state};
  if (one.event == HostEvent::none) return;
  if (enabled == Enabled::yes) static_cast<void>(one.host.enable(one.event));
  time_call(state, [&] { prepare(one.host, one.event); }, [&] { call(one.host, one.event); });
}

constexpr auto nothing = [](LinuxPerf&, HostEvent) {};
constexpr auto enable = [](LinuxPerf& host, HostEvent event) { static_cast<void>(host.enable(event)); };
constexpr auto disable = [](LinuxPerf& host, HostEvent event) { static_cast<void>(host.disable(event)); };
constexpr auto read = [](LinuxPerf& host, HostEvent event) { static_cast<void>(host.read(event)); };
constexpr auto set_period = [](LinuxPerf& host, HostEvent event) { static_cast<void>(host.set_period(event, far)); };
constexpr auto reprogram = [](LinuxPerf& host, HostEvent event) {
  disable(host, event);
  read(host, event);
  set_period(host, event);
  enable(host, event);
};

/// With the set-up of its signal: open() does both.
void perf_open(benchmark::State& state) {
  OnePerfEvent one{state};
  if (one.event == HostEvent::none) return;
  time_call(
      state, [&] { one.host.close(one.event); },
      [&] { one.event = one.host.open(cycles_of(CounterId::gp(0)), far).value_or(HostEvent::none); });
}
void perf_close(benchmark::State& state) {
  OnePerfEvent one{state};
  if (one.event == HostEvent::none) return;
  time_call(
      state, [&] { one.event = one.host.open(cycles_of(CounterId::gp(0)), far).value_or(HostEvent::none); },
      [&] { one.host.close(one.event); });
}
void perf_recreate(benchmark::State& state) {
  OnePerfEvent one{state};
  if (one.event == HostEvent::none) return;
  time_call(
      state, [&] {},
      [&] {
        one.host.close(one.event);
        one.event = one.host.open(cycles_of(CounterId::gp(0)), far).value_or(HostEvent::none);
        enable(one.host, one.event);
      });
}
/// The three fcntl() calls alone.
void perf_signal_setup(benchmark::State& state) {
  PerfSystem& system = linux_perf_system();
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = PERF_COUNT_SW_TASK_CLOCK;
  attr.sample_period = far;
  attr.disabled = 1;
  const int fd = system.perf_event_open(attr, 0, -1);
  if (fd < 0) {
    state.SkipWithError("perf_event_open() failed");
    return;
  }
  f_owner_ex owner{F_OWNER_TID, ::gettid()};
  time_call(
      state, [] {},
      [&] {
        system.fcntl(fd, F_SETOWN_EX, std::bit_cast<std::uintptr_t>(&owner));
        system.fcntl(fd, F_SETSIG, static_cast<std::uintptr_t>(signal_hints::default_signal()));
        system.fcntl(fd, F_SETFL, O_ASYNC | O_NONBLOCK);
      });
  system.close(fd);
}
void perf_enable(benchmark::State& state) { time_perf(state, Enabled::no, disable, enable); }
void perf_disable(benchmark::State& state) { time_perf(state, Enabled::yes, enable, disable); }
void perf_period_disabled(benchmark::State& state) { time_perf(state, Enabled::no, nothing, set_period); }
void perf_period_live(benchmark::State& state) { time_perf(state, Enabled::yes, nothing, set_period); }
void perf_read_disabled(benchmark::State& state) { time_perf(state, Enabled::no, nothing, read); }
void perf_read_live(benchmark::State& state) { time_perf(state, Enabled::yes, nothing, read); }
void perf_reprogram(benchmark::State& state) { time_perf(state, Enabled::yes, nothing, reprogram); }

/// One timer of ClockHost's kind.
template <class Call>
void time_clock(benchmark::State& state, Call&& call) {
  ClockHost host{{.tsc_hz = tsc_hz()}};
  const HostEvent event = host.open(cycles_of(CounterId::gp(0)), far).value_or(HostEvent::none);
  static_cast<void>(host.enable(event));
  time_call(state, [] {}, [&] { call(host, event); });
}
void clock_set_timer(benchmark::State& state) {
  time_clock(state, [](ClockHost& host, HostEvent event) { static_cast<void>(host.set_period(event, far)); });
}
void clock_peek(benchmark::State& state) {
  time_clock(state, [](ClockHost& host, HostEvent event) { benchmark::DoNotOptimize(host.peek(event)); });
}
void clock_entry_and_exit(benchmark::State& state) {
  time_clock(state, [](ClockHost& host, HostEvent) {
    host.guest_entered();
    host.guest_left();
  });
}
/// What take_stolen() costs, and what each entry and exit would cost without the time-stamp counter.
void clock_thread_cpu_time(benchmark::State& state) {
  time_clock(state, [](ClockHost&, HostEvent) { benchmark::DoNotOptimize(linux_clock_system().thread_cpu_ns()); });
}
void clock_recreate(benchmark::State& state) {
  ClockHost host{{.tsc_hz = tsc_hz()}};
  HostEvent event = host.open(cycles_of(CounterId::gp(0)), far).value_or(HostEvent::none);
  time_call(
      state, [] {},
      [&] {
        host.close(event);
        event = host.open(cycles_of(CounterId::gp(0)), far).value_or(HostEvent::none);
        static_cast<void>(host.enable(event));
      });
}

#define VPMU_CALL_BENCHMARK(name) BENCHMARK(name)->UseManualTime()->Iterations(20000)
VPMU_CALL_BENCHMARK(perf_open);
VPMU_CALL_BENCHMARK(perf_close);
VPMU_CALL_BENCHMARK(perf_signal_setup);
VPMU_CALL_BENCHMARK(perf_enable);
VPMU_CALL_BENCHMARK(perf_disable);
VPMU_CALL_BENCHMARK(perf_period_disabled);
VPMU_CALL_BENCHMARK(perf_period_live);
VPMU_CALL_BENCHMARK(perf_read_disabled);
VPMU_CALL_BENCHMARK(perf_read_live);
VPMU_CALL_BENCHMARK(perf_reprogram);
VPMU_CALL_BENCHMARK(perf_recreate);
VPMU_CALL_BENCHMARK(clock_set_timer);
VPMU_CALL_BENCHMARK(clock_thread_cpu_time);
VPMU_CALL_BENCHMARK(clock_peek);
VPMU_CALL_BENCHMARK(clock_entry_and_exit);
VPMU_CALL_BENCHMARK(clock_recreate);

}  // namespace
}  // namespace vpmu
