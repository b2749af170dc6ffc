// The table of PMU registers: where each is, and what enumerates it.
#pragma once

#include <cstdint>
#include <span>

#include "vpmu/counter.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::arch {

enum class RegisterKind : std::uint8_t {
  none,
  // Intel
  pmc,             // IA32_PMCn by its legacy, 32-bit write
  a_pmc,           // the same counter, full width
  perfevtsel,
  fixed_ctr,
  fixed_ctr_ctrl,
  global_status,
  global_ctrl,
  global_ovf_ctrl,
  global_status_set,
  global_inuse,
  pebs_enable,
  pebs_data_cfg,
  ds_area,
  perf_capabilities,
  debugctl,
  misc_enable,
  // AMD
  k7_perf_ctl,
  k7_perf_ctr,
  core_perf_ctl,
  core_perf_ctr,
  amd_global_status,
  amd_global_ctl,
  amd_global_status_clr,
  amd_global_status_set,
};

/// One row of the table: `count` like registers from `first` on, `stride` apart.
struct RegisterRow {
  Vendor vendor;
  RegisterKind kind;
  MsrArray msrs;
  const char* name;           // as the manuals print it; n stands for the number
  const char* enumerated_by;  // what CPUID or PERF_CAPABILITIES has to say
};
std::span<const RegisterRow> register_table();

/// A register of the table: its kind, its number among its kind, and whose it is.
struct Register {
  RegisterKind kind = RegisterKind::none;
  std::uint8_t number = 0;
  Vendor vendor = Vendor::intel;

  explicit operator bool() const { return kind != RegisterKind::none; }
};

/// The register of this index, in constant time; kind none if no PMU has one there.
Register find_register(Msr msr);

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

/// The counter that RDPMC reads with this ECX; false if none (#GP).
bool find_pmc(const Profile& profile, std::uint32_t ecx, CounterId& counter);

}  // namespace vpmu::arch
