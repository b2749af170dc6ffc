// The mediated switch: our own code, with registers that are memory; and what a CPUID exit costs on platforms, by the
// accesses that it makes.
//
// The peer's load and put of 8 + 3 counters, registers as memory: 157 ns (docs/performance.md), measured on another run
// of another machine: compare ratios.
#include <benchmark/benchmark.h>

#include <array>
#include <cstdint>
#include <string>

#include "host/model/cost.hpp"
#include "host/model/hardware_port.hpp"
#include "host/model/memory_hardware.hpp"
#include "host/model/perf.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/mediated_backing.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu {
namespace {

using model::MemoryHardware;

constexpr std::uint64_t both_rings = evtsel::user | evtsel::kernel;
constexpr std::uint64_t counting_cycles = 0x3C | both_rings | evtsel::enable | evtsel::interrupt;

/// How the guest uses its PMU.
enum class Use : std::uint8_t { off, idle, one, all };

struct Way {
  const char* name;
  Policy::Switch mode;
  Use use;
};
constexpr std::array ways{
    Way{"off", Policy::Switch::elide, Use::off},
    Way{"idle, write", Policy::Switch::write, Use::idle},
    Way{"idle, elide", Policy::Switch::elide, Use::idle},
    Way{"idle, ownership", Policy::Switch::ownership, Use::idle},
    Way{"cycles counted, write", Policy::Switch::write, Use::one},
    Way{"cycles counted, elide", Policy::Switch::elide, Use::one},
    Way{"cycles counted, ownership", Policy::Switch::ownership, Use::one},
    Way{"all counting, write", Policy::Switch::write, Use::all},
    Way{"all counting, elide", Policy::Switch::elide, Use::all},
    Way{"all counting, ownership", Policy::Switch::ownership, Use::all},
};
const Way& way_of(const benchmark::State& state, int argument) {
  return ways[static_cast<std::size_t>(state.range(argument))];
}

Policy policy_of(const Way& way) {
  Policy policy;
  policy.mode_switch = way.mode;
  return policy;
}

Profile profile_of(Vendor vendor, Use use) {
  if (use == Use::off) return find_profile(vendor == Vendor::intel ? "intel-none" : "amd-none")->profile;
  return find_profile(vendor == Vendor::intel ? "intel-v5" : "amd-v2")->profile;
}

Profile host_of(Vendor vendor) { return model::svm_host(profile_of(vendor, Use::idle)); }

/// The guest has `use` of its counters running, with values that are not 0.
void start(VirtualPmu& pmu, Use use) {
  if (use == Use::off || use == Use::idle) return;
  const Profile& profile = pmu.profile();
  const bool intel = profile.is_intel();
  const std::uint64_t code = intel ? counting_cycles : (counting_cycles & ~evtsel::event) | 0x76;
  for (std::uint32_t n = 0; n < (use == Use::one ? 1U : profile.gp_counters); ++n) {
    static_cast<void>(pmu.write_msr(intel ? ia32_perfevtsel[n] : amd_core_perf_ctl[n], code));
    static_cast<void>(pmu.write_msr(intel ? ia32_a_pmc[n] : amd_core_perf_ctr[n], 0x1000 + n));
  }
  if (use == Use::all && intel) {
    static_cast<void>(pmu.write_msr(Msr::ia32_fixed_ctr_ctrl, 0x333));
    for (std::uint32_t n = 0; n < 3; ++n) static_cast<void>(pmu.write_msr(ia32_fixed_ctr[n], 0x2000 + n));
  }
  static_cast<void>(
      pmu.write_msr(intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl, profile.counters()));
}

/// Our own code for an exit that does nothing and the entry after it, 8 + 3 counters.
void own_code(benchmark::State& state) {
  const Way& way = way_of(state, 0);
  MemoryHardware hardware;
  MediatedBacking<MemoryHardware> backing{hardware, host_of(Vendor::intel)};
  VirtualPmu pmu{profile_of(Vendor::intel, way.use), backing, policy_of(way)};
  start(pmu, way.use);
  benchmark::DoNotOptimize(pmu.enter());
  for (auto _ : state) {
    pmu.leave();
    benchmark::DoNotOptimize(pmu.enter());
    benchmark::ClobberMemory();
  }
  state.SetLabel(way.name);
}
BENCHMARK(own_code)->DenseRange(0, ways.size() - 1)->ArgName("way");

constexpr std::array<const char*, 2> machines{"emerald-rapids", "turin"};

/// A CPUID exit on a platform: the exit, the emulated instruction, the entry. Time is this model's own; the counters
/// are what counts: accesses, the cycles they and the exit take, and what is saved against `write` with its range. An
/// access to LVTPC is taken for a WRMSR, as in x2APIC mode.
void cpuid_exit(benchmark::State& state) {
  const model::Platform& platform = *model::find_platform(machines[static_cast<std::size_t>(state.range(0))]);
  const Way& way = way_of(state, 1);
  model::HardwareCpu cpu{host_of(platform.vendor)};
  model::HardwarePort port{cpu};
  MediatedBacking<model::HardwarePort> backing{port, host_of(platform.vendor)};
  VirtualPmu pmu{profile_of(platform.vendor, way.use), backing, policy_of(way)};
  start(pmu, way.use);
  static_cast<void>(pmu.enter());
  port.vm_entry();
  const model::AccessCounts before = cpu.pmu().accesses();
  const model::SwitchCounts calls_before = port.counts();
  std::uint64_t exits = 0;
  for (auto _ : state) {
    port.vm_exit();
    pmu.leave();
    pmu.retire(EmulatedEvent::instruction, [] { return 0; });
    static_cast<void>(pmu.enter());
    port.vm_entry();
    ++exits;
  }
  const double n = static_cast<double>(exits);
  const model::AccessCounts now = cpu.pmu().accesses();
  const double rdmsr = static_cast<double>(now.rdmsr - before.rdmsr) / n;
  const double wrmsr = static_cast<double>(now.wrmsr - before.wrmsr) / n;
  const double rdpmc = static_cast<double>(now.rdpmc - before.rdpmc) / n;
  const double apic = static_cast<double>(port.counts().lvtpc_writes - calls_before.lvtpc_writes) / n;
  const auto cycles = [&](double model::Figure::* bound) {
    return platform.exit_cycles.*bound + rdmsr * platform.rdmsr_cycles.*bound +
           (wrmsr + apic) * platform.wrmsr_cycles.*bound + rdpmc * platform.rdpmc_cycles.*bound;
  };
  state.counters["rdmsr"] = rdmsr;
  state.counters["wrmsr"] = wrmsr;
  state.counters["rdpmc"] = rdpmc;
  state.counters["apic"] = apic;
  state.counters["cycles"] = cycles(&model::Figure::value);
  state.counters["cycles_lo"] = cycles(&model::Figure::lo);
  state.counters["cycles_hi"] = cycles(&model::Figure::hi);
  state.SetLabel(std::string{platform.name} + ": " + way.name);
}
BENCHMARK(cpuid_exit)->ArgsProduct({{0, 1}, benchmark::CreateDenseRange(0, ways.size() - 1, 1)})->Iterations(1000);

// --- One PMI, all in all, against emulated mode ---

constexpr std::uint64_t period = 100'000;

/// A guest's PMI handler: counters off, status read and cleared, the next period, LVTPC unmasked (that exits in every
/// mode), counters on.
template <class Vcpu>
void handle_pmi(Vcpu& vcpu, bool intel) {
  const Msr ctrl = intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl;
  const Msr clear = intel ? Msr::ia32_perf_global_ovf_ctrl : Msr::amd_perf_cntr_global_status_clr;
  vcpu.write(ctrl, 0);
  vcpu.read(intel ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status);
  vcpu.write(clear, 1);
  vcpu.write(intel ? ia32_a_pmc[0] : amd_core_perf_ctr[0], (1ULL << 48) - period);
  vcpu.exit();
  vcpu.write(ctrl, first_gp(intel ? 8 : 6));
}

model::Activity one_period() {
  model::Activity activity;
  activity[model::Event::cycles] = period;
  activity[model::Event::instructions] = period;
  return activity;
}

/// In emulated mode every access exits.
struct EmulatedVcpu {
  explicit EmulatedVcpu(const model::Platform& platform)
      : prices{platform},
        hardware{host_of(platform.vendor)},
        host{hardware, {}, platform},
        backing{host},
        pmu{profile_of(platform.vendor, Use::one), backing} {
    hardware.set_svme(true);
  }

