// The loops of workloads.S, and how to run them with exactly known counts around them.
#pragma once

#include <cstdint>

#include "runtime/pmu.hpp"
#include "runtime/user_mode.hpp"

namespace vpmu::guest {

extern "C" {
/// A loop, and what n iterations of it retire.
struct Workload {
  UserFunction function;
  std::uint64_t each_instructions;
  std::uint64_t once_instructions;
  std::uint64_t each_branches;
  std::uint64_t once_branches;
  const char* name;

  [[nodiscard]] std::uint64_t instructions(std::uint64_t n) const { return each_instructions * n + once_instructions; }
  [[nodiscard]] std::uint64_t branches(std::uint64_t n) const { return each_branches * n + once_branches; }
};

extern const Workload spin_workload;
extern const Workload nops_workload;
extern const Workload mixed_workload;
extern const Workload indirect_workload;
extern const Workload strings_workload;
extern const Workload cpuid_pairs_workload;
extern const Workload cpuids_workload;
extern const Workload faults_workload;  // ring 3 alone
extern const Workload steps_workload;
extern const Workload flushed_loads_workload;
// One exit an iteration on a virtual machine. Ports: also in ring 3 with port access; MSRs, RDPMC, APIC: ring 0 alone.
extern const Workload port_reads_workload;   // UART line status
extern const Workload port_writes_workload;  // POST code
extern const Workload msr_reads_workload;    // exit_msr
extern const Workload msr_writes_workload;   // exit_msr, its own value
extern const Workload pmc_reads_workload;    // exit_pmc
extern const Workload apic_reads_workload;   // the APIC's page, version register
extern std::uint32_t exit_msr;
extern std::uint32_t exit_pmc;
extern const Workload unpredictable_workload;

/// The address of each instruction of an iteration of `steps`, and of its return.
extern const std::uint64_t steps_addresses[9];
extern std::uint8_t user_buffer[4096];
}

/// Where a workload runs, and how it gets there.
enum class Place : std::uint8_t { kernel, user_by_iret, user_by_sysret };

/// What is to run between starting and stopping counters.
struct Task {
  const Workload* workload = nullptr;
  std::uint64_t iterations = 0;
  Place place = Place::kernel;
  /// RFLAGS in ring 3; ring 0 keeps its own.
  std::uint64_t user_flags = 2;
};

/// Runs the task between these writes.
void measure(const WriteList& start, const WriteList& stop, const Task& task);

/// What each counter that `start` started counts until `stop` stops it: the WRMSR that starts it is counted, the one
/// that stops it is not. Both lists have the same length, and the same counter has the same place in both.
std::uint64_t expected_count(EventKind event, Rings rings, const WriteList& start, const Task& task);

/// How many instructions retire in ring 0 between a single starting WRMSR, it included, and the workload's first.
std::uint64_t instructions_before_kernel_workload();
/// How many retire in ring 3 before the workload's first.
inline constexpr std::uint64_t instructions_before_user_workload = 3;

/// Where the processor stands after `retired` instructions of `steps`.
std::uint64_t steps_rip(std::uint64_t retired, std::uint64_t iterations);

}  // namespace vpmu::guest
