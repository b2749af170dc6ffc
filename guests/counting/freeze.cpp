// IA32_DEBUGCTL's freeze on PMI (SDM volume 3, "Freezing LBR and Performance Counters on PMI"): up to v3 it clears
// GLOBAL_CTRL, from v4 it sets CTR_FRZ, which stops everything until it is acknowledged.
#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/pmi.hpp"
#include "runtime/pmu.hpp"
#include "runtime/probe.hpp"
#include "runtime/processor.hpp"
#include "vpmu/event_select.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

struct Frozen {
  std::uint64_t pmis = 0;
  std::uint64_t ctrl = 0;
  std::uint64_t status = 0;
};
constinit Frozen frozen{};

void look(InterruptFrame& frame) {
  ++frozen.pmis;
  frozen.ctrl = read_msr(Msr::ia32_perf_global_ctrl);
  frozen.status = read_msr(Msr::ia32_perf_global_status);
  if (frame.vector == vector::pmi) end_of_interrupt();
}

void check_on_pmi(CounterId counter, Delivery delivery) {
  Pmu& unit = pmu();
  const bool v4 = unit.profile().version >= 4;
  constexpr Task task{.workload = &mixed_workload, .iterations = 100};
  constexpr std::uint64_t period = 100;
  frozen = {};
  route_pmis(delivery, look);
  write_msr(Msr::ia32_debugctl, debugctl::freeze_perfmon_on_pmi);
  unit.program(counter, {.event = EventKind::instructions, .rings = Rings::kernel, .interrupt = Interrupt::on});
  unit.arm(counter, period);
  const WriteList start = unit.start_list(counter.mask());
  // Nothing else may stop it: the second list only writes what is there already.
  WriteList stop;
  stop.add(Msr::ia32_debugctl, debugctl::freeze_perfmon_on_pmi);
  if (delivery == Delivery::vector) interrupts_on();
  measure(start, stop, task);
  interrupts_off();
  check_equal(Kind::interrupts, frozen.pmis, 1, "PMI with freezing", counter.bit());
  check_equal(Kind::registers, frozen.ctrl, v4 ? counter.mask() : 0, "GLOBAL_CTRL after a freezing PMI", counter.bit());
  check_equal(Kind::registers, frozen.status, counter.mask() | (v4 ? global_status::counters_frozen : 0),
              "GLOBAL_STATUS after a freezing PMI", counter.bit());
  // Without skid it stopped with the overflowing instruction.
  check_equal(Kind::counts, unit.read(counter), 0, "a frozen counter", counter.bit());
  check_equal(Kind::registers, read_msr(Msr::ia32_debugctl), std::uint64_t{debugctl::freeze_perfmon_on_pmi},
              "DEBUGCTL reads back");
  if (v4) {
    unit.acknowledge(counter.mask());
    spin_workload.function(10);
    check_equal(Kind::counts, unit.read(counter), 0, "frozen until CTR_FRZ is acknowledged", counter.bit());
    unit.acknowledge(global_status::counters_frozen);
    spin_workload.function(10);
    check(Kind::counts, unit.read(counter) > 10, "counts again after that", counter.bit());
  }
  mask_pmis();
  unit.reset();
}

/// v4: software can freeze by 0x391.
void check_by_software(CounterId counter) {
  Pmu& unit = pmu();
  unit.program(counter, {.event = EventKind::instructions, .rings = Rings::kernel});
  unit.write(counter, 0);
  write_msr(Msr::ia32_perf_global_status_set, global_status::counters_frozen);
  const Task task{.workload = &mixed_workload, .iterations = 10};
  const WriteList start = unit.start_list(counter.mask());
  measure(start, unit.stop_list(counter.mask()), task);
  check_equal(Kind::counts, unit.read(counter), 0, "frozen by GLOBAL_STATUS_SET", counter.bit());
  unit.acknowledge(global_status::counters_frozen);
  measure(start, unit.stop_list(counter.mask()), task);
  check_equal(Kind::counts, unit.read(counter), expected_count(EventKind::instructions, Rings::kernel, start, task),
              "thawed", counter.bit());
  unit.reset();
}

}  // namespace

void check_freeze() {
  Pmu& unit = pmu();
  if (!unit.is_intel() || unit.profile().version < 2) return;
  begin_group("freeze");
  unit.reset();
  for (const std::uint64_t bit : {debugctl::freeze_lbrs_on_pmi, debugctl::freeze_perfmon_on_pmi}) {
    if (!check(Kind::registers, try_write_msr(Msr::ia32_debugctl, bit), "DEBUGCTL takes a freeze bit", bit)) return;
    check_equal(Kind::registers, read_msr(Msr::ia32_debugctl), bit, "DEBUGCTL keeps a freeze bit", bit);
  }
  write_msr(Msr::ia32_debugctl, 0);
  const CounterSet able = unit.counters_of(EventKind::instructions);
  if (able == 0) unavailable("instructions");
  for_each_counter(able, [&](CounterId counter) {
    check_on_pmi(counter, Delivery::nmi);
    check_on_pmi(counter, Delivery::vector);
    if (unit.profile().version >= 4) check_by_software(counter);
  });
  unit.reset();
}

}  // namespace vpmu::guest