  void enter() { static_cast<void>(pmu.enter()); }
  void leave() {
    pmu.leave();
    ++exits;
  }
  void exit() {
    leave();
    enter();
  }
  void write(Msr msr, std::uint64_t value) {
    leave();
    static_cast<void>(pmu.write_msr(msr, value));
    enter();
  }
  void read(Msr msr) {
    leave();
    benchmark::DoNotOptimize(pmu.read_msr(msr));
    enter();
  }
  void run() {
    host.advance(one_period(), model::Ring::kernel);
    exit();
  }
  [[nodiscard]] double cycles() const {
    return static_cast<double>(prices.core_cycles(host.cost_picoseconds() + prices.exits(exits)));
  }

  model::Prices prices;
  model::HardwarePmu hardware;
  model::PerfModel host;
  EmulatedBacking backing;
  VirtualPmu pmu;
  std::uint64_t exits = 0;
};

/// In mediated mode some do.
struct MediatedVcpu {
  MediatedVcpu(const model::Platform& platform, Policy::Switch mode)
      : prices{platform},
        cpu{host_of(platform.vendor)},
        port{cpu},
        backing{port, host_of(platform.vendor)},
        pmu{profile_of(platform.vendor, Use::one), backing, policy_of({"", mode, Use::one})} {}

