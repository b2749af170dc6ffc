// What must hold whoever uses the CPUs, in whatever order, with an NMI between any two accesses: the host counts what
// the host does, each guest counts what it does, and nobody sees a value or a PMI of somebody else's.
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "backing/mediated_world.hpp"

namespace vpmu::test {
namespace {

using model::HardwareCpu;
using model::Mode;
using model::Ring;

constexpr int worlds_a_seed = 60;
constexpr int steps = 400;
constexpr std::size_t vcpus = 3;

/// Something that runs for a few instructions and leaves a mark on any counter that counts.
model::Activity some_activity(Random& random) {
  model::Activity activity;
  for (std::uint64_t& count : activity.count) count = 1 + random.below(50);
  return activity;
}

/// Host perf on one CPU: random counters of its own, which it takes away before it gives the PMU to a guest. What it
/// leaves in the other registers is whatever it was.
class HostPerf final : public HardwareCpu::Observer {
 public:
  HostPerf(Random& random, HardwareCpu& cpu, std::string& trouble) : random_{random}, trouble_{trouble} {
    cpu.set_observer(this);
    for_each_counter(cpu.pmu().profile().counters(), [&](CounterId counter) { program(cpu.pmu(), counter); });
    enabled_ = random.any() & cpu.pmu().profile().counters();
    pebs_ = random.any() & arch::legal_pebs_enable(cpu.pmu().profile());
    restore(cpu.pmu());
  }

  /// The host executes something, in an NMI or otherwise.
  void host_runs(HardwareCpu& cpu) {
    const model::Activity activity = some_activity(random_);
    const auto before = values(cpu.pmu());
    cpu.run(activity, random_.chance(2) ? Ring::kernel : Ring::user, Mode::host);
    if (cpu.has_host_perf()) return;
    if (values(cpu.pmu()) != before) complain("the host was counted while a guest owned the counters");
    if (cpu.pmu().pmi_raised()) complain("the host raised a guest's PMI");
  }
  /// A guest executes something. While the PMU is the host's, nothing counts.
  void guest_runs(HardwareCpu& cpu, const model::Activity& activity, std::uint32_t cpl) {
    const auto before = values(cpu.pmu());
    cpu.run(activity, ring_of(cpl), Mode::guest);
    if (cpu.has_host_perf() && values(cpu.pmu()) != before) complain("a guest was counted by the host's counters");
  }

  void before_access(HardwareCpu& cpu) override {
    if (random_.chance(2)) host_runs(cpu);
  }
  void access(const model::HardwareAccess& /*access*/) override {}

  void host_perf_leaves(HardwareCpu& cpu) override {
    cpu.settle();
    model::HardwarePmu& pmu = cpu.pmu();
    save(pmu);
    pmu.preset(pmu.profile().is_intel() ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl, 0);
    pmu.preset(Msr::ia32_pebs_enable, 0);
    const auto status = pmu.profile().is_intel() ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status;
    // Counters and selectors stay as they are: disabled, and somebody else's.
    if (random_.chance(2)) pmu.preset(status, random_.any() & ~global_status::uncore);
    left_ = values(pmu);
    left_selectors_ = selectors(pmu);
  }

  void host_perf_returns(HardwareCpu& cpu) override {
    model::HardwarePmu& pmu = cpu.pmu();
    const bool intel = pmu.profile().is_intel();
    if (pmu.global_ctrl() != 0) complain("put left counters enabled");
    if (cpu.lvtpc() != LvtpcOwner::host) complain("put left LVTPC to the guest");
    if (intel && pmu.inspect(Msr::ia32_fixed_ctr_ctrl) != 0 && touched_ != 0) complain("put left fixed counters on");
    if ((pmu.inspect(intel ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status) & touched_) != 0) {
      complain("put left a status bit");
    }
    const auto now = values(pmu);
    const auto now_selectors = selectors(pmu);
    for_each_counter(pmu.profile().counters(), [&](CounterId counter) {
      const std::size_t slot = counter.slot();
      const bool guests = (touched_ & counter.mask()) != 0;
      if (now[slot] != (guests ? 0 : left_[slot])) complain("put left a counter's value");
      if (now_selectors[slot] != (guests ? 0 : left_selectors_[slot])) complain("put left a selector");
    });
    restore(pmu);
  }

  /// A guest that has these counters holds the PMU.
  void given_to(CounterSet counters) { touched_ = counters; }

  /// Just before the guest's first instruction.
  void check_entry(HardwareCpu& cpu, bool resident, CounterSet guests) {
    model::HardwarePmu& pmu = cpu.pmu();
    if (cpu.has_host_perf() == resident) complain("two owners, or none");
    if ((cpu.lvtpc() == LvtpcOwner::guest) != resident) complain("LVTPC is not the owner's");
    const CounterSet enabled = pmu.global_ctrl();
    if (resident) {
      if ((enabled & ~guests) != 0) complain("the guest enabled a host counter");
      if ((enabled & pmu.inspect(Msr::ia32_pebs_enable)) != 0) complain("the guest enabled a PEBS counter");
    } else if (pmu.profile().is_intel() && enabled != 0) {
      complain("a guest without counters runs with the host's");
    }
  }

