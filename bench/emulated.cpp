// Emulated mode before and after, in one run: a guest's PMI (S0), pause tracking (S1), bounded batching (S4).
//
// perf and clock are this system's own hosts: their times are measured. `modelled/...` has the published machine's
// prices instead, and no time of its own: compare it with the publication, never with the measured ones.
//
// `median_ns` is the VMM's time alone: for a PMI, from the exit that finds the overflow to the entry behind the
// handler's last access; `gain` is the median of the first policy of the table over this one's, `gain_p10` the same of
// the tenth percentile, which a busy machine disturbs less.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fakes/fake_host.hpp"
#include "host/model/perf.hpp"
#include "lab/experiments/real_guest.hpp"

namespace vpmu {
namespace {

using lab::ClockSide;
using lab::PerfSide;
using lab::tsc_hz;
using PlainPerf = PerfSide<LinuxPerf::Reads::each>;
using GroupedPerf = PerfSide<LinuxPerf::Reads::group>;

constexpr std::uint64_t cycles = 0x3C | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;
constexpr std::uint64_t instructions = 0xC0 | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;

double ns_of(std::uint64_t ticks) { return static_cast<double>(ticks) * 1e9 / static_cast<double>(tsc_hz()); }

struct Times {
  double median = 0;
  double p10 = 0;
};

Times times_of(std::vector<std::uint64_t>& samples) {
  std::ranges::sort(samples);
  return {ns_of(samples[samples.size() / 2]), ns_of(samples[samples.size() / 10])};
}

/// The times of each table's first row: what the others gain on.
void show_gain(benchmark::State& state, const std::string& table, const Times& times, bool first) {
  static std::map<std::string, Times> before;
  if (first) before[table] = times;
  state.counters["median_ns"] = times.median;
  state.counters["gain"] = before[table].median / times.median;
  state.counters["gain_p10"] = before[table].p10 / times.p10;
}

benchmark::Counter each(std::uint64_t n, std::size_t of) {
  return benchmark::Counter(static_cast<double>(n) / static_cast<double>(of));
}

// --- S0: one PMI of a guest that samples with one counter, while others stay resident ---

template <class Side>
void pmi(benchmark::State& state, const NamedPolicy& policy, std::uint32_t counters) {
  lab::RealSampledGuest<Side> guest{policy.policy, counters};
  if (guest.health() != Health::counting) return state.SkipWithError(describe(guest.health()));
  for (int warm_up = 0; warm_up < 20; ++warm_up) static_cast<void>(guest.one_pmi());
  std::vector<std::uint64_t> samples;
  samples.reserve(static_cast<std::size_t>(state.max_iterations));
  guest.side.host.reset_calls();
  for (auto _ : state) {
    const std::uint64_t took = guest.one_pmi();
    if (took == 0) return state.SkipWithError("no PMI came");
    samples.push_back(took);
    state.SetIterationTime(ns_of(took) * 1e-9);
  }
  const HostCallCounts calls = guest.side.host.calls();
  state.counters["calls"] = each(guest.side.host.system_calls(), samples.size());
  state.counters["opens"] = each(calls.open, samples.size());
  state.counters["signals"] = each(calls.signals, samples.size());
  // The group is a way to read less: it is measured against the plain events.
  const std::string_view name = Side::name;
  const std::string plain{name.substr(0, name.find('_'))};
  show_gain(state, "pmi/" + plain + std::to_string(counters), times_of(samples),
            plain == name && std::string_view{policy.name} == "before-s0");
}

/// The same PMI on the modelled host of a platform, whose time is the sum of what was called.
void modelled_pmi(benchmark::State& state, const model::Platform& platform, const NamedPolicy& policy) {
  const Profile profile = find_profile("intel-v2")->profile;
  model::HardwarePmu hardware{model::host_for(profile)};
  model::PerfModel host{hardware, {.free_reads = true, .taken = 0}, platform};
  EmulatedBacking backing{host};
  VirtualPmu pmu{profile, backing, policy.policy};
  constexpr std::uint32_t period = 1'000'000;
  const auto write = [&](Msr msr, std::uint64_t value) {
    pmu.leave();
    static_cast<void>(pmu.write_msr(msr, value));
    static_cast<void>(pmu.enter());
  };
  const auto run = [&](std::uint64_t n) {
    model::Activity activity;
    activity.count[model::index_of(model::Event::cycles)] = n;
    static_cast<void>(host.advance(activity, model::Ring::user));
  };
  write(ia32_perfevtsel[0], cycles);
  write(ia32_pmc[0], 0U - period);
  write(Msr::ia32_perf_global_ctrl, 1);
  std::uint64_t pmis = 0;
  double began = 0;
  // Its way to the handler is time that passes, and no work of the host's.
  const auto work = [&] {
    constexpr double picoseconds = 1e3;
    return static_cast<double>(host.cost_picoseconds()) -
           static_cast<double>(host.calls().signals) * platform.signal_ns.value * picoseconds;
  };
  constexpr std::uint64_t warm_up = 10;
  for (auto _ : state) {
    run(period);
    pmu.leave();
    const bool came = pmu.enter() == EntryAction::inject_pmi;
    if (!came) return state.SkipWithError("no PMI came");
    write(Msr::ia32_perf_global_ctrl, 0);
    pmu.leave();
    const std::uint64_t status = pmu.read_msr(Msr::ia32_perf_global_status).value_or(0);
    static_cast<void>(pmu.enter());
    write(Msr::ia32_perf_global_ovf_ctrl, status);
    write(ia32_pmc[0], 0U - period);
    write(Msr::ia32_perf_global_ctrl, 1);
    if (++pmis == warm_up) began = work();
  }
  static double before = 0;
  const double ns = (work() - began) / 1e3 / static_cast<double>(pmis - warm_up);
  if (std::string_view{policy.name} == "before-s0") before = ns;
  state.counters["modelled_host_ns"] = ns;
  state.counters["modelled_gain"] = before / ns;
  state.counters["published_gain"] = 500;
}

// --- S1: four counters sample; in turns, seven events share them ---

/// Counters 0 to 3 sample, each with a period of its own.
template <class Side>
class FourSamplers {
 public:
  explicit FourSamplers(const Policy& policy)
      : backing_{side.host}, pmu_{find_profile("intel-v2")->profile, backing_, policy} {
    for (std::uint32_t n = 0; n < counters; ++n) start(n, n);
    write(Msr::ia32_perf_global_ctrl, mask);
    static_cast<void>(pmu_.enter());
    side.entered();
  }
  [[nodiscard]] Health health() const { return pmu_.health(CounterId::gp(0)); }

