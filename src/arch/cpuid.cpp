// CPUID leaves of the PMU.
#include <bit>

#include "vpmu/profile.hpp"

namespace vpmu {
namespace {

constexpr std::uint32_t with_bit(std::uint32_t value, std::uint32_t bit, bool on) {
  return on ? value | 1U << bit : value & ~(1U << bit);
}

/// SDM volume 2, CPUID, "Architectural Performance Monitoring Leaf".
CpuidResult architectural_perfmon(const Profile& profile) {
  if (!profile.is_intel() || !profile.present()) return {};
  const auto contiguous = static_cast<std::uint32_t>(std::countr_one(profile.fixed_mask));
  constexpr std::uint32_t any_thread_deprecated = 1U << 15;
  return {
      .eax = profile.version | std::uint32_t{profile.gp_counters} << 8 | std::uint32_t{profile.gp_width} << 16 |
             std::uint32_t{profile.events_length} << 24,
      .ebx = profile.events_unavailable,
      .ecx = profile.version >= 5 ? std::uint32_t{profile.fixed_mask} : 0,
      .edx = contiguous | std::uint32_t{profile.fixed_width} << 5 | any_thread_deprecated,
  };
}

/// APM volume 3, appendix E, "Extended Performance Monitoring and Debug".
CpuidResult extended_perfmon(const Profile& profile) {
  if (profile.is_intel() || profile.version < 2) return {};
  return {.eax = 1, .ebx = profile.gp_counters, .ecx = 0, .edx = 0};
}

}  // namespace

CpuidResult pmu_cpuid(const Profile& profile, std::uint32_t leaf, std::uint32_t subleaf, CpuidResult base) {
  switch (leaf) {
    case 0x1:
      base.ecx = with_bit(base.ecx, 15, profile.pdcm);
      base.edx = with_bit(base.edx, 21, profile.ds);
      return base;
    case 0x7:
      if (subleaf == 0) {
        base.ebx = with_bit(base.ebx, 4, profile.tsx);
        base.ebx = with_bit(base.ebx, 11, profile.tsx);
      }
      return base;
    case 0xA:
      return architectural_perfmon(profile);
    case 0x80000001:
      base.ecx = with_bit(base.ecx, 23, profile.core_ext);
      if (profile.nested_virtualization) base.ecx = with_bit(base.ecx, 2, true);  // SVM, and so GuestOnly and HostOnly
      return base;
    case 0x80000022:
      return extended_perfmon(profile);
    default:
      return base;
  }
}

}  // namespace vpmu