  void complain(const std::string& what) {
    if (trouble_.empty()) trouble_ = what;
  }

 private:
  using Values = std::array<std::uint64_t, max_counters>;

  static Values values(const model::HardwarePmu& pmu) {
    Values values{};
    for_each_counter(pmu.profile().counters(),
                     [&](CounterId counter) { values[counter.slot()] = pmu.counter_value(counter); });
    return values;
  }
  static Msr selector_msr(const model::HardwarePmu& pmu, CounterId counter) {
    return pmu.profile().is_intel() ? ia32_perfevtsel[counter.number()] : amd_core_perf_ctl[counter.number()];
  }
  static Msr value_msr(const model::HardwarePmu& pmu, CounterId counter) {
    if (counter.is_fixed()) return ia32_fixed_ctr[counter.number()];
    return pmu.profile().is_intel() ? ia32_a_pmc[counter.number()] : amd_core_perf_ctr[counter.number()];
  }
  static Values selectors(const model::HardwarePmu& pmu) {
    Values values{};
    for_each_counter(pmu.profile().counters(), [&](CounterId counter) {
      if (!counter.is_fixed()) values[counter.slot()] = pmu.inspect(selector_msr(pmu, counter));
    });
    return values;
  }

  void program(const model::HardwarePmu& pmu, CounterId counter) {
    const bool intel = pmu.profile().is_intel();
    const std::uint64_t code = arch::event_code(
        pmu.profile().vendor, random_.chance(2) ? arch::EventKind::instructions : arch::EventKind::cycles);
    std::uint64_t& selector = selectors_[counter.slot()];
    selector = random_.chance(3) ? 0 : code | both_rings | evtsel::enable | (random_.chance(2) ? evtsel::interrupt : 0);
    // The host excludes its guests: by GLOBAL_CTRL at the VM entry (Intel), or with the bit for it.
    if (!intel && selector != 0) selector |= evtsel::host_only;
    values_[counter.slot()] = random_.any() & width48;
    if (counter.is_fixed()) fixed_ctrl_ |= (random_.any() & 0xB) << (4 * counter.number());
  }
  void save(const model::HardwarePmu& pmu) { values_ = values(pmu); }
  void restore(model::HardwarePmu& pmu) {
    const bool intel = pmu.profile().is_intel();
    for_each_counter(pmu.profile().counters(), [&](CounterId counter) {
      pmu.preset(value_msr(pmu, counter), values_[counter.slot()]);
      if (!counter.is_fixed()) pmu.preset(selector_msr(pmu, counter), selectors_[counter.slot()]);
    });
    pmu.preset(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl_);
    pmu.preset(Msr::ia32_pebs_enable, pebs_);
    pmu.preset(intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl, enabled_);
  }

  Random& random_;
  std::string& trouble_;
  Values values_{};
  Values selectors_{};
  std::uint64_t fixed_ctrl_ = 0;
  std::uint64_t enabled_ = 0;
  std::uint64_t pebs_ = 0;
  CounterSet touched_ = 0;
  Values left_{};
  Values left_selectors_{};
};

/// A vCPU, and the same guest in emulated mode, which nobody can disturb.
struct Guest {
  Guest(Random& random, HardwareCpu& cpu, const Profile& host, const Profile& profile)
      : twin{std::make_unique<World>(profile, switching(Policy::Switch::elide))} {
    const Policy::Switch modes[] = {Policy::Switch::write, Policy::Switch::elide, Policy::Switch::ownership,
                                    Policy::Switch::ownership};
    vcpu = std::make_unique<MediatedVcpu>(cpu, host, profile, switching(random.one_of(modes)),
                                          random.chance(4) ? Trust::verified : Trust::remembered);
    operations = random_operations(random, profile);
  }

  std::unique_ptr<World> twin;
  std::unique_ptr<MediatedVcpu> vcpu;
  std::vector<Operation> operations;
  EventFilter filter;
  EventFilter twin_filter;
  std::size_t next = 0;
};

/// Two CPUs, a host on each, and a scheduler that keeps the promises of `Hardware`.
class Machine {
 public:
  Machine(Random& random, const Profile& host)
      : random_{random},
        cpus_{HardwareCpu{host}, HardwareCpu{host}},
        perf_{HostPerf{random, cpus_[0], trouble_}, HostPerf{random, cpus_[1], trouble_}} {
    for (HardwareCpu& cpu : cpus_) cpu.set_pmi_latency(static_cast<std::uint32_t>(random.below(3)));
    for (std::size_t i = 0; i < vcpus; ++i) {
      Profile guest = profile_named(host.is_intel() ? random.one_of(intel_guests) : random.one_of(amd_guests));
      if (guest.present() && random.chance(2)) {
        guest.gp_counters = static_cast<std::uint8_t>(1 + random.below(guest.gp_counters));
      }
      guests_.emplace_back(random, cpus_[0], host, guest);
    }
  }

