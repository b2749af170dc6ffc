// The named profiles and what makes a profile sound.
#include <array>

#include "vpmu/profile.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t full_width_writes = 1U << 13;  // IA32_PERF_CAPABILITIES.FW_WRITE

constexpr Profile intel(std::uint8_t version) {
  Profile profile;
  profile.vendor = Vendor::intel;
  profile.version = version;
  profile.gp_counters = 8;
  profile.gp_width = 48;
  profile.fixed_mask = version >= 2 ? 0b111 : 0;
  profile.fixed_width = version >= 2 ? 48 : 0;
  profile.events_length = 7;  // the architectural events up to branch misses
  profile.pdcm = true;
  profile.perf_capabilities = full_width_writes;
  return profile;
}

constexpr Profile amd(std::uint8_t version, std::uint8_t counters, bool core_ext) {
  Profile profile;
  profile.vendor = Vendor::amd;
  profile.version = version;
  profile.gp_counters = counters;
  profile.gp_width = 48;
  profile.core_ext = core_ext;
  return profile;
}

constexpr Profile none(Vendor vendor) {
  Profile profile;
  profile.vendor = vendor;
  return profile;
}

constexpr std::array<NamedProfile, 10> profiles{{
    {"intel-v1", "Intel perfmon v1: 8 counters, no global registers", intel(1)},
    {"intel-v2", "Intel perfmon v2: 8 + 3 counters, full-width writes (default)", intel(2)},
    {"intel-v3", "Intel perfmon v3: 8 + 3 counters", intel(3)},
    {"intel-v4", "Intel perfmon v4: 8 + 3 counters, status set and in-use registers, counter freeze", intel(4)},
    {"intel-v5", "Intel perfmon v5: 8 + 3 counters, fixed counters by bit mask", intel(5)},
    {"amd-k7", "AMD K7: 4 counters, no global registers", amd(1, 4, false)},
    {"amd-core", "AMD PerfCtrExtCore: 6 counters, no global registers", amd(1, 6, true)},
    {"amd-v2", "AMD PerfMonV2: 6 counters, global control and status", amd(2, 6, true)},
    {"intel-none", "Intel without a PMU", none(Vendor::intel)},
    {"amd-none", "AMD without a PMU", none(Vendor::amd)},
}};

constexpr bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

}  // namespace

ProfileList named_profiles() { return {profiles.data(), profiles.size()}; }

const NamedProfile* find_profile(const char* name) {
  if (same(name, "none")) name = "intel-none";
  for (const auto& profile : profiles) {
    if (same(profile.name, name)) return &profile;
  }
  return nullptr;
}

const char* check(const Profile& profile) {
  if (!profile.present()) {
    return profile.gp_counters == 0 && profile.fixed_mask == 0 ? nullptr : "a profile without a PMU has no counters";
  }
  if (profile.gp_counters > max_gp_counters) return "more than 16 general-purpose counters";
  if (profile.gp_width < 32 || profile.gp_width > 63) return "general-purpose counters are 32 to 63 bits wide";
  if (profile.fixed_mask != 0 && (profile.fixed_width < 32 || profile.fixed_width > 63)) {
    return "fixed counters are 32 to 63 bits wide";
  }
  if (!profile.is_intel()) {
    if (profile.version > 2) return "AMD has versions 1 and 2";
    if (profile.fixed_mask != 0) return "AMD has no fixed counters";
    if (!profile.core_ext && profile.gp_counters > 4) return "AMD without PerfCtrExtCore has 4 counters";
    if (profile.version == 2 && !profile.core_ext) return "PerfMonV2 needs PerfCtrExtCore";
    if (profile.gp_counters > 15) return "CPUID states at most 15 AMD counters";
    return nullptr;
  }
  if (profile.version > 5) return "Intel perfmon versions are 1 to 5";
  if (profile.version < 2 && profile.fixed_mask != 0) return "fixed counters need perfmon v2";
  // Before v5 CPUID can only count them.
  if (profile.version < 5 && (profile.fixed_mask & (profile.fixed_mask + 1)) != 0) {
    return "fixed counters with gaps need perfmon v5";
  }
  if (profile.events_length > 32) return "CPUID states at most 32 architectural events";
  return nullptr;
}

}  // namespace vpmu
