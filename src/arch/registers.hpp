// The table of PMU registers: where each is, and what enumerates it.
#pragma once

#include <array>
#include <cstdint>

#include "vpmu/counter.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"
#include "vpmu/register_rules.hpp"

namespace vpmu::arch {

/// One row of the table: `count` like registers from `first` on, `stride` apart.
struct RegisterRow {
  Vendor vendor;
  RegisterKind kind;
  MsrArray msrs;
  const char* name;           // as the manuals print it; n stands for the number
  const char* enumerated_by;  // what CPUID or PERF_CAPABILITIES has to say
};
constexpr MsrArray one(Msr msr) { return {index_of(msr), 1, 1}; }

inline constexpr std::array<RegisterRow, 24> register_rows{{
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

/// A register of the table: its kind, and its number among its kind.
struct Register {
  RegisterKind kind = RegisterKind::none;
  std::uint8_t number = 0;

  constexpr explicit operator bool() const { return kind != RegisterKind::none; }
  [[nodiscard]] constexpr Vendor vendor() const {
    return kind >= RegisterKind::k7_perf_ctl ? Vendor::amd : Vendor::intel;
  }
};

namespace detail {

/// A stretch of MSR space with the register of each index, worked out from the table when compiled.
template <std::uint32_t First, std::uint32_t Count>
struct Space {
  std::array<Register, Count> registers{};

  constexpr Space() {
    for (const auto& row : register_rows) {
      for (std::uint32_t n = 0; n < row.msrs.count; ++n) {
        const std::uint32_t offset = index_of(row.msrs[n]) - First;
        if (offset < Count) registers[offset] = {row.kind, static_cast<std::uint8_t>(n)};
      }
    }
  }
  [[nodiscard]] constexpr bool holds(std::uint32_t index) const { return index - First < Count; }
  [[nodiscard]] constexpr Register at(std::uint32_t index) const { return registers[index - First]; }
};

inline constexpr Space<0xC1, 0x601 - 0xC1> intel_space;
inline constexpr Space<0xC0000300, 4> amd_global_space;
inline constexpr Space<0xC0010000, 8> amd_k7_space;
inline constexpr Space<0xC0010200, 32> amd_core_space;

}  // namespace detail

/// The register of this index, in constant time; kind none if no PMU has one there.
inline Register find_register(Msr msr) {
  const std::uint32_t index = index_of(msr);
  if (detail::intel_space.holds(index)) return detail::intel_space.at(index);
  if (detail::amd_core_space.holds(index)) return detail::amd_core_space.at(index);
  if (detail::amd_global_space.holds(index)) return detail::amd_global_space.at(index);
  if (detail::amd_k7_space.holds(index)) return detail::amd_k7_space.at(index);
  return {};
}

/// The one law: whether a guest with this profile may access the register.
bool enumerates(const Profile& profile, Register reg);

/// AMD K7 registers have no CPUID bit: on an AMD vCPU without a PMU they read 0 and ignore writes.
bool reads_zero(const Profile& profile, Register reg);

/// Whether a VMM's save list (Profile::save_list) holds it, though the profile may lack it.
bool in_save_list(const Profile& profile, Register reg);

// Bits that a write may set; others are #GP (Intel) or dropped (AMD).

std::uint64_t legal_selector(const Profile& profile, CounterId counter);
std::uint64_t legal_fixed_ctrl(const Profile& profile);
/// GLOBAL_CTRL, and AMD's PerfCntrGlobalCtl.
std::uint64_t legal_global_ctrl(const Profile& profile);
/// GLOBAL_STATUS as a VMM writes it, and AMD's.
std::uint64_t legal_global_status(const Profile& profile);
std::uint64_t legal_global_ovf_ctrl(const Profile& profile);
std::uint64_t legal_global_status_set(const Profile& profile);
std::uint64_t legal_debugctl(const Profile& profile);
std::uint64_t legal_pebs_enable(const Profile& profile);
std::uint64_t legal_pebs_data_cfg();

/// The PMU's bits of IA32_MISC_ENABLE, all read-only.
std::uint64_t misc_enable_bits(const Profile& profile);

/// GLOBAL_CTRL after RESET: all general-purpose counters on.
std::uint64_t reset_global_ctrl(const Profile& profile);

/// What a profile makes of each kind of register, worked out once: which numbers of it exist, and which bits a write
/// may set.
RegisterRules rules_of(const Profile& profile);

/// What RDPMC reads where there is no counter.
inline constexpr std::uint32_t no_counter = ~0U;

/// The bit, as in a CounterSet, of the counter that RDPMC reads with this ECX, or no_counter (#GP). Intel: ECX[31:16]
/// is the type, 0 general purpose and 0x4000 fixed (SDM volume 2, RDPMC). AMD: a plain index.
inline std::uint32_t find_pmc(const Profile& profile, std::uint32_t ecx) {
  constexpr std::uint32_t fixed_type = 0x40000000;
  if (ecx < profile.gp_counters) return ecx;
  const std::uint32_t number = ecx - fixed_type;
  return number < max_fixed_counters && (profile.fixed_mask >> number & 1) != 0 ? fixed_shift + number : no_counter;
}

}  // namespace vpmu::arch
