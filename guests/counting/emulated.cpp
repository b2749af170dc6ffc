// Instructions that a virtual machine monitor completes: each counts once, where it stands.
#include <array>

#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

void count(const Task& task) {
  Pmu& unit = pmu();
  for (const EventKind event : {EventKind::instructions, EventKind::branches}) {
    const CounterSet able = unit.counters_of(event);
    for_each_counter(able & (0 - able), [&](CounterId counter) {
      unit.program(counter, {.event = event});
      unit.write(counter, 0);
      const WriteList start = unit.start_list(counter.mask());
      measure(start, unit.stop_list(counter.mask()), task);
      check_equal(Kind::counts, unit.read(counter), expected_count(event, Rings::both, start, task),
                  task.workload->name, task.iterations);
      unit.clear(counter);
    });
  }
}

}  // namespace

void check_emulated() {
  begin_group("emulated");
  Pmu& unit = pmu();
  unit.reset();
  if (!unit.offers(EventKind::instructions)) unavailable("instructions");
  if (!unit.offers(EventKind::branches)) unavailable("branches");
  exit_msr = index_of(unit.selector(CounterId::gp(unit.profile().gp_counters - 1U)));
  exit_pmc = unit.rdpmc_index(CounterId::gp(unit.profile().gp_counters - 1U));
  constexpr std::array<const Workload*, 7> kernel_only{
      &cpuid_pairs_workload, &port_reads_workload, &port_writes_workload, &msr_reads_workload,
      &msr_writes_workload,  &pmc_reads_workload,  &apic_reads_workload};
  for (const Workload* workload : kernel_only) {
    count({.workload = workload, .iterations = 1});
    count({.workload = workload, .iterations = scaled(100)});
  }
  for (const Workload* workload : {&cpuid_pairs_workload, &cpuids_workload}) {
    count({.workload = workload, .iterations = scaled(1000), .place = Place::user_by_iret});
  }
  for (const Workload* workload : {&port_reads_workload, &port_writes_workload}) {
    count({.workload = workload,
           .iterations = scaled(100),
           .place = Place::user_by_iret,
           .user_flags = rflags::always_one | rflags::port_access});
  }
  unit.reset();
}

}  // namespace vpmu::guest
