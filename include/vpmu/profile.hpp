// What PMU a guest sees: the facts that its CPUID and PERF_CAPABILITIES state.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vpmu/counter.hpp"

namespace vpmu {

enum class Vendor : std::uint8_t { intel, amd };

/// The PMU of one virtual CPU. Plain data: change any field of a named profile, then check() it.
struct Profile {
  Vendor vendor = Vendor::intel;
  /// Intel: CPUID.0AH:EAX[7:0], 0 to 5; 0 is no PMU. AMD: 0 no PMU, 1 counters alone, 2 PerfMonV2.
  std::uint8_t version = 0;
  std::uint8_t gp_counters = 0;
  std::uint8_t gp_width = 0;  // bits, 1 to 63
  std::uint8_t fixed_width = 0;
  /// Bit n: fixed counter n exists. CPUID.0AH:EDX[4:0] states the contiguous ones, ECX (v5) all.
  std::uint8_t fixed_mask = 0;
  /// CPUID.0AH:EAX[31:24]: how many bits of events_unavailable mean something.
  std::uint8_t events_length = 0;
  /// CPUID.0AH:EBX: bit set = architectural event not available.
  std::uint32_t events_unavailable = 0;

  bool pdcm = false;                    // CPUID.1:ECX[15]: PERF_CAPABILITIES exists
  std::uint64_t perf_capabilities = 0;  // IA32_PERF_CAPABILITIES as the guest reads it
  bool tsx = false;                     // CPUID.7:EBX HLE or RTM: event-select bits 32 and 33
  bool ds = false;                      // CPUID.1:EDX[21]: IA32_DS_AREA exists
  bool core_ext = false;                // AMD: PerfCtrExtCore
  bool nested_virtualization = false;   // AMD: event-select bits 40 and 41 (guest only, host only) exist

  /// The registers that a VMM saves and restores for any vCPU of its host: host access to one of them that this
  /// profile lacks reads 0 and takes 0. Counts of counters; amd_core and amd_global switch AMD's groups.
  struct SaveList {
    std::uint8_t gp = 8;
    std::uint8_t fixed = 3;
    bool amd_core = true;
    bool amd_global = true;
    friend constexpr bool operator==(const SaveList&, const SaveList&) = default;
  } save_list;

  [[nodiscard]] constexpr bool present() const { return version != 0; }
  [[nodiscard]] constexpr bool is_intel() const { return vendor == Vendor::intel; }
  [[nodiscard]] constexpr bool has_global_ctrl() const { return version >= 2; }
  [[nodiscard]] constexpr bool full_width_writes() const { return pdcm && (perf_capabilities >> 13 & 1) != 0; }
  [[nodiscard]] constexpr bool pebs() const { return pdcm && (perf_capabilities >> 8 & 0xF) != 0; }
  [[nodiscard]] constexpr bool pebs_baseline() const { return pebs() && (perf_capabilities >> 14 & 1) != 0; }
  [[nodiscard]] constexpr bool freeze_while_smm() const { return pdcm && (perf_capabilities >> 12 & 1) != 0; }
  [[nodiscard]] constexpr CounterSet counters() const {
    return present() ? first_gp(gp_counters) | CounterSet{fixed_mask} << fixed_shift : 0;
  }
  [[nodiscard]] constexpr std::uint8_t width(CounterId counter) const {
    return counter.is_fixed() ? fixed_width : gp_width;
  }
  friend constexpr bool operator==(const Profile&, const Profile&) = default;
};
static_assert(sizeof(Profile) <= 48);

/// A profile with its name.
struct NamedProfile {
  const char* name;
  const char* summary;
  Profile profile;
};

/// All named profiles: intel-v1 to intel-v5, amd-k7, amd-core, amd-v2, intel-none, amd-none.
struct ProfileList {
  const NamedProfile* first;
  std::size_t count;
  [[nodiscard]] const NamedProfile* begin() const { return first; }
  [[nodiscard]] const NamedProfile* end() const { return first + count; }
};
ProfileList named_profiles();

/// The profile of that name ("none" is "intel-none"), or a null pointer.
const NamedProfile* find_profile(const char* name);

/// What is wrong with a profile, in one line without a full stop; a null pointer if nothing is.
const char* check(const Profile& profile);

/// The four registers of a CPUID answer.
struct CpuidResult {
  std::uint32_t eax, ebx, ecx, edx;
};

/// Puts the PMU's part into the answer `base` of CPUID leaf `leaf`, sub-leaf `subleaf`, leaving all other bits alone:
/// leaves 0AH (Intel) and 80000022H (AMD) whole, PDCM and DS of leaf 1, HLE and RTM of leaf 7, PerfCtrExtCore (and
/// SVM, where nested_virtualization needs it) of leaf 80000001H. The caller raises the maximum leaves (leaf 0 to at
/// least 0AH, leaf 80000000H to at least 80000022H).
CpuidResult pmu_cpuid(const Profile& profile, std::uint32_t leaf, std::uint32_t subleaf, CpuidResult base);

}  // namespace vpmu
