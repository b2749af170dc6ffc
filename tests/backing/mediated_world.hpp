// A vCPU in mediated mode on a modelled CPU, and the guest in it.
#pragma once

#include <cstdint>
#include <utility>

#include "host/model/hardware_port.hpp"
#include "pmu/random_guest.hpp"
#include "vpmu/mediated_backing.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::test {

/// A host that can give this guest its counters: the same ones and no more, so that as much as possible passes through.
inline Profile like_host(const Profile& guest) {
  Profile host = model::host_for(guest);
  if (!guest.present()) return host;
  host.gp_counters = guest.gp_counters;
  host.fixed_mask = guest.version >= 2 ? guest.fixed_mask : host.fixed_mask;
  return host;
}

/// What World::run() makes happen.
inline model::Activity activity_of(std::uint64_t n) {
  model::Activity activity;
  activity[model::Event::instructions] = n;
  activity[model::Event::cycles] = 2 * n;
  activity[model::Event::branches] = n / 5;
  return activity;
}

inline model::Ring ring_of(std::uint32_t cpl) { return cpl == 0 ? model::Ring::kernel : model::Ring::user; }

/// The vCPU, its hypervisor, and whatever the guest does.
struct MediatedVcpu {
  MediatedVcpu(model::HardwareCpu& cpu, const Profile& host, const Profile& guest, const Policy& policy,
               Trust trust = Trust::remembered)
      : port{cpu}, backing{port, host, trust}, pmu{guest, backing, policy} {}

  void enter() {
    pmis += pmu.enter() == EntryAction::inject_pmi ? 1 : 0;
    port.vm_entry();
  }
  void leave() {
    port.vm_exit();
    pmu.leave();
    port.cpu().settle();
  }
  void entry() {
    enter();
    leave();
  }
  /// In the guest. Its PMI's vector ends the stay, and another one begins.
  void execute(const model::Activity& activity, std::uint32_t cpl) {
    port.cpu().run(activity, ring_of(cpl), model::Mode::guest);
    if (!port.cpu().guest_vector_waits()) return;
    leave();
    enter();
  }
  void run(std::uint64_t n, std::uint32_t cpl = 0) {
    enter();
    port.cpu().run(activity_of(n), ring_of(cpl), model::Mode::guest);
    leave();
  }
  void emulate(std::uint64_t n = 1, std::uint32_t cpl = 0) {
    for (; n > 0; --n) pmu.retire(EmulatedEvent::instruction, [cpl] { return cpl; });
  }

  // The guest, between enter() and leave(): what does not pass through exits.

  template <class Direct, class Exiting>
  auto access(bool passes, Direct&& direct, Exiting&& exiting) {
    if (passes) {
      ++passed;
      return direct();
    }
    leave();
    auto result = exiting();
    enter();
    return result;
  }
  Result<std::uint64_t, Fault> guest_read(Msr msr) {
    return access(
        passes_through(pmu.profile(), port.pass(), msr), [&] { return port.cpu().pmu().read_msr(msr); },
        [&] { return pmu.read_msr(msr); });
  }
  Status<Fault> guest_write(Msr msr, std::uint64_t value) {
    return access(
        passes_through(pmu.profile(), port.pass(), msr), [&] { return port.cpu().pmu().write_msr(msr, value); },
        [&] { return pmu.write_msr(msr, value); });
  }
  Result<std::uint64_t, Fault> guest_read_pmc(std::uint32_t ecx) {
    return access(port.pass().rdpmc, [&] { return port.cpu().pmu().read_pmc(ecx); }, [&] { return pmu.read_pmc(ecx); });
  }

  std::uint64_t read(Msr msr) { return pmu.read_msr(msr).value(); }
  bool write(Msr msr, std::uint64_t value) { return pmu.write_msr(msr, value).ok(); }
  [[nodiscard]] const model::AccessCounts& accesses() { return port.cpu().pmu().accesses(); }

  model::HardwarePort port;
  MediatedBacking<model::HardwarePort> backing;
  VirtualPmu pmu;
  std::uint64_t pmis = 0;
  std::uint64_t passed = 0;  // accesses without a VM exit
};

/// One on a CPU of its own.
struct MediatedWorld {
  MediatedWorld(const Profile& host, const Profile& guest, const Policy& policy = Policy{},
                Trust trust = Trust::remembered)
      : cpu{host}, vcpu{cpu, host, guest, policy, trust} {}
  explicit MediatedWorld(const char* guest, const Policy& policy = Policy{}, Trust trust = Trust::remembered)
      : MediatedWorld{like_host(profile_named(guest)), profile_named(guest), policy, trust} {}

  model::HardwareCpu cpu;
  MediatedVcpu vcpu;
};

inline Policy switching(Policy::Switch mode) {
  Policy policy;
  policy.mode_switch = mode;
  policy.fold = 0;
  return policy;
}

// --- Random guests ---

/// What a model of events can tell apart in both modes: no edges, counter masks or transactions; and no bit of a newer
/// perfmon's status, which hardware accepts from a guest that it passes through.
inline std::uint64_t plain_value(const Profile& guest, Msr msr, std::uint64_t value) {
  constexpr std::uint64_t flags =
      evtsel::edge | evtsel::invert | evtsel::counter_mask | evtsel::in_tx | evtsel::in_tx_cp | evtsel::adaptive_record;
  switch (arch::find_register(msr).kind) {
    case arch::RegisterKind::perfevtsel:
    case arch::RegisterKind::k7_perf_ctl:
    case arch::RegisterKind::core_perf_ctl:
      return value & ~flags;
    case arch::RegisterKind::global_ovf_ctrl:
      return guest.version < 4 ? value & ~global_status::v4 : value;
    default:
      return value;
  }
}

/// The same operation in emulated mode, where an access in the guest stands between two entries.
inline Seen play_emulated(World& world, EventFilter& filter, const Operation& operation, bool in_guest) {
  if (!in_guest) return play(world, filter, operation);
  world.entry();
  Seen seen = play(world, filter, operation);
  world.entry();
  seen.pmis = world.pmis;
  return seen;
}

inline bool is_access(const Operation& operation) {
  return operation.kind == Operation::Kind::write || operation.kind == Operation::Kind::read ||
         operation.kind == Operation::Kind::rdpmc;
}

/// `in_guest`: an access is made by the guest as it runs, and may pass through; else by its VMM, or trapped.
inline Seen play_mediated(MediatedVcpu& vcpu, EventFilter& filter, const Operation& operation, bool in_guest) {
  if (!in_guest) return play(vcpu, filter, operation);
  Seen seen;
  const auto note = [&](auto result) {
    seen.fault = !result.ok();
    if (result.ok()) seen.value = result.value();
  };
  const std::uint64_t passed = vcpu.passed;
  vcpu.enter();
  if (operation.kind == Operation::Kind::write) {
    seen.fault = !vcpu.guest_write(operation.msr, operation.value).ok();
  } else if (operation.kind == Operation::Kind::read) {
    note(vcpu.guest_read(operation.msr));
  } else {
    note(vcpu.guest_read_pmc(static_cast<std::uint32_t>(operation.value)));
  }
  vcpu.leave();
  if (vcpu.passed != passed) vcpu.entry();
  seen.pmis = vcpu.pmis;
  return seen;
}

}  // namespace vpmu::test
