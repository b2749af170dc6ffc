// CPUID of the soft machine, the PMU's leaves apart.
#pragma once

#include "machine/soft/cpu_state.hpp"
#include "machine/soft/environment.hpp"

namespace vpmu::soft {

struct CpuidConfig {
  bool amd = false;
  bool hypervisor = true;  ///< Announce one, with its timing leaf.
  u64 tsc_hz = 0;
  u64 crystal_hz = 0;  ///< Of the APIC timer too.
};

/// `apic_enabled`: APIC_BASE bit 11, which leaf 1 shows.
CpuidLeaf machine_cpuid(const CpuidConfig& config, const CpuState& state, bool apic_enabled, u32 leaf, u32 subleaf);

}  // namespace vpmu::soft
