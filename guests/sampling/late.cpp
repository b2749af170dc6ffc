// PMIs that have to wait: in the shadow of STI, and inside the NMI handler.
#include <bit>

#include "runtime/checks.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/pmi.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "sampling/groups.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

constexpr Setup interrupting{.event = EventKind::instructions, .rings = Rings::kernel, .interrupt = Interrupt::on};

void check_shadow(CounterId counter) {
  Pmu& unit = pmu();
  const Workload shadow{.function = sti_shadow,
                        .each_instructions = 0,
                        .once_instructions = 46,
                        .each_branches = 0,
                        .once_branches = 1,
                        .name = "sti_shadow"};
  pmi_tally() = {};
  route_pmis(Delivery::vector, count_pmi);
  unit.program(counter, interrupting);
  unit.arm(counter, 30);
  measure(unit.start_list(counter.mask()), unit.stop_list(counter.mask()), {.workload = &shadow});
  check_equal(Kind::interrupts, pmi_tally().count, 1, "PMI that waited for STI", counter.bit());
  check_equal(Kind::interrupts, pmi_tally().rip, reinterpret_cast<std::uint64_t>(shadow_end),
              "it came after STI's shadow", counter.bit());
  mask_pmis();
  unit.reset();
}

/// What the first NMI's handler saw of the second overflow.
struct Nested {
  CounterId first = CounterId::gp(0);
  CounterId second = CounterId::gp(0);
  std::uint64_t nmis = 0;
  std::uint64_t inside = 0;
  std::uint64_t overflowed = 0;
  std::uint64_t rip[2] = {};
};
constinit Nested nested{};

void overflow_inside(InterruptFrame& frame) {
  Pmu& unit = pmu();
  if (nested.nmis < 2) nested.rip[nested.nmis] = frame.rip;
  ++nested.nmis;
  unit.stop(nested.first.mask() | nested.second.mask());
  if (unit.has_global()) unit.acknowledge(unit.status_bits());
  write_apic(ApicRegister::lvt_performance, lvtpc_value(Delivery::nmi));
  if (nested.nmis > 1) return;
  unit.program(nested.second, interrupting);
  unit.arm(nested.second, 50);
  unit.start(nested.second.mask());
  spin_workload.function(100);
  unit.stop(nested.second.mask());
  nested.inside = nested.nmis - 1;
  nested.overflowed = unit.overflowed(nested.second.mask());
}

void check_nested(CounterId first, CounterId second) {
  Pmu& unit = pmu();
  nested = {.first = first, .second = second};
  route_pmis(Delivery::nmi, overflow_inside);
  unit.program(first, interrupting);
  unit.arm(first, 100);
  measure(unit.start_list(first.mask()), unit.stop_list(first.mask()), {.workload = &nops_workload, .iterations = 100});
  check_equal(Kind::interrupts, nested.inside, 0, "no NMI inside the NMI handler", first.bit());
  check_equal(Kind::counts, nested.overflowed, second.mask(), "overflow inside the NMI handler", first.bit());
  check_equal(Kind::interrupts, nested.nmis, 2, "it is delivered after the IRET", first.bit());
  check_equal(Kind::interrupts, nested.rip[1], nested.rip[0], "before another instruction", first.bit());
  mask_pmis();
  unit.reset();
}

}  // namespace

void check_late_delivery() {
  begin_group("late");
  Pmu& unit = pmu();
  unit.reset();
  const CounterSet able = unit.counters_of(EventKind::instructions);
  if ((able & (able - 1)) == 0) {
    unavailable("instructions on two counters");
    return;
  }
  for_each_counter(able, [&](CounterId counter) {
    // Later than this the PMI misses the place.
    constexpr std::uint64_t longest_skid = 10;
    if (option("rip", 1) != 0 && option("skid", 0) <= longest_skid) check_shadow(counter);
    const CounterSet others = able & ~counter.mask();
    check_nested(counter, CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(others))));
  });
}

}  // namespace vpmu::guest
