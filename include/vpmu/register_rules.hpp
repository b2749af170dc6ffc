// Kinds of PMU registers, and what a profile makes of them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace vpmu::arch {

enum class RegisterKind : std::uint8_t {
  none,
  // Intel
  pmc,    // IA32_PMCn by its legacy, 32-bit write
  a_pmc,  // the same counter, full width
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
inline constexpr std::size_t register_kind_count = static_cast<std::size_t>(RegisterKind::amd_global_status_set) + 1;

struct RegisterRules {
  struct Rule {
    std::uint64_t legal = 0;    // bits that a write may set without #GP
    std::uint16_t numbers = 0;  // bit n: the nth register of this kind exists
  };
  std::array<Rule, register_kind_count> rules{};

  [[nodiscard]] constexpr Rule& of(RegisterKind kind) { return rules[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] constexpr const Rule& of(RegisterKind kind) const { return rules[static_cast<std::size_t>(kind)]; }
};

}  // namespace vpmu::arch
