// Event codes: what a selector's event select and unit mask mean.
#pragma once

#include <array>
#include <cstdint>

#include "vpmu/profile.hpp"

namespace vpmu::arch {

/// Events that PMUs of both vendors count under codes of their own.
enum class EventKind : std::uint8_t {
  instructions,
  cycles,
  ref_cycles,
  branches,
  branch_misses,
  llc_references,
  llc_misses,
};

struct EventCode {
  Vendor vendor;
  EventKind kind;
  /// Event select in bits 7:0 and 35:32, unit mask in bits 15:8: the selector's own layout.
  std::uint64_t select;
  const char* name;    // the vendor's
  const char* source;  // where the code is defined
};

/// SDM volume 3, table "UMask and Event Select Encodings for Pre-Defined Architectural Performance Events"; AMD PPR,
/// "Core performance monitor events". AMD has no last-level cache events among its core counters.
inline constexpr std::array<EventCode, 11> event_codes{{
    {Vendor::intel, EventKind::cycles, 0x003C, "UnHalted Core Cycles", "CPUID.0AH:EBX[0] = 0"},
    {Vendor::intel, EventKind::instructions, 0x00C0, "Instruction Retired", "CPUID.0AH:EBX[1] = 0"},
    {Vendor::intel, EventKind::ref_cycles, 0x013C, "UnHalted Reference Cycles", "CPUID.0AH:EBX[2] = 0"},
    {Vendor::intel, EventKind::llc_references, 0x4F2E, "LLC Reference", "CPUID.0AH:EBX[3] = 0"},
    {Vendor::intel, EventKind::llc_misses, 0x412E, "LLC Misses", "CPUID.0AH:EBX[4] = 0"},
    {Vendor::intel, EventKind::branches, 0x00C4, "Branch Instruction Retired", "CPUID.0AH:EBX[5] = 0"},
    {Vendor::intel, EventKind::branch_misses, 0x00C5, "Branch Misses Retired", "CPUID.0AH:EBX[6] = 0"},
    {Vendor::amd, EventKind::cycles, 0x0076, "Cycles Not in Halt", "PMCx076"},
    {Vendor::amd, EventKind::instructions, 0x00C0, "Retired Instructions", "PMCx0C0"},
    {Vendor::amd, EventKind::branches, 0x00C2, "Retired Branch Instructions", "PMCx0C2"},
    {Vendor::amd, EventKind::branch_misses, 0x00C3, "Retired Branch Instructions Mispredicted", "PMCx0C3"},
}};

/// What fixed counters 0 to 2 count (SDM volume 3, table "Association of Fixed-Function Performance Counters with
/// Architectural Performance Events"). Later ones count nothing that EventKind knows.
inline constexpr std::array<EventKind, 3> fixed_events{EventKind::instructions, EventKind::cycles,
                                                       EventKind::ref_cycles};

/// The code of an event, 0 if the vendor has none.
constexpr std::uint64_t event_code(Vendor vendor, EventKind kind) {
  for (const auto& code : event_codes) {
    if (code.vendor == vendor && code.kind == kind) return code.select;
  }
  return 0;
}

/// Whether CPUID says that the processor can count the event: CPUID.0AH:EBX has a bit for each of Intel's (SDM volume
/// 2, CPUID). AMD's cannot say.
constexpr bool is_available(const Profile& profile, EventKind kind) {
  if (!profile.is_intel()) return true;
  constexpr std::array by_bit{EventKind::cycles,         EventKind::instructions, EventKind::ref_cycles,
                              EventKind::llc_references, EventKind::llc_misses,   EventKind::branches,
                              EventKind::branch_misses};
  std::uint32_t bit = 0;
  while (by_bit[bit] != kind) ++bit;
  return bit < profile.events_length && (profile.events_unavailable >> bit & 1) == 0;
}

}  // namespace vpmu::arch