  /// What went wrong, if anything.
  const std::string& step() {
    const std::size_t cpu = random_.below(2);
    if (random_.chance(8)) {
      // Host perf wants its counters, or a task reads them.
      take_back(cpu);
      if (!cpus_[cpu].has_host_perf()) perf_[cpu].complain("the host did not get its PMU back");
      perf_[cpu].host_runs(cpus_[cpu]);
    } else {
      run_on(cpu, random_.below(vcpus));
    }
    for (Guest& guest : guests_) {
      if (guest.vcpu->port.faults() != 0) perf_[cpu].complain("an access that is #GP");
      if (guest.vcpu->backing.broken_promises() != 0) perf_[cpu].complain("a broken promise");
    }
    for (HardwareCpu& each : cpus_) {
      if (each.dropped_pmis() != 0) perf_[cpu].complain("a PMI was dropped by a masked LVTPC");
    }
    return trouble_;
  }

 private:
  static constexpr const char* intel_guests[] = {"intel-v1", "intel-v2", "intel-v4", "intel-v5", "intel-none"};
  static constexpr const char* amd_guests[] = {"amd-k7", "amd-core", "amd-v2", "amd-v2", "amd-none"};
  static constexpr std::size_t nobody = vcpus;

  void take_back(std::size_t cpu) {
    if (current_[cpu] == nobody) return;
    guests_[current_[cpu]].vcpu->pmu.sched_out();
    current_[cpu] = nobody;
  }

  void run_on(std::size_t cpu, std::size_t who) {
    if (current_[cpu] != who) {
      take_back(cpu);
      if (current_[1 - cpu] == who) take_back(1 - cpu);
      current_[cpu] = who;
      guests_[who].vcpu->port.migrate(cpus_[cpu], static_cast<std::uint32_t>(cpu));
    }
    Guest& guest = guests_[who];
    MediatedVcpu& vcpu = *guest.vcpu;
    Operation operation = guest.operations[guest.next++ % guest.operations.size()];
    operation.value = plain_value(vcpu.pmu.profile(), operation.msr, operation.value);
    perf_[cpu].given_to(vcpu.pmu.profile().counters());
    if (operation.kind == Operation::Kind::run) {
      vcpu.enter();
      perf_[cpu].check_entry(cpus_[cpu], vcpu.backing.resident(), vcpu.pmu.profile().counters());
      perf_[cpu].guest_runs(cpus_[cpu], activity_of(operation.value), operation.cpl);
      const std::uint64_t host_pmis = cpus_[cpu].host_pmis();
      vcpu.leave();
      if (cpus_[cpu].host_pmis() != host_pmis) perf_[cpu].complain("a guest's PMI went to the host");
      guest.twin->run(operation.value, operation.cpl);
      expect_same(cpu, {.pmis = vcpu.pmis}, {.pmis = guest.twin->pmis}, "run");
    } else {
      const bool in_guest = is_access(operation) && random_.chance(2);
      const Seen seen = play_mediated(vcpu, guest.filter, operation, in_guest);
      expect_same(cpu, seen, play_emulated(*guest.twin, guest.twin_filter, operation, in_guest), "access");
    }
    if (random_.chance(2)) perf_[cpu].host_runs(cpus_[cpu]);
  }

  void expect_same(std::size_t cpu, const Seen& seen, const Seen& expected, const char* what) {
    if (!(seen == expected)) {
      perf_[cpu].complain(std::string{what} + ": the guest does not see what it sees alone: value " +
                          std::to_string(seen.value) + " for " + std::to_string(expected.value) + ", PMIs " +
                          std::to_string(seen.pmis) + " for " + std::to_string(expected.pmis));
    }
  }

  Random& random_;
  std::string trouble_;
  std::array<HardwareCpu, 2> cpus_;
  std::array<HostPerf, 2> perf_;
  std::vector<Guest> guests_;
  std::array<std::size_t, 2> current_{nobody, nobody};
};

Profile random_host(Random& random) {
  Profile host = model::svm_host(profile_named(random.chance(2) ? "intel-v5" : "amd-v2"));
  if (host.is_intel() && random.chance(2)) host.perf_capabilities |= 3U << 8;  // PEBS, which stays the host's
  if (random.chance(2)) host.gp_counters = static_cast<std::uint8_t>(host.gp_counters + random.below(3));
  if (host.is_intel() && random.chance(3)) host.fixed_mask = 0b1111;
  return host;
}

TEST(MediatedSafety, NobodyCountsSeesOrInterruptsForSomebodyElse) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int world = 0; world < worlds_a_seed; ++world) {
      Machine machine{random, random_host(random)};
      for (int step = 0; step < steps; ++step) {
        ASSERT_EQ(machine.step(), "") << again(seed) << ", world " << world << ", step " << step;
      }
    }
  }
}

}  // namespace
}  // namespace vpmu::test
