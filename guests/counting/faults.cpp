// Faulting instructions do not retire; and what ring 3 may do.
#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/interrupts.hpp"
#include "runtime/machine.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

void check_user_fault(UserFunction function, std::uint64_t argument, std::uint8_t vector, std::uint64_t error,
                      Text what) {
  caught_fault() = {};
  const std::uint64_t result = run_in_user_by_iret(function, argument, rflags::always_one);
  check(Kind::faults, caught_fault().happened && result == user_faulted, what, argument);
  check_equal(Kind::faults, caught_fault().vector, vector, what, argument);
  check_equal(Kind::faults, caught_fault().error, error, what, argument);
}

void check_user_rdpmc() {
  if (option("user_rdpmc", 1) == 0) {
    unavailable("RDPMC in ring 3 (user_rdpmc=0)");
    return;
  }
  Pmu& unit = pmu();
  for_each_counter(unit.counters(), [&](CounterId counter) {
    const std::uint32_t index = unit.rdpmc_index(counter);
    unit.write(counter, 0x4321 + counter.bit());
    write_cr4(read_cr4() & ~cr4::user_rdpmc);
    check_user_fault(user_rdpmc, index, vector::general_protection, 0, "RDPMC in ring 3 without CR4.PCE");
    write_cr4(read_cr4() | cr4::user_rdpmc);
    const std::uint64_t got = run_in_user_by_iret(user_rdpmc, index, rflags::always_one);
    check_equal(Kind::registers, got, 0x4321 + counter.bit(), "RDPMC in ring 3 with CR4.PCE", counter.bit());
  });
  if (ignores_unknown_msrs()) return;  // and answers RDPMC with #UD
  write_cr4(read_cr4() | cr4::user_rdpmc);
  check_user_fault(user_rdpmc, 0x12345, vector::general_protection, 0, "RDPMC of no counter in ring 3");
  write_cr4(read_cr4() & ~cr4::user_rdpmc);
}

}  // namespace

void check_faulting_instructions() {
  begin_group("faulting");
  Pmu& unit = pmu();
  unit.reset();
  const std::uint64_t iterations = scaled(50);
  const std::uint64_t before = caught_faults();
  std::uint64_t runs = 0;
  const Task task{.workload = &faults_workload, .iterations = iterations, .place = Place::user_by_iret};
  for (const EventKind event : {EventKind::instructions, EventKind::branches}) {
    const CounterSet able = unit.counters_of(event);
    if (unit.present() && able == 0) unavailable(name_of(event));
    for_each_counter(able, [&](CounterId counter) {
      unit.program(counter, {.event = event, .rings = Rings::user});
      unit.write(counter, 0);
      const WriteList start = unit.start_list(counter.mask());
      measure(start, unit.stop_list(counter.mask()), task);
      ++runs;
      const std::uint64_t expected = expected_count(event, Rings::user, start, task);
      // AMD's branch event counts exceptions too, and its manual does not say for which ring.
      const std::uint64_t exceptions = !unit.is_intel() && event == EventKind::branches ? 2 * iterations : 0;
      check_between(Kind::counts, unit.read(counter), expected, expected + exceptions, "counted beside faults",
                    counter.bit());
      unit.clear(counter);
    });
  }
  check_equal(Kind::faults, caught_faults() - before, 2 * iterations * runs, "faults taken");
  unit.reset();
}

void check_user_access() {
  begin_group("user");
  constexpr std::uint64_t user_read_of_present_page = 5;  // SDM volume 3, figure "Page-Fault Error Code"
  check_user_fault(user_cli, 0, vector::general_protection, 0, "CLI in ring 3");
  check_user_fault(user_in, 0x3FD, vector::general_protection, 0, "IN in ring 3");
  check_user_fault(user_rdmsr, index_of(msr::apic_base), vector::general_protection, 0, "RDMSR in ring 3");
  check_user_fault(user_kernel_read, 0, vector::page_fault, user_read_of_present_page,
                   "read of a kernel page in ring 3");
  const std::uint64_t allowed = run_in_user_by_iret(user_in, 0x3FD, rflags::always_one | rflags::port_access);
  check(Kind::registers, allowed != user_faulted, "IN in ring 3 with IOPL 3");
  check_equal(Kind::registers, run_in_user_by_sysret(spin_workload.function, 3, rflags::always_one),
              run_in_user_by_iret(spin_workload.function, 3, rflags::always_one), "ring 3 by SYSRET and by IRET");
  check_user_rdpmc();
}

}  // namespace vpmu::guest
