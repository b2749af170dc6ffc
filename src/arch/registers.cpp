#include "arch/registers.hpp"

#include "vpmu/event_select.hpp"

namespace vpmu::arch {
namespace {

constexpr std::uint64_t status_bits(const Profile& profile) {
  return profile.counters() | global_status::buffer_overflow | global_status::condition_changed |
         (profile.version >= 4 ? global_status::v4 : 0);
}

/// The bits that a write to a register of this kind may set, as far as they are the same for all of its kind.
std::uint64_t legal_bits(const Profile& profile, RegisterKind kind) {
  switch (kind) {
    case RegisterKind::a_pmc:
      return profile.gp_width == 0 ? 0 : ~std::uint64_t{0} >> (64 - profile.gp_width);
    case RegisterKind::perfevtsel:
      return legal_selector(profile, CounterId::gp(2));
    case RegisterKind::fixed_ctr_ctrl:
      return legal_fixed_ctrl(profile);
    case RegisterKind::global_status:
      return legal_global_status(profile);
    case RegisterKind::global_ctrl:
      return legal_global_ctrl(profile);
    case RegisterKind::global_ovf_ctrl:
      return legal_global_ovf_ctrl(profile);
    case RegisterKind::global_status_set:
      return legal_global_status_set(profile);
    case RegisterKind::global_inuse:
      return 0;
    case RegisterKind::pebs_enable:
      return legal_pebs_enable(profile);
    case RegisterKind::pebs_data_cfg:
      return legal_pebs_data_cfg();
    case RegisterKind::debugctl:
      return legal_debugctl(profile);
    default:
      return ~std::uint64_t{0};
  }
}

}  // namespace

bool enumerates(const Profile& profile, Register reg) {
  if (reg.vendor() != profile.vendor) return false;
  switch (reg.kind) {
    case RegisterKind::none:
      return false;
    case RegisterKind::pmc:
    case RegisterKind::perfevtsel:
      return profile.present() && reg.number < profile.gp_counters;
    case RegisterKind::a_pmc:
      return profile.present() && reg.number < profile.gp_counters && profile.full_width_writes();
    case RegisterKind::fixed_ctr:
      return profile.version >= 2 && (profile.fixed_mask >> reg.number & 1) != 0;
    case RegisterKind::fixed_ctr_ctrl:
    case RegisterKind::global_status:
    case RegisterKind::global_ctrl:
    case RegisterKind::global_ovf_ctrl:
    case RegisterKind::debugctl:
      return profile.version >= 2;
    case RegisterKind::global_status_set:
    case RegisterKind::global_inuse:
      return profile.version >= 4;
    case RegisterKind::pebs_enable:
      return profile.pebs();
    case RegisterKind::pebs_data_cfg:
      return profile.pebs_baseline();
    case RegisterKind::ds_area:
      return profile.ds;
    case RegisterKind::perf_capabilities:
      return profile.pdcm;
    case RegisterKind::misc_enable:
      return true;
    case RegisterKind::k7_perf_ctl:
    case RegisterKind::k7_perf_ctr:
      return profile.present() && reg.number < profile.gp_counters;
    case RegisterKind::core_perf_ctl:
    case RegisterKind::core_perf_ctr:
      return profile.present() && profile.core_ext && reg.number < profile.gp_counters;
    case RegisterKind::amd_global_status:
    case RegisterKind::amd_global_ctl:
    case RegisterKind::amd_global_status_clr:
    case RegisterKind::amd_global_status_set:
      return profile.version >= 2;
  }
  return false;
}

bool reads_zero(const Profile& profile, Register reg) {
  return profile.vendor == Vendor::amd && !profile.present() &&
         (reg.kind == RegisterKind::k7_perf_ctl || reg.kind == RegisterKind::k7_perf_ctr);
}

bool in_save_list(const Profile& profile, Register reg) {
  const auto& list = profile.save_list;
  switch (reg.kind) {
    case RegisterKind::perf_capabilities:
      return true;  // both vendors' lists hold it
    case RegisterKind::pmc:
    case RegisterKind::perfevtsel:
      return profile.is_intel() && reg.number < list.gp;
    case RegisterKind::fixed_ctr:
      return profile.is_intel() && reg.number < list.fixed;
    case RegisterKind::fixed_ctr_ctrl:
    case RegisterKind::global_status:
    case RegisterKind::global_ctrl:
    case RegisterKind::pebs_enable:
    case RegisterKind::pebs_data_cfg:
    case RegisterKind::ds_area:
      return profile.is_intel();
    case RegisterKind::core_perf_ctl:
    case RegisterKind::core_perf_ctr:
      return !profile.is_intel() && list.amd_core && !profile.core_ext && reg.number < 6;
    case RegisterKind::amd_global_status:
    case RegisterKind::amd_global_ctl:
    case RegisterKind::amd_global_status_clr:
    case RegisterKind::amd_global_status_set:
      return !profile.is_intel() && list.amd_global;
    default:
      return false;
  }
}

std::uint64_t legal_selector(const Profile& profile, CounterId counter) {
  if (profile.is_intel()) {
    std::uint64_t legal = 0xFFFFFFFF & ~evtsel::any_thread;
    if (profile.tsx) legal |= evtsel::in_tx | (counter == CounterId::gp(2) ? evtsel::in_tx_cp : 0);
    if (profile.pebs_baseline()) legal |= evtsel::adaptive_record;
    return legal;
  }
  constexpr std::uint64_t always = (evtsel::event_high | 0xFFFFFFFF) & ~(evtsel::any_thread | evtsel::pin_control);
  return always | (profile.nested_virtualization ? evtsel::guest_only | evtsel::host_only : 0);
}

std::uint64_t legal_fixed_ctrl(const Profile& profile) {
  std::uint64_t legal = 0;
  for (std::uint32_t n = 0; n < max_fixed_counters; ++n) {
    if ((profile.fixed_mask >> n & 1) != 0) {
      legal |= (fixed_ctrl::kernel | fixed_ctrl::user | fixed_ctrl::interrupt) << (4 * n);
    }
  }
  return legal;
}

std::uint64_t legal_global_ctrl(const Profile& profile) { return profile.counters(); }

std::uint64_t legal_global_status(const Profile& profile) {
  return profile.is_intel() ? status_bits(profile) : profile.counters();
}

std::uint64_t legal_global_ovf_ctrl(const Profile& profile) { return status_bits(profile); }

std::uint64_t legal_global_status_set(const Profile& profile) {
  return status_bits(profile) & ~global_status::condition_changed;
}

std::uint64_t legal_debugctl(const Profile& profile) {
  return debugctl::branch_trap | debugctl::freeze_lbrs_on_pmi | debugctl::freeze_perfmon_on_pmi |
         (profile.freeze_while_smm() ? debugctl::freeze_while_smm : 0);
}

std::uint64_t legal_pebs_enable(const Profile& profile) {
  return first_gp(profile.gp_counters) | (profile.pebs_baseline() ? CounterSet{profile.fixed_mask} << fixed_shift : 0);
}

std::uint64_t legal_pebs_data_cfg() {
  // Memory info, GPRs, XMMs, LBRs, and the number of LBR entries (SDM volume 3, figure "MSR_PEBS_DATA_CFG").
  return 0xFF00000F;
}

std::uint64_t misc_enable_bits(const Profile& profile) {
  return (profile.present() ? misc_enable::perfmon_available : 0) | misc_enable::bts_unavailable |
         (profile.pebs() ? 0 : misc_enable::pebs_unavailable);
}

std::uint64_t reset_global_ctrl(const Profile& profile) {
  return profile.has_global_ctrl() ? first_gp(profile.gp_counters) : 0;
}

RegisterRules rules_of(const Profile& profile) {
  RegisterRules rules;
  for (const RegisterRow& row : register_rows) {
    RegisterRules::Rule& rule = rules.of(row.kind);
    for (std::uint32_t n = 0; n < row.msrs.count; ++n) {
      const bool exists = enumerates(profile, {row.kind, static_cast<std::uint8_t>(n)});
      rule.numbers = static_cast<std::uint16_t>(rule.numbers | std::uint32_t{exists} << n);
    }
    rule.legal = legal_bits(profile, row.kind);
  }
  return rules;
}

}  // namespace vpmu::arch

namespace vpmu {

RegisterName register_name(Msr msr) {
  const arch::Register reg = arch::find_register(msr);
  RegisterName name{"?"};
  for (const arch::RegisterRow& row : arch::register_rows) {
    if (row.kind != reg.kind) continue;
    std::size_t length = 0;
    for (const char* from = row.name; *from != '\0' && length + 3 < sizeof name.text; ++from) {
      if (*from != 'n' || row.msrs.count == 1) {
        name.text[length++] = *from;
        continue;
      }
      if (reg.number >= 10) name.text[length++] = static_cast<char>('0' + reg.number / 10);
      name.text[length++] = static_cast<char>('0' + reg.number % 10);
    }
    name.text[length] = '\0';
  }
  return name;
}

}  // namespace vpmu
