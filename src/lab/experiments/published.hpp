// What the five public patch threads published. No experiment reads more of it than the column it shows; 'before' alone
// may calibrate a platform's recreate_scale.
#pragma once

#include <array>
#include <string_view>

namespace vpmu::lab::published {

/// Oct 2018, "Guest PMI Optimization": a guest's PMI handling under `perf stat -e cycles`, on Xeon E5-2699 v4, ns; and
/// the guest's maximum sampling rate.
constexpr double pmi_before_ns = 4'500'000;
constexpr double pmi_after_ns = 9'000;
constexpr double rate_before = 250;
constexpr double rate_after = 100'000;

/// Jul 2021, "Introduce pmc->is_paused": mean of a guest's NMI handler, four events, Ice Lake server, ns.
constexpr double nmi_before_ns = 37'646.7;
constexpr double nmi_after_ns = 32'929.3;

/// Nov 2023, ten patches: CPUID exits a second.
struct ExitRates {
  std::string_view platform;
  double before_on;
  double before_off;
  double after_on;
  double after_off;
};
constexpr std::array<ExitRates, 2> exit_rates{{
    {"epyc-7443p", 1'360'250, 1'542'894, 1'498'864, 1'526'396},
    {"e-2136", 1'431'608, 1'553'839, 1'559'365, 1'582'281},
}};

/// Aug 2025, mediated vPMU, patch 44 of 44: latency of a CPUID exit, cycles; counters all 0.
struct SwitchCycles {
  std::string_view platform;
  double before;
  double after;
};
constexpr std::array<SwitchCycles, 2> switch_cycles{{
    {"emerald-rapids", 4000, 3000},
    {"turin", 6200, 5300},
}};

/// Jul 2026, "batch emulated-instruction reprograms": a guest's timer interrupt handler on EPYC Milan, microseconds.
struct TickTimes {
  double tolerance;
  double mean;
  double p50;
  double p99;
  double p999;
  double max;
};
constexpr std::array<TickTimes, 4> tick_times{{
    {0, 148.973, 11.080, 464.200, 469.569, 919.690},
    {1'000, 3.194, 2.950, 7.251, 9.831, 470.100},
    {100'000, 2.974, 2.940, 3.869, 4.400, 8.060},
    {10'000'000, 3.054, 2.940, 7.129, 9.211, 209.880},
}};

}  // namespace vpmu::lab::published
