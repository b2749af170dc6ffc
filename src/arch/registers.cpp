#include "arch/registers.hpp"

#include <array>

#include "vpmu/event_select.hpp"

namespace vpmu::arch {
namespace {

constexpr MsrArray one(Msr msr) { return {index_of(msr), 1, 1}; }

constexpr std::array<RegisterRow, 24> rows{{
    {Vendor::intel, RegisterKind::pmc, ia32_pmc, "IA32_PMCn", "CPUID.0AH:EAX[15:8] > n"},
    {Vendor::intel, RegisterKind::perfevtsel, ia32_perfevtsel, "IA32_PERFEVTSELn", "CPUID.0AH:EAX[15:8] > n"},
    {Vendor::intel, RegisterKind::a_pmc, ia32_a_pmc, "IA32_A_PMCn",
     "CPUID.0AH:EAX[15:8] > n, IA32_PERF_CAPABILITIES[13]"},
    {Vendor::intel, RegisterKind::fixed_ctr, ia32_fixed_ctr, "IA32_FIXED_CTRn",
     "perfmon v2, CPUID.0AH:EDX[4:0] > n; v5: or ECX[n]"},
    {Vendor::intel, RegisterKind::fixed_ctr_ctrl, one(Msr::ia32_fixed_ctr_ctrl), "IA32_FIXED_CTR_CTRL", "perfmon v2"},
    {Vendor::intel, RegisterKind::global_status, one(Msr::ia32_perf_global_status), "IA32_PERF_GLOBAL_STATUS",
     "perfmon v2"},
    {Vendor::intel, RegisterKind::global_ctrl, one(Msr::ia32_perf_global_ctrl), "IA32_PERF_GLOBAL_CTRL", "perfmon v2"},
    {Vendor::intel, RegisterKind::global_ovf_ctrl, one(Msr::ia32_perf_global_ovf_ctrl), "IA32_PERF_GLOBAL_OVF_CTRL",
     "perfmon v2"},
    {Vendor::intel, RegisterKind::global_status_set, one(Msr::ia32_perf_global_status_set),
     "IA32_PERF_GLOBAL_STATUS_SET", "perfmon v4"},
    {Vendor::intel, RegisterKind::global_inuse, one(Msr::ia32_perf_global_inuse), "IA32_PERF_GLOBAL_INUSE",
     "perfmon v4"},
    {Vendor::intel, RegisterKind::pebs_enable, one(Msr::ia32_pebs_enable), "IA32_PEBS_ENABLE",
     "IA32_PERF_CAPABILITIES[11:8] != 0"},
    {Vendor::intel, RegisterKind::pebs_data_cfg, one(Msr::msr_pebs_data_cfg), "MSR_PEBS_DATA_CFG",
     "IA32_PERF_CAPABILITIES[11:8] != 0 and [14]"},
    {Vendor::intel, RegisterKind::ds_area, one(Msr::ia32_ds_area), "IA32_DS_AREA", "CPUID.1:EDX[21]"},
    {Vendor::intel, RegisterKind::perf_capabilities, one(Msr::ia32_perf_capabilities), "IA32_PERF_CAPABILITIES",
     "CPUID.1:ECX[15]"},
    {Vendor::intel, RegisterKind::debugctl, one(Msr::ia32_debugctl), "IA32_DEBUGCTL", "perfmon v2 (freeze bits)"},
    {Vendor::intel, RegisterKind::misc_enable, one(Msr::ia32_misc_enable), "IA32_MISC_ENABLE", "every processor"},
    {Vendor::amd, RegisterKind::k7_perf_ctl, amd_k7_perf_ctl, "PERF_CTLn (K7)", "every processor"},
    {Vendor::amd, RegisterKind::k7_perf_ctr, amd_k7_perf_ctr, "PERF_CTRn (K7)", "every processor"},
    {Vendor::amd, RegisterKind::core_perf_ctl, amd_core_perf_ctl, "PERF_CTLn",
     "CPUID.80000001H:ECX[23] and 6 counters, or CPUID.80000022H:EBX[3:0] > n"},
    {Vendor::amd, RegisterKind::core_perf_ctr, amd_core_perf_ctr, "PERF_CTRn",
     "CPUID.80000001H:ECX[23] and 6 counters, or CPUID.80000022H:EBX[3:0] > n"},
    {Vendor::amd, RegisterKind::amd_global_status, one(Msr::amd_perf_cntr_global_status), "PerfCntrGlobalStatus",
     "CPUID.80000022H:EAX[0]"},
    {Vendor::amd, RegisterKind::amd_global_ctl, one(Msr::amd_perf_cntr_global_ctl), "PerfCntrGlobalCtl",
     "CPUID.80000022H:EAX[0]"},
    {Vendor::amd, RegisterKind::amd_global_status_clr, one(Msr::amd_perf_cntr_global_status_clr),
     "PerfCntrGlobalStatusClr", "CPUID.80000022H:EAX[0]"},
    {Vendor::amd, RegisterKind::amd_global_status_set, one(Msr::amd_perf_cntr_global_status_set),
     "PerfCntrGlobalStatusSet", "CPUID.80000022H:EAX[0]"},
}};

/// A stretch of MSR space with the register of each index, worked out from the rows when compiled.
template <std::uint32_t First, std::uint32_t Count>
struct Space {
  std::array<Register, Count> registers{};

