#include "workloads/basics.hpp"

#include <bit>

#include "runtime/checks.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/machine.hpp"
#include "runtime/options.hpp"
#include "runtime/pmi.hpp"
#include "runtime/probe.hpp"
#include "runtime/processor.hpp"
#include "runtime/register_rules.hpp"
#include "vpmu/event_select.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

void check_registers() {
  Pmu& unit = pmu();
  for (const std::uint32_t value : {lvt::masked | lvt::nmi, lvt::masked | vector::pmi}) {
    write_apic(ApicRegister::lvt_performance, value);
    check_equal(Kind::registers, read_apic(ApicRegister::lvt_performance), value, "LVTPC reads back", value);
  }
  for_each_counter(unit.gp_counters(), [&](CounterId counter) {
    const std::uint64_t value = unit.selector_value({.event = EventKind::cycles}) & ~std::uint64_t{evtsel::enable};
    write_msr(unit.selector(counter), value);
    check_equal(Kind::registers, read_msr(unit.selector(counter)), value, "selector reads back", counter.bit());
    unit.write(counter, 0x1234);
    check_equal(Kind::registers, unit.read(counter), 0x1234, "counter reads back", counter.bit());
  });
  if (!unit.present() && !unit.is_intel()) {
    check_equal(Kind::registers, read_msr(amd_k7_perf_ctr[0]), 0, "K7 counter without a PMU reads 0");
  }
}

void check_faults() {
  check(Kind::faults, try_read_pmc(0x12345).faulted, "RDPMC of no counter");
  if (ignores_unknown_msrs()) {
    unavailable("faults of absent MSRs: this machine ignores them");
    return;
  }
  const Msr foreign = pmu().is_intel() ? amd_core_perf_ctl[0] : ia32_perfevtsel[0];
  check(Kind::faults, try_read_msr(foreign).faulted, "RDMSR of the other vendor's selector", index_of(foreign));
  check(Kind::faults, !try_write_msr(foreign, 0), "WRMSR of the other vendor's selector", index_of(foreign));
}

void check_count() {
  Pmu& unit = pmu();
  if (!unit.present()) return;
  const CounterSet able = unit.counters_of(EventKind::instructions);
  if (able == 0) {
    unavailable("instructions");
    return;
  }
  const CounterId counter = CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(able)));
  unit.program(counter, {.event = EventKind::instructions, .rings = Rings::kernel});
  unit.write(counter, 0);
  const Task task{.workload = &mixed_workload, .iterations = 100};
  const WriteList start = unit.start_list(counter.mask());
  measure(start, unit.stop_list(counter.mask()), task);
  check_equal(Kind::counts, unit.read(counter), expected_count(EventKind::instructions, Rings::kernel, start, task),
              "instructions of a known loop");
  unit.reset();
}

constinit volatile std::uint64_t ipis = 0;

void count_ipi(InterruptFrame& /*frame*/) {
  ipis = ipis + 1;
  end_of_interrupt();
}

void check_self_ipi() {
  set_interrupt_handler(vector::self_ipi, count_ipi);
  ipis = 0;
  send_self_ipi(vector::self_ipi);
  check_equal(Kind::interrupts, ipis, 0, "no interrupt while IF is 0");
  interrupts_on();
  for (int i = 0; i < 10'000 && ipis == 0; ++i) asm volatile("pause");
  interrupts_off();
  check_equal(Kind::interrupts, ipis, 1, "interrupt by a self-IPI");
}

void check_pmi() {
  Pmu& unit = pmu();
  if (!unit.present()) return;
  EventKind event = EventKind::instructions;
  if (unit.counters_of(event) == 0) event = EventKind::cycles;
  const CounterSet able = unit.counters_of(event);
  if (able == 0) {
    unavailable("an event to overflow by");
    return;
  }
  const CounterId counter = CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(able)));
  pmi_tally() = {};
  route_pmis(Delivery::nmi, count_pmi);
  const bool by_ring = event == EventKind::instructions || option("cycle_rings", 1) != 0;
  unit.program(counter, {.event = event, .rings = by_ring ? Rings::kernel : Rings::both, .interrupt = Interrupt::on});
  unit.arm(counter, 1000);
  unit.start(counter.mask());
  constexpr std::uint64_t patience = 20;
  for (std::uint64_t i = 0; i < patience && pmi_tally().count == 0; ++i) spin_workload.function(100'000);
  unit.stop(counter.mask());
  check_equal(Kind::interrupts, pmi_tally().count, 1, "PMI of an overflow");
  mask_pmis();
  unit.reset();
}

}  // namespace

void check_basics() {
  begin_group("basics");
  pmu().reset();
  check_registers();
  pmu().reset();
  check_faults();
  check_count();
  check_self_ipi();
  check_pmi();
}

}  // namespace vpmu::guest
