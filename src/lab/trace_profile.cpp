#include "lab/trace_profile.hpp"

#include <algorithm>

namespace vpmu::lab {
namespace {

constexpr bool has_bit(std::uint32_t value, std::uint32_t bit) { return (value >> bit & 1) != 0; }

// CPUID.0:EBX, the first four letters of the vendor's name.
constexpr std::uint32_t genu = 0x756E6547;  // GenuineIntel
constexpr std::uint32_t auth = 0x68747541;  // AuthenticAMD
constexpr std::uint32_t hygo = 0x6F677948;  // HygonGenuine

}  // namespace

bool TraceProfile::see(const KvmCpuid& cpuid) {
  if (cpuid.other_leaf) return false;
  switch (cpuid.leaf) {
    case 0:
      if (cpuid.ebx == genu) vendor_ = Vendor::intel;
      if (cpuid.ebx == auth || cpuid.ebx == hygo) vendor_ = Vendor::amd;
      return true;
    case 1:
      features_ = cpuid;
      return true;
    case 7:
      if (cpuid.subleaf == 0) extended_ = cpuid;
      return cpuid.subleaf == 0;
    case 0xA:
      perfmon_ = cpuid;
      return true;
    case 0x80000001:
      amd_features_ = cpuid;
      return true;
    case 0x80000022:
      amd_perfmon_ = cpuid;
      return true;
    default:
      return false;
  }
}

bool TraceProfile::see_capabilities(std::uint64_t value) {
  if (capabilities_ == value) return false;
  capabilities_ = value;
  return true;
}

Profile TraceProfile::intel(const KvmCpuid& perfmon) const {
  Profile profile;
  profile.vendor = Vendor::intel;
  const std::uint32_t eax = perfmon.eax;
  const std::uint32_t edx = perfmon.edx;
  // Later versions add to the fifth.
  profile.version = static_cast<std::uint8_t>(std::min(eax & 0xFF, 5U));
  if (!profile.present()) return profile;
  profile.gp_counters = static_cast<std::uint8_t>(eax >> 8 & 0xFF);
  profile.gp_width = static_cast<std::uint8_t>(eax >> 16 & 0xFF);
  profile.events_length = static_cast<std::uint8_t>(eax >> 24);
  profile.events_unavailable = perfmon.ebx;
  if (profile.version >= 2) {
    const std::uint32_t contiguous = std::min(edx & 0x1F, max_fixed_counters);
    std::uint32_t fixed = (1U << contiguous) - 1;
    if (profile.version >= 5) fixed |= perfmon.ecx;
    profile.fixed_mask = static_cast<std::uint8_t>(fixed);
    profile.fixed_width = static_cast<std::uint8_t>(edx >> 5 & 0xFF);
  }
  if (features_) {
    profile.pdcm = has_bit(features_->ecx, 15);
    profile.ds = has_bit(features_->edx, 21);
  } else {
    profile.pdcm = capabilities_.has_value();
  }
  if (profile.pdcm) profile.perf_capabilities = capabilities_.value_or(0);
  if (extended_) profile.tsx = has_bit(extended_->ebx, 4) || has_bit(extended_->ebx, 11);
  return profile;
}

Profile TraceProfile::amd() const {
  const bool core = amd_features_ && has_bit(amd_features_->ecx, 23);
  const bool v2 = amd_perfmon_ && has_bit(amd_perfmon_->eax, 0);
  Profile profile = find_profile(v2 ? "amd-v2" : core ? "amd-core" : "amd-k7")->profile;
  if (v2) profile.gp_counters = static_cast<std::uint8_t>(amd_perfmon_->ebx & 0xF);
  return profile;
}

std::optional<Profile> TraceProfile::profile() const {
  std::optional<Profile> profile;
  if (vendor_ == Vendor::amd) {
    if (amd_features_ || amd_perfmon_) profile = amd();
  } else if (perfmon_) {
    profile = intel(*perfmon_);
  }
  if (profile && check(*profile) != nullptr) profile.reset();
  return profile;
}

}  // namespace vpmu::lab