  constexpr Space() {
    for (const auto& row : rows) {
      for (std::uint32_t n = 0; n < row.msrs.count; ++n) {
        const std::uint32_t offset = index_of(row.msrs[n]) - First;
        if (offset < Count) registers[offset] = {row.kind, static_cast<std::uint8_t>(n), row.vendor};
      }
    }
  }
  [[nodiscard]] constexpr bool holds(std::uint32_t index) const { return index - First < Count; }
  [[nodiscard]] constexpr Register at(std::uint32_t index) const { return registers[index - First]; }
};

constexpr Space<0xC1, 0x601 - 0xC1> intel_space;
constexpr Space<0xC0000300, 4> amd_global_space;
constexpr Space<0xC0010000, 8> amd_k7_space;
constexpr Space<0xC0010200, 32> amd_core_space;

constexpr std::uint64_t status_bits(const Profile& profile) {
  return profile.counters() | global_status::buffer_overflow | global_status::condition_changed |
         (profile.version >= 4 ? global_status::v4 : 0);
}

}  // namespace

std::span<const RegisterRow> register_table() { return rows; }

Register find_register(Msr msr) {
  const std::uint32_t index = index_of(msr);
  if (intel_space.holds(index)) return intel_space.at(index);
  if (amd_core_space.holds(index)) return amd_core_space.at(index);
  if (amd_global_space.holds(index)) return amd_global_space.at(index);
  if (amd_k7_space.holds(index)) return amd_k7_space.at(index);
  return {};
}

bool enumerates(const Profile& profile, Register reg) {
  if (reg.vendor != profile.vendor) return false;
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

bool find_pmc(const Profile& profile, std::uint32_t ecx, CounterId& counter) {
  // Intel: ECX[31:16] is the type, 0 general purpose and 0x4000 fixed (SDM volume 2, RDPMC). AMD: a plain index.
  constexpr std::uint32_t fixed_type = 0x40000000;
  if (profile.is_intel() && (ecx & 0xFFFF0000) == fixed_type) {
    const std::uint32_t number = ecx & 0xFFFF;
    if (number >= max_fixed_counters || profile.version < 2 || (profile.fixed_mask >> number & 1) == 0) return false;
    counter = CounterId::fixed(number);
    return true;
  }
  if (!profile.present() || ecx >= profile.gp_counters) return false;
  counter = CounterId::gp(ecx);
  return true;
}

}  // namespace vpmu::arch
