// What a guest may do with each PMU register, given what CPUID states: the manuals' tables, written down apart from the
// PMU's own so that one checks the other.
#pragma once

#include <cstdint>

#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::guest {

struct RegisterRule {
  enum class Access : std::uint8_t {
    unspecified,  // no register of a PMU, or none that this table speaks of
    absent,       // reads and writes are #GP
    dead,         // reads 0, ignores writes: AMD's K7 registers without a PMU
    read_only,    // writes are #GP
    ignores,      // writes are ignored
    reads_zero,   // writes act at once
    plain,        // what is written reads back
  };
  /// What kind of value it holds.
  enum class Content : std::uint8_t { control, counter, legacy_counter, address };
  Access access = Access::unspecified;
  Content content = Content::control;
  std::uint64_t legal = ~std::uint64_t{0};  // bits that may be set; others are #GP
  std::uint64_t kept = ~std::uint64_t{0};   // bits that read back
  std::uint64_t open = 0;                   // bits whose legality is not judged

  [[nodiscard]] bool present() const { return access > Access::absent; }
  [[nodiscard]] bool readable() const { return present(); }
  /// Whether a write of this value is taken. Values with open bits are not to be judged.
  [[nodiscard]] bool takes(std::uint64_t value) const;
  /// What a plain register then reads.
  [[nodiscard]] std::uint64_t stored(std::uint64_t value) const;
};

RegisterRule register_rule(const Profile& profile, Msr msr);

/// Whether RDPMC takes this index, privilege apart.
bool rdpmc_takes(const Profile& profile, std::uint32_t ecx);

/// Whether a hypervisor that rewrites RDPMC to RDMSR can tell this index from a register's: not the TSC's, 0x10.
constexpr bool is_rewritable_pmc(std::uint32_t ecx) { return (ecx & 0xFFFF) < 16 && (ecx >> 30) < 2; }

/// Every register that the PMU of either vendor can have.
inline constexpr MsrArray pmu_registers[] = {
    ia32_pmc,
    ia32_perfevtsel,
    ia32_fixed_ctr,
    ia32_a_pmc,
    {index_of(Msr::ia32_perf_capabilities), 1, 1},
    {index_of(Msr::ia32_fixed_ctr_ctrl), 1, 6},  // to GLOBAL_INUSE
    {index_of(Msr::ia32_pebs_enable), 1, 2},     // and PEBS_DATA_CFG
    {index_of(Msr::ia32_ds_area), 1, 1},
    amd_k7_perf_ctl,
    amd_k7_perf_ctr,
    amd_core_perf_ctl,
    amd_core_perf_ctr,
    {index_of(Msr::amd_perf_cntr_global_status), 1, 4},
};

/// MSR_FSB_FREQ and MSR_PLATFORM_INFO (SDM volume 4) lie in the row of IA32_PMC, beyond the counters of any processor.
constexpr bool is_other_register(Msr msr) { return msr == Msr{0xCD} || msr == Msr{0xCE}; }

/// Calls visit(Msr) for each of them.
template <class Visit>
void for_each_pmu_register(Visit&& visit) {
  for (const MsrArray& row : pmu_registers) {
    for (std::uint32_t n = 0; n < row.count; ++n) {
      if (!is_other_register(row[n])) visit(row[n]);
    }
  }
}

}  // namespace vpmu::guest