  std::uint64_t one_pmi() {
    constexpr int patience = 100;
    for (int exits = 0; exits < patience; ++exits) {
      const std::uint64_t limit = __rdtsc() + tsc_hz() / 10;
      while (!side.wants_exit() && __rdtsc() < limit) _mm_pause();
      ::syscall(SYS_getppid);  // KVM_RUN returns from the kernel too
      const std::uint64_t start = __rdtsc();
      side.left();
      pmu_.leave();
      const bool came = pmu_.enter() == EntryAction::inject_pmi;
      side.entered();
      if (!came) continue;
      handle();
      return __rdtsc() - start;
    }
    return 0;
  }
  /// A kernel's rotation: the counters of three events go to the next three.
  std::uint64_t one_rotation() {
    const std::uint64_t began = __rdtsc();
    exit([&] { write(Msr::ia32_perf_global_ctrl, 0); });
    for (std::uint32_t n = 0; n < 3; ++n) {
      exit([&] { seen_ = pmu_.read_pmc(n).value_or(0); });
      exit([&] { write(ia32_perfevtsel[n], 0); });
    }
    turn_ = 3 - turn_;
    for (std::uint32_t n = 0; n < 3; ++n) exit([&] { start(n, n + turn_); });
    exit([&] { write(Msr::ia32_perf_global_ctrl, mask); });
    return __rdtsc() - began;
  }

  Side side;

 private:
  static constexpr std::uint32_t counters = 4;
  static constexpr CounterSet mask = first_gp(counters);

  void write(Msr msr, std::uint64_t value) { static_cast<void>(pmu_.write_msr(msr, value)); }
  void start(std::uint32_t n, std::uint32_t event) {
    // On a clock all events are time; the unit mask makes them different ones.
    write(ia32_perfevtsel[n], cycles | (event >= counters ? 0x100U * event : 0));
    write(ia32_pmc[n], reload(n));
  }
  [[nodiscard]] std::uint32_t reload(std::uint32_t n) const {
    return static_cast<std::uint32_t>(0 - (side.period + n * side.period / 4));
  }
  template <class Access>
  void exit(Access&& access) {
    side.left();
    pmu_.leave();
    access();
    static_cast<void>(pmu_.enter());
    side.entered();
  }
  void handle() {
    exit([&] { write(Msr::ia32_perf_global_ctrl, 0); });
    std::uint64_t status = 0;
    exit([&] { status = pmu_.read_msr(Msr::ia32_perf_global_status).value_or(0); });
    exit([&] { write(Msr::ia32_perf_global_ovf_ctrl, status); });
    for (std::uint32_t n = 0; n < counters; ++n) {
      if ((status >> n & 1) == 0) continue;
      exit([&] { seen_ = pmu_.read_pmc(n).value_or(0); });
      exit([&] { write(ia32_pmc[n], reload(n)); });
    }
    exit([&] { write(Msr::ia32_perf_global_ctrl, mask); });
  }

