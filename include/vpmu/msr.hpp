// The MSRs of x86 PMUs by name. The comment behind each says what enumerates it.
#pragma once

#include <cstdint>

namespace vpmu {

/// A model-specific register. Any 32-bit index is a value; those with a name here belong to a PMU.
/// Sources: Intel SDM volume 3, chapter "Performance Monitoring" and volume 4; AMD APM volume 2, section 13.2.
enum class Msr : std::uint32_t {
  ia32_misc_enable = 0x1A0,             // any Intel PMU
  ia32_debugctl = 0x1D9,                // perfmon v2, for the freeze bits
  ia32_perf_capabilities = 0x345,       // CPUID.1:ECX.PDCM[15]
  ia32_fixed_ctr_ctrl = 0x38D,          // perfmon v2
  ia32_perf_global_status = 0x38E,      // perfmon v2
  ia32_perf_global_ctrl = 0x38F,        // perfmon v2
  ia32_perf_global_ovf_ctrl = 0x390,    // perfmon v2; IA32_PERF_GLOBAL_STATUS_RESET from v4
  ia32_perf_global_status_set = 0x391,  // perfmon v4
  ia32_perf_global_inuse = 0x392,       // perfmon v4
  ia32_pebs_enable = 0x3F1,             // PERF_CAPABILITIES.PEBS_REC_FMT[11:8] not 0
  msr_pebs_data_cfg = 0x3F2,            // the same, with PERF_CAPABILITIES.PEBS_BASELINE[14]
  ia32_ds_area = 0x600,                 // CPUID.1:EDX.DS[21]

  amd_perf_cntr_global_status = 0xC0000300,      // CPUID.80000022:EAX.PerfMonV2[0]
  amd_perf_cntr_global_ctl = 0xC0000301,         // CPUID.80000022:EAX.PerfMonV2[0]
  amd_perf_cntr_global_status_clr = 0xC0000302,  // CPUID.80000022:EAX.PerfMonV2[0]
  amd_perf_cntr_global_status_set = 0xC0000303,  // CPUID.80000022:EAX.PerfMonV2[0]
};

constexpr std::uint32_t index_of(Msr msr) { return static_cast<std::uint32_t>(msr); }

/// The name of a PMU's register as the manuals print it ("IA32_PERFEVTSEL3"), or "?" of any other MSR.
struct RegisterName {
  char text[32];
};
RegisterName register_name(Msr msr);

/// A row of like registers at equal steps. operator[] names one; it does not check the range.
struct MsrArray {
  std::uint32_t first;
  std::uint32_t stride;
  std::uint32_t count;

  constexpr Msr operator[](std::uint32_t n) const { return static_cast<Msr>(first + n * stride); }
};

inline constexpr MsrArray ia32_pmc{0xC1, 1, 16};                 // CPUID.0AH:EAX[15:8] counters
inline constexpr MsrArray ia32_perfevtsel{0x186, 1, 16};         // CPUID.0AH:EAX[15:8] counters
inline constexpr MsrArray ia32_fixed_ctr{0x309, 1, 8};           // perfmon v2 with CPUID.0AH:EDX[4:0]; v5 also ECX
inline constexpr MsrArray ia32_a_pmc{0x4C1, 1, 16};              // PERF_CAPABILITIES.FW_WRITE[13]
inline constexpr MsrArray amd_k7_perf_ctl{0xC0010000, 1, 4};     // every AMD processor
inline constexpr MsrArray amd_k7_perf_ctr{0xC0010004, 1, 4};     // every AMD processor
inline constexpr MsrArray amd_core_perf_ctl{0xC0010200, 2, 16};  // CPUID.80000001:ECX.PerfCtrExtCore[23]
inline constexpr MsrArray amd_core_perf_ctr{0xC0010201, 2, 16};  // CPUID.80000001:ECX.PerfCtrExtCore[23]

}  // namespace vpmu
