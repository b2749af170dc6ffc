// What the real hosts of this system cost: each call, and one PMI of a guest under each policy.
//
// `pmi/...`: a guest samples with counter 0 while others stay resident; between entry and exit it spins until the
// hint. Time is the VMM's alone, from the exit that finds the overflow to the entry behind the handler's last access;
// `median_ns` is its median, `calls` and `signals` are per PMI, and `gain` is before-s0's median over this one's, in
// the same run; `p10_ns` and `gain_p10` say the same of the tenth percentile, which a busy machine disturbs less.
#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "host/clock.hpp"
#include "host/linux_perf.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/virtual_pmu.hpp"

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

// --- One PMI ---

/// Longer than a tick of the host's scheduler, so that setting the software clock does not also set the processor's
/// timer: in a VM that is an exit of its own, and not a cost of host events.
constexpr std::uint64_t period_ns = 8000000;

/// perf's software clock as a host.
template <LinuxPerf::Reads reads>
struct PerfSide {
  static constexpr const char* name = reads == LinuxPerf::Reads::each ? "perf" : "perf_group";
  LinuxPerf host{{.source = PerfSource::task_clock, .reads = reads}};
  static constexpr std::uint64_t period = period_ns;
  void entered() {}
  void left() { host.guest_left(); }
  [[nodiscard]] bool wants_exit() const { return host.hints().load(std::memory_order_relaxed) != 0; }
};

struct ClockSide {
  static constexpr const char* name = "clock";
  std::uint8_t kick = 0;
  ClockHost host{{.tsc_hz = tsc_hz(), .kick = &kick}};
  const std::uint64_t period = tsc_hz() / (1000000000 / period_ns);  // cycles
  void entered() { host.guest_entered(); }
  void left() {
    std::atomic_ref{kick}.store(0, std::memory_order_relaxed);
    host.guest_left();
  }
  [[nodiscard]] bool wants_exit() { return std::atomic_ref{kick}.load(std::memory_order_relaxed) != 0; }
};

template <class Side>
class SampledGuest {
 public:
  SampledGuest(const Policy& policy, std::uint32_t counters)
      : backing_{side.host}, pmu_{find_profile("intel-v2")->profile, backing_, policy}, mask_{first_gp(counters)} {
    for (std::uint32_t n = 0; n < counters; ++n) {
      write(ia32_perfevtsel[n], cycles_code | both_rings | evtsel::enable | evtsel::interrupt);
    }
    write(ia32_pmc[0], reload());
    write(Msr::ia32_perf_global_ctrl, mask_);
    static_cast<void>(enter());
  }

  /// Runs the guest to its next PMI and handles that. TSC cycles that the VMM took, or 0 if the PMI never came.
  std::uint64_t one_pmi() {
    for (int exits = 0; exits < 100; ++exits) {
      run_to_exit();
      const std::uint64_t start = __rdtsc();
      side.left();
      pmu_.leave();
      if (enter()) {
        handle();
        return __rdtsc() - start;
      }
    }
    return 0;
  }
  [[nodiscard]] Health health() const { return pmu_.health(CounterId::gp(0)); }

  Side side;

 private:
  [[nodiscard]] std::uint32_t reload() const { return static_cast<std::uint32_t>(0 - side.period); }
  void write(Msr msr, std::uint64_t value) { benchmark::DoNotOptimize(pmu_.write_msr(msr, value)); }

  bool enter() {
    const bool pmi = pmu_.enter() == EntryAction::inject_pmi;
    side.entered();
    return pmi;
  }
  void run_to_exit() {
    const std::uint64_t limit = __rdtsc() + tsc_hz() / 10;
    while (!side.wants_exit() && __rdtsc() < limit) _mm_pause();
    ::syscall(SYS_getppid);  // KVM_RUN returns from the kernel too
  }
  void exit() {
    side.left();
    pmu_.leave();
  }