  EmulatedBacking backing_;
  VirtualPmu pmu_;
  std::uint32_t turn_ = 0;
  volatile std::uint64_t seen_ = 0;
};

enum class Load : std::uint8_t { plain, multiplexed };

template <class Side>
void pause_tracking(benchmark::State& state, Policy::Pause pause, Load load) {
  Policy policy = find_policy("before-s1")->policy;
  policy.pause = pause;
  FourSamplers<Side> guest{policy};
  if (guest.health() != Health::counting) return state.SkipWithError(describe(guest.health()));
  for (int warm_up = 0; warm_up < 10; ++warm_up) static_cast<void>(guest.one_pmi());
  std::vector<std::uint64_t> samples;
  samples.reserve(static_cast<std::size_t>(state.max_iterations));
  guest.side.host.reset_calls();
  for (auto _ : state) {
    std::uint64_t took = guest.one_pmi();
    if (took == 0) return state.SkipWithError("no PMI came");
    if (load == Load::multiplexed) took += guest.one_rotation();
    samples.push_back(took);
    state.SetIterationTime(ns_of(took) * 1e-9);
  }
  state.counters["calls"] = each(guest.side.host.system_calls(), samples.size());
  show_gain(state, std::string{"pause/"} + Side::name + (load == Load::plain ? "/plain" : "/multiplexed"),
            times_of(samples), pause == Policy::Pause::untracked);
}

// --- S4: emulated instructions that counters match, T changed on one running guest ---

struct Tolerance {
  const char* name;
  std::uint64_t value;
};
constexpr std::array tolerances{Tolerance{"0", 0}, Tolerance{"1000", 1000}, Tolerance{"100000", 100'000},
                                Tolerance{"10000000", 10'000'000}, Tolerance{"auto", Policy::fold_auto}};

enum class Counter : std::uint8_t { resident, sampling };
constexpr std::uint64_t sampling_period = 20'000'000;

/// A guest on real perf events of which each exit completes one instruction, counted by one counter.
class RetiringGuest {
 public:
  explicit RetiringGuest(Counter counter)
      : backing_{side_.host}, pmu_{find_profile("intel-v2")->profile, backing_, find_policy("before-s4")->policy} {
    static_cast<void>(pmu_.write_msr(ia32_perfevtsel[0],
                                     counter == Counter::sampling ? instructions : instructions & ~evtsel::interrupt));
    if (counter == Counter::sampling) static_cast<void>(pmu_.write_msr(ia32_pmc[0], 0 - sampling_period));
    static_cast<void>(pmu_.write_msr(Msr::ia32_perf_global_ctrl, 1));
    static_cast<void>(pmu_.enter());
  }
  [[nodiscard]] Health health() const { return pmu_.health(CounterId::gp(0)); }
  void set_tolerance(std::uint64_t tolerance) {
    Policy policy = pmu_.policy();
    policy.fold = tolerance;
    pmu_.set_policy(policy);
    exit();
  }
  void exit() {
    side_.left();
    pmu_.leave();
    pmu_.retire(EmulatedEvent::instruction, [] { return 0; });
    static_cast<void>(pmu_.enter());
    side_.entered();
  }
  [[nodiscard]] LinuxPerf& host() { return side_.host; }

 private:
  PlainPerf side_;
  EmulatedBacking backing_;
  VirtualPmu pmu_;
};

/// What the PMU adds to exits in which an instruction is completed; the guest's tick is one of them.
void tick(benchmark::State& state, Counter counter, const Tolerance& tolerance) {
  static std::map<Counter, std::unique_ptr<RetiringGuest>> guests;  // each runs on while T changes
  auto& guest = guests[counter];
  if (!guest) guest = std::make_unique<RetiringGuest>(counter);
  if (guest->health() != Health::counting) return state.SkipWithError(describe(guest->health()));
  guest->set_tolerance(tolerance.value);
  guest->host().reset_calls();
  std::vector<std::uint64_t> samples;
  samples.reserve(static_cast<std::size_t>(state.max_iterations));
  const std::uint64_t began = __rdtsc();
  for (auto _ : state) {
    const std::uint64_t start = __rdtsc();
    guest->exit();
    samples.push_back(__rdtsc() - start);
    state.SetIterationTime(ns_of(samples.back()) * 1e-9);
  }
  const double seconds = ns_of(__rdtsc() - began) * 1e-9;
  std::ranges::sort(samples);
  state.counters["reprograms_per_s"] = static_cast<double>(guest->host().calls().set_period) / seconds;
  state.counters["calls"] = each(guest->host().system_calls(), samples.size());
  state.counters["p50_ns"] = ns_of(samples[samples.size() / 2]);
  state.counters["p99_ns"] = ns_of(samples[samples.size() * 99 / 100]);
  if (guest->health() != Health::counting) state.SkipWithError(describe(guest->health()));
}

/// How late a PMI is, in events, on a host without delays of its own, three of ten events emulated.
void lateness(benchmark::State& state, const Tolerance& tolerance) {
  Policy policy;
  policy.fold = tolerance.value;
  fakes::FakeHost host;
  host.set_logging(false);
  EmulatedBacking backing{host};
  VirtualPmu pmu{find_profile("intel-v2")->profile, backing, policy};
  static_cast<void>(pmu.write_msr(ia32_perfevtsel[0], instructions));
  static_cast<void>(pmu.write_msr(ia32_a_pmc[0], (std::uint64_t{1} << 48) - sampling_period));
  static_cast<void>(pmu.write_msr(Msr::ia32_perf_global_ctrl, 1));
  static_cast<void>(pmu.enter());
  std::uint64_t worst = 0;
  std::uint64_t pmis = 0;
  for (auto _ : state) {
    constexpr std::uint64_t stretch = 1000;
    constexpr std::uint64_t emulated = 300;
    host.happen_on(CounterId::gp(0), stretch - emulated);
    pmu.leave();
    for (std::uint64_t n = 0; n < emulated; ++n) pmu.retire(EmulatedEvent::instruction, [] { return 0; });
    if (pmu.enter() != EntryAction::inject_pmi) continue;
    ++pmis;
    const std::uint64_t past = pmu.read_pmc(0).value_or(0);
    worst = std::max(worst, past > stretch ? past - stretch : 0);  // a PMI comes at an entry at the soonest
    static_cast<void>(pmu.write_msr(ia32_a_pmc[0], (std::uint64_t{1} << 48) - sampling_period));
  }
  state.counters["pmis"] = static_cast<double>(pmis);
  state.counters["late_events"] = static_cast<double>(worst);
  state.counters["late_percent"] = 100.0 * static_cast<double>(worst) / static_cast<double>(sampling_period);
}

// --- The tables ---

template <class Side>
void register_pmi() {
  for (const std::uint32_t counters : {1U, 4U, 8U}) {
    for (const char* name : {"before-s0", "before-s1", "before-s2", "best"}) {
      const NamedPolicy& policy = *find_policy(name);
      const std::string title = std::string{"pmi/"} + Side::name + "/" + std::to_string(counters) + "/" + name;
      benchmark::RegisterBenchmark(title.c_str(),
                                   [&policy, counters](benchmark::State& state) { pmi<Side>(state, policy, counters); })
          ->UseManualTime()
          ->Iterations(300);
    }
  }
}

template <class Side>
void register_pause() {
  for (const Load load : {Load::plain, Load::multiplexed}) {
    for (const Policy::Pause pause : {Policy::Pause::untracked, Policy::Pause::tracked}) {
      const std::string title = std::string{"pause/"} + Side::name +
                                (load == Load::plain ? "/plain/" : "/multiplexed/") +
                                (pause == Policy::Pause::untracked ? "untracked" : "tracked");
      benchmark::RegisterBenchmark(title.c_str(),
                                   [pause, load](benchmark::State& state) { pause_tracking<Side>(state, pause, load); })
          ->UseManualTime()
          ->Iterations(200);
    }
  }
}

const bool registered = [] {
  register_pmi<PlainPerf>();
  register_pmi<GroupedPerf>();
  register_pmi<ClockSide>();
  static const model::Platform& published = *model::find_platform("e5-2699v4");
  for (const char* name : {"before-s0", "best"}) {
    const std::string title = std::string{"modelled/pmi/e5-2699v4/"} + name;
    benchmark::RegisterBenchmark(title.c_str(), [&policy = *find_policy(name)](benchmark::State& state) {
      modelled_pmi(state, published, policy);
    })->Iterations(1000);
  }
  register_pause<PlainPerf>();
  register_pause<ClockSide>();
  for (const Counter counter : {Counter::resident, Counter::sampling}) {
    for (const Tolerance& tolerance : tolerances) {
      const std::string title =
          std::string{"tick/perf/"} + (counter == Counter::resident ? "resident" : "sampling") + "/T:" + tolerance.name;
      benchmark::RegisterBenchmark(title.c_str(),
                                   [counter, &tolerance](benchmark::State& state) { tick(state, counter, tolerance); })
          ->UseManualTime()
          ->Iterations(200'000);
    }
  }
  for (const Tolerance& tolerance : tolerances) {
    const std::string title = std::string{"modelled/lateness/T:"} + tolerance.name;
    benchmark::RegisterBenchmark(title.c_str(), [&tolerance](benchmark::State& state) {
      lateness(state, tolerance);
    })->Iterations(300'000);
  }
  return true;
}();

}  // namespace
}  // namespace vpmu
