// What CPUID tells a guest of the kvm machine.
#pragma once

#include <cstdint>

#include "machine/kvm/abi.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::kvm {

struct GuestCpu {
  Profile profile;
  std::uint32_t apic_id = 0;
  std::uint32_t cpus = 1;
  std::uint32_t tsc_khz = 0;
};

/// Makes of what KVM supports (KVM_GET_SUPPORTED_CPUID) the answers for one vCPU: vendor and model that fit the
/// profile, the PMU's leaves, its APIC ID. False if there is no room.
bool shape_cpuid(abi::Cpuid& cpuid, const GuestCpu& cpu);

}  // namespace vpmu::kvm