  void enter() {
    static_cast<void>(pmu.enter());
    port.vm_entry();
  }
  void leave() {
    port.vm_exit();
    pmu.leave();
    ++exits;
  }
  void exit() {
    leave();
    enter();
  }
  void write(Msr msr, std::uint64_t value) {
    if (passes_through(pmu.profile(), port.pass(), msr)) {
      static_cast<void>(cpu.pmu().write_msr(msr, value));
      return;
    }
    leave();
    static_cast<void>(pmu.write_msr(msr, value));
    enter();
  }
  void read(Msr msr) {
    if (passes_through(pmu.profile(), port.pass(), msr)) {
      benchmark::DoNotOptimize(cpu.pmu().read_msr(msr));
      return;
    }
    leave();
    benchmark::DoNotOptimize(pmu.read_msr(msr));
    enter();
  }
  void run() {
    cpu.run(one_period(), model::Ring::kernel, model::Mode::guest);
    exit();  // the guest's vector
  }
  [[nodiscard]] double cycles() {
    model::AccessCounts accesses = cpu.pmu().accesses();
    accesses.wrmsr += port.counts().lvtpc_writes;
    return static_cast<double>(prices.core_cycles(prices.picoseconds(accesses) + prices.exits(exits)));
  }

  model::Prices prices;
  model::HardwareCpu cpu;
  model::HardwarePort port;
  MediatedBacking<model::HardwarePort> backing;
  VirtualPmu pmu;
  std::uint64_t exits = 0;
};

template <class Vcpu>
void measure_pmi(benchmark::State& state, Vcpu& vcpu, bool intel) {
  start(vcpu.pmu, Use::one);
  static_cast<void>(vcpu.pmu.write_msr(intel ? ia32_a_pmc[0] : amd_core_perf_ctr[0], (1ULL << 48) - period));
  vcpu.enter();
  vcpu.run();
  handle_pmi(vcpu, intel);
  const double cycles = vcpu.cycles();
  const auto exits = static_cast<double>(vcpu.exits);
  for (auto _ : state) {
    vcpu.run();
    handle_pmi(vcpu, intel);
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["exits"] = (static_cast<double>(vcpu.exits) - exits) / n;
  state.counters["cycles"] = (vcpu.cycles() - cycles) / n;
}

/// Time is this model's own; the counters are what counts.
void one_pmi(benchmark::State& state) {
  const model::Platform& platform = *model::find_platform(machines[static_cast<std::size_t>(state.range(0))]);
  const bool intel = platform.vendor == Vendor::intel;
  constexpr std::array<const char*, 4> names{"emulated", "write", "elide", "ownership"};
  const auto way = static_cast<std::size_t>(state.range(1));
  if (way == 0) {
    EmulatedVcpu vcpu{platform};
    measure_pmi(state, vcpu, intel);
  } else {
    MediatedVcpu vcpu{platform, static_cast<Policy::Switch>(way - 1)};
    measure_pmi(state, vcpu, intel);
  }
  state.SetLabel(std::string{platform.name} + ": " + names[way]);
}
BENCHMARK(one_pmi)->ArgsProduct({{0, 1}, {0, 1, 2, 3}})->Iterations(1000);

}  // namespace
}  // namespace vpmu
