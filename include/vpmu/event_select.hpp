// Bit layouts of PMU registers.
#pragma once

#include <cstdint>

#include "vpmu/counter.hpp"

namespace vpmu {

/// Event-select registers: IA32_PERFEVTSELn (SDM volume 3, figure "Layout of IA32_PERFEVTSELx MSRs") and AMD's
/// PERF_CTLn (APM volume 2, section 13.2.1), which share all but a few bits.
namespace evtsel {
inline constexpr std::uint64_t event = 0xFF;
inline constexpr std::uint64_t unit_mask = 0xFF00;
inline constexpr std::uint64_t user = 1U << 16;
inline constexpr std::uint64_t kernel = 1U << 17;
inline constexpr std::uint64_t edge = 1U << 18;
inline constexpr std::uint64_t pin_control = 1U << 19;  // Intel
inline constexpr std::uint64_t interrupt = 1U << 20;
inline constexpr std::uint64_t any_thread = 1U << 21;  // Intel, perfmon v3 and v4 where CPUID.0AH:EDX[15] is 0
inline constexpr std::uint64_t enable = 1U << 22;
inline constexpr std::uint64_t invert = 1U << 23;
inline constexpr std::uint64_t counter_mask = 0xFF000000;
inline constexpr std::uint64_t in_tx = 1ULL << 32;            // Intel with TSX
inline constexpr std::uint64_t in_tx_cp = 1ULL << 33;         // Intel with TSX, counter 2 alone
inline constexpr std::uint64_t adaptive_record = 1ULL << 34;  // Intel with PEBS baseline
inline constexpr std::uint64_t event_high = 0xFULL << 32;     // AMD: event select bits 11:8
inline constexpr std::uint64_t guest_only = 1ULL << 40;       // AMD with SVM
inline constexpr std::uint64_t host_only = 1ULL << 41;        // AMD with SVM

/// The bits that name an event for the counting of emulated instructions (FACTS: edge, invert and counter mask do not
/// matter there).
inline constexpr std::uint64_t code = event | unit_mask | event_high;
/// The bits that a host event takes over.
inline constexpr std::uint64_t host = code | edge | invert | counter_mask;
}  // namespace evtsel

/// IA32_FIXED_CTR_CTRL: one field of four bits for each fixed counter.
namespace fixed_ctrl {
inline constexpr std::uint64_t kernel = 1;
inline constexpr std::uint64_t user = 2;
inline constexpr std::uint64_t any_thread = 4;
inline constexpr std::uint64_t interrupt = 8;

constexpr std::uint64_t field(std::uint64_t ctrl, std::uint32_t n) { return ctrl >> (4 * n) & 0xF; }
}  // namespace fixed_ctrl

/// Bits of the global status registers beside the counters' own.
namespace global_status {
inline constexpr std::uint64_t trace_topa_pmi = 1ULL << 55;
inline constexpr std::uint64_t lbr_frozen = 1ULL << 58;
inline constexpr std::uint64_t counters_frozen = 1ULL << 59;
inline constexpr std::uint64_t asci = 1ULL << 60;
inline constexpr std::uint64_t uncore = 1ULL << 61;
inline constexpr std::uint64_t buffer_overflow = 1ULL << 62;
inline constexpr std::uint64_t condition_changed = 1ULL << 63;
/// What perfmon v4 adds to the bits that 0x390 clears and 0x391 sets.
inline constexpr std::uint64_t v4 = trace_topa_pmi | lbr_frozen | counters_frozen | asci;
}  // namespace global_status

/// IA32_DEBUGCTL.
namespace debugctl {
inline constexpr std::uint64_t branch_trap = 1U << 1;
inline constexpr std::uint64_t freeze_lbrs_on_pmi = 1U << 11;
inline constexpr std::uint64_t freeze_perfmon_on_pmi = 1U << 12;
inline constexpr std::uint64_t freeze_while_smm = 1U << 14;  // PERF_CAPABILITIES[12]
}  // namespace debugctl

/// IA32_MISC_ENABLE, the PMU's bits.
namespace misc_enable {
inline constexpr std::uint64_t perfmon_available = 1U << 7;
inline constexpr std::uint64_t bts_unavailable = 1U << 11;
inline constexpr std::uint64_t pebs_unavailable = 1U << 12;
}  // namespace misc_enable

}  // namespace vpmu
