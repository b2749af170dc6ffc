// What RDPMC takes in ECX, and a patched one hands to KVM as an MSR's index.
#pragma once

#include "vpmu/kvm.hpp"

namespace vpmu::kvm {

/// General-purpose counters (Intel and AMD) and Intel's fixed ones (SDM volume 2, RDPMC).
inline constexpr MsrRange patched_gp{0, max_gp_counters, MsrRange::Access::read};
inline constexpr MsrRange patched_fixed{0x40000000, max_fixed_counters, MsrRange::Access::read};

}  // namespace vpmu::kvm
