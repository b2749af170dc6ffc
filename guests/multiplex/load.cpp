#include <array>

#include "multiplex/groups.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

struct Part {
  const Workload* workload;
  std::uint64_t iterations;
};
constexpr std::array<Part, 4> parts{{
    {&mixed_workload, 100},
    {&flushed_loads_workload, 20},
    {&unpredictable_workload, 50},
    {&cpuids_workload, 5},
}};

}  // namespace

void run_load() {
  for (const Part& part : parts) {
    run_in_user_by_iret(part.workload->function, part.iterations, rflags::always_one | rflags::interrupts);
  }
}

std::uint64_t load_events(EventKind event) {
  std::uint64_t sum = 0;
  for (const Part& part : parts) {
    if (event == EventKind::instructions) {
      sum += part.workload->instructions(part.iterations) + iret_path.user_instructions;
    } else if (event == EventKind::branches) {
      sum += part.workload->branches(part.iterations) + iret_path.user_branches;
    }
  }
  return sum;
}

std::uint64_t usual_period(EventKind event) {
  const std::uint64_t percent = option("period", 100);
  switch (event) {
    case EventKind::instructions:
      return 1999 * percent / 100;
    case EventKind::cycles:
    case EventKind::ref_cycles:
      return 4001 * percent / 100;
    case EventKind::branches:
      return 997 * percent / 100;
    case EventKind::branch_misses:
    case EventKind::llc_references:
    case EventKind::llc_misses:
      break;
  }
  return 101 * percent / 100;
}

}  // namespace vpmu::guest
