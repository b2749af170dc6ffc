// Port: the performance-monitoring registers of the physical CPU, as mediated mode needs them.
#pragma once

#include <concepts>
#include <cstdint>

#include "vpmu/counter.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu {

/// Whose interrupts a CPU's performance-monitoring interrupts are: what LVTPC holds.
enum class LvtpcOwner : std::uint8_t { host, guest };

/// What a guest may access without a VM exit. Everything else exits: event selects and FIXED_CTR_CTRL always, and every
/// register that the guest's profile lacks.
struct PassThrough {
  CounterSet counters = 0;  // the MSRs of these counters
  bool global = false;      // GLOBAL_CTRL, GLOBAL_STATUS, and the register that clears it; not the one that sets it
  bool rdpmc = false;
  friend constexpr bool operator==(const PassThrough&, const PassThrough&) = default;
};

/// Whether a guest of this profile reaches the register itself: one bit of a VMM's MSR bitmap.
bool passes_through(const Profile& guest, const PassThrough& pass, Msr msr);

/// The CPU on which the calling thread runs, as a hypervisor provides it. One object serves one vCPU, on whatever CPU
/// that runs.
///
/// Every call comes with interrupts off and without migration. Between leave_host_perf() and return_host_perf(), the
/// host keeps its promises:
/// - nobody else touches the CPU's PMU, the host's NMI handlers included;
/// - none of the host's counters is enabled and none of its PMIs on its way; IA32_PEBS_ENABLE is 0;
/// - a VM entry loads GLOBAL_CTRL, a VM exit saves it and loads 0 (Intel);
/// - the handler of the guest's vector only notes that it came, and ends the interrupt.
///
/// For `switch=ownership`, between VM exits too: the hypervisor calls VirtualPmu::sched_out() on the CPU before
/// anything else can use its PMU or read it: host perf that enables a counter, the end of the time slice, a return to
/// user mode with CR4.PCE set, CPU offline, suspend, kexec.
template <class H>
concept Hardware = requires(H hardware, Msr msr, std::uint64_t value, std::uint32_t number) {
  { hardware.rdmsr(msr) } -> std::same_as<std::uint64_t>;
  { hardware.wrmsr(msr, value) };
  { hardware.rdpmc(number) } -> std::same_as<std::uint64_t>;

  /// The guest's GLOBAL_CTRL. Intel: the VM entry's field, which the VM exit saved. AMD: the register.
  { hardware.entry_global_ctrl() } -> std::same_as<std::uint64_t>;
  { hardware.set_entry_global_ctrl(value) };
  /// Intel: the host's IA32_DEBUGCTL, and the PMU's bits of the one that the guest runs with.
  { hardware.host_debugctl() } -> std::same_as<std::uint64_t>;
  { hardware.set_entry_debugctl(value) };

  /// LVTPC := the guest's vector, or the host's NMI, not masked.
  { hardware.set_lvtpc(LvtpcOwner{}) };
  /// Whether the guest's vector came on this CPU, or waits in its local APIC, since the last call. Costs no access
  /// where nothing overflowed.
  { hardware.take_guest_pmi() } -> std::same_as<bool>;

  /// Host perf gives the PMU of this CPU away, and takes it back.
  { hardware.leave_host_perf() };
  { hardware.return_host_perf() };

  { hardware.current_cpu() } -> std::same_as<std::uint32_t>;
  /// A number that is another one after each leave_host_perf() and return_host_perf() on that CPU.
  { hardware.owner_epoch(number) } -> std::same_as<std::uint64_t>;

  { hardware.set_intercepts(PassThrough{}) };
};

}  // namespace vpmu
