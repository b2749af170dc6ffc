#include "arch/registers.hpp"
#include "vpmu/hardware.hpp"
#include "vpmu/mediated_backing.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t width_mask(std::uint8_t width) { return width == 0 ? 0 : ~std::uint64_t{0} >> (64 - width); }

constexpr std::uint64_t perf_metrics = 1ULL << 15;  // of IA32_PERF_CAPABILITIES: GLOBAL_CTRL and its kin have bit 48

bool wide_as_the_hosts(const Profile& host, const Profile& guest) {
  return guest.gp_width == host.gp_width && (guest.fixed_mask == 0 || guest.fixed_width == host.fixed_width);
}

/// Whether the guest's GLOBAL_* registers have the bits that the hardware's have, and no others.
bool same_global_registers(const Profile& host, const Profile& guest) {
  return guest.has_global_ctrl() && guest.counters() == host.counters() &&
         (!host.pdcm || (host.perf_capabilities & perf_metrics) == 0);
}

}  // namespace

const char* why_not_mediated(const Profile& host, const Profile& guest) {
  if (host.vendor != guest.vendor) return "the guest's PMU is another vendor's";
  // Loading a status takes a register that sets its bits: IA32_PERF_GLOBAL_STATUS_SET, PerfCntrGlobalStatusSet.
  if (host.is_intel() && host.version < 4) return "the host's perfmon is older than version 4";
  if (host.is_intel() && !host.full_width_writes()) return "the host can't write its counters whole";
  if (!host.is_intel() && host.version < 2) return "the host has no PerfMonV2";
  if ((guest.counters() & ~host.counters()) != 0) return "the guest has a counter that the host lacks";
  if (guest.gp_width > host.gp_width) return "the guest's counters are wider than the host's";
  if (guest.fixed_mask != 0 && guest.fixed_width > host.fixed_width) {
    return "the guest's fixed counters are wider than the host's";
  }
  if (guest.pebs()) return "PEBS stays the host's";
  return nullptr;
}

MediatedPlan plan_mediated(const Profile& host, const Profile& guest) {
  MediatedPlan plan;
  plan.intel = host.is_intel();
  if (why_not_mediated(host, guest) != nullptr) return plan;
  plan.set = guest.counters();
  for_each_counter(plan.set, [&](CounterId counter) {
    const std::uint32_t n = counter.number();
    constexpr std::uint32_t fixed_type = 0x40000000;  // RDPMC's ECX, SDM volume 2
    if (counter.is_fixed()) {
      plan.counters[plan.size++] = {counter, ia32_fixed_ctr[n], Msr{}, fixed_type | n};
      return;
    }
    plan.counters[plan.size++] = plan.intel
                                     ? MediatedPlan::Counter{counter, ia32_a_pmc[n], ia32_perfevtsel[n], n}
                                     : MediatedPlan::Counter{counter, amd_core_perf_ctr[n], amd_core_perf_ctl[n], n};
    ++plan.gp;
  });
  plan.global_ctrl = plan.intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl;
  plan.status = plan.intel ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status;
  plan.status_clear = plan.intel ? Msr::ia32_perf_global_ovf_ctrl : Msr::amd_perf_cntr_global_status_clr;
  plan.status_set = plan.intel ? Msr::ia32_perf_global_status_set : Msr::amd_perf_cntr_global_status_set;
  plan.global_ctrl_is_the_guests = guest.has_global_ctrl();
  plan.status_is_the_guests = guest.has_global_ctrl();
  plan.status_bits = arch::legal_global_status(guest);
  plan.clearable = plan.intel ? arch::legal_global_ovf_ctrl(host) : host.counters();
  plan.settable = plan.intel ? arch::legal_global_status_set(host) : host.counters();
  plan.gp_fill = width_mask(host.gp_width) & ~width_mask(guest.gp_width);
  if (guest.fixed_mask != 0) plan.fixed_fill = width_mask(host.fixed_width) & ~width_mask(guest.fixed_width);

  const bool wide = wide_as_the_hosts(host, guest);
  plan.pass.counters = wide ? plan.set : 0;
  plan.pass.global = same_global_registers(host, guest);
  plan.pass.rdpmc = wide && guest.counters() == host.counters();
  return plan;
}

bool passes_through(const Profile& guest, const PassThrough& pass, Msr msr) {
  const arch::Register reg = arch::find_register(msr);
  if (!arch::enumerates(guest, reg)) return false;
  switch (reg.kind) {
    case arch::RegisterKind::pmc:
    case arch::RegisterKind::a_pmc:
    case arch::RegisterKind::k7_perf_ctr:
    case arch::RegisterKind::core_perf_ctr:
      return (pass.counters & CounterId::gp(reg.number).mask()) != 0;
    case arch::RegisterKind::fixed_ctr:
      return (pass.counters & CounterId::fixed(reg.number).mask()) != 0;
    case arch::RegisterKind::global_ctrl:
    case arch::RegisterKind::global_status:
    case arch::RegisterKind::global_ovf_ctrl:
    case arch::RegisterKind::amd_global_ctl:
    case arch::RegisterKind::amd_global_status:
    case arch::RegisterKind::amd_global_status_clr:
      return pass.global;
    default:
      return false;
  }
}

}  // namespace vpmu