  /// A perfmon v2 handler: each access is an exit and an entry.
  void handle() {
    exit();
    write(Msr::ia32_perf_global_ctrl, 0);
    static_cast<void>(enter());
    exit();
    const std::uint64_t status = pmu_.read_msr(Msr::ia32_perf_global_status).value_or(0);
    static_cast<void>(enter());
    exit();
    write(Msr::ia32_perf_global_ovf_ctrl, status);
    static_cast<void>(enter());
    exit();
    benchmark::DoNotOptimize(pmu_.read_pmc(0));
    static_cast<void>(enter());
    exit();
    write(ia32_pmc[0], reload());
    static_cast<void>(enter());
    exit();
    write(Msr::ia32_perf_global_ctrl, mask_);
    static_cast<void>(enter());
  }

  EmulatedBacking backing_;
  VirtualPmu pmu_;
  CounterSet mask_;
};

struct Times {
  double median = 0;
  double p10 = 0;
};

/// Those of before-s0, by host and number of counters.
std::map<std::pair<std::string, std::uint32_t>, Times>& before() {
  static std::map<std::pair<std::string, std::uint32_t>, Times> times;
  return times;
}

template <class Side>
void pmi(benchmark::State& state, const NamedPolicy& policy, std::uint32_t counters) {
  SampledGuest<Side> guest{policy.policy, counters};
  if (guest.health() != Health::counting) {
    state.SkipWithError(describe(guest.health()));
    return;
  }
  for (int warm_up = 0; warm_up < 20; ++warm_up) static_cast<void>(guest.one_pmi());
  std::vector<std::uint64_t> samples;
  samples.reserve(static_cast<std::size_t>(state.max_iterations));
  guest.side.host.reset_calls();
  for (auto _ : state) {
    const std::uint64_t took = guest.one_pmi();
    if (took == 0) {
      state.SkipWithError("no PMI came");
      return;
    }
    samples.push_back(took);
    state.SetIterationTime(ns_of(took) * 1e-9);
  }
  std::sort(samples.begin(), samples.end());
  const Times times{ns_of(samples[samples.size() / 2]), ns_of(samples[samples.size() / 10])};
  const auto per_pmi = [&](std::uint64_t n) {
    return benchmark::Counter(static_cast<double>(n) / static_cast<double>(samples.size()));
  };
  const HostCallCounts calls = guest.side.host.calls();
  state.counters["median_ns"] = times.median;
  state.counters["p10_ns"] = times.p10;
  state.counters["calls"] = per_pmi(guest.side.host.system_calls());
  state.counters["opens"] = per_pmi(calls.open);
  state.counters["signals"] = per_pmi(calls.signals);
  // The group is a way to read less: it is measured against the plain events.
  const std::string_view plain = std::string_view{Side::name}.substr(0, std::string_view{Side::name}.find('_'));
  Times& first = before()[{std::string{plain}, counters}];
  if (plain == Side::name && std::string_view{policy.name} == "before-s0") first = times;
  state.counters["gain"] = first.median / times.median;
  state.counters["gain_p10"] = first.p10 / times.p10;
}

template <class Side>
void register_pmi() {
  constexpr std::array names{"before-s0", "before-s1", "before-s2", "best"};
  for (const std::uint32_t counters : {1U, 4U, 8U}) {
    for (const char* name : names) {
      const NamedPolicy& policy = *find_policy(name);
      const std::string title = std::string{"pmi/"} + Side::name + "/" + std::to_string(counters) + "/" + policy.name;
      benchmark::RegisterBenchmark(title.c_str(),
                                   [&policy, counters](benchmark::State& state) { pmi<Side>(state, policy, counters); })
          ->UseManualTime()
          ->Iterations(300);
    }
  }
}

const bool registered = [] {
  register_pmi<PerfSide<LinuxPerf::Reads::each>>();
  register_pmi<PerfSide<LinuxPerf::Reads::group>>();
  register_pmi<ClockSide>();
  return true;
}();

}  // namespace
}  // namespace vpmu
