// Overflow: which event does it, what status says, and which interrupts follow.
#include <array>

#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/pmi.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

constexpr Setup silent{.event = EventKind::instructions, .rings = Rings::kernel};
constexpr Setup interrupting{.event = EventKind::instructions, .rings = Rings::kernel, .interrupt = Interrupt::on};
constexpr Task task{.workload = &mixed_workload, .iterations = 10};

std::uint64_t total(const WriteList& start) {
  return expected_count(EventKind::instructions, Rings::kernel, start, task);
}

/// FACTS of the legacy write: 0xFFFFFFEA is -22, and the 22nd event overflows.
void check_22nd(CounterId counter) {
  Pmu& unit = pmu();
  if (!unit.has_global()) return;
  std::array<std::uint64_t, 2> status{};
  unit.program(counter, silent);
  unit.write(counter, 0);
  unit.start(counter.mask());
  const bool legacy = unit.is_intel() && !counter.is_fixed();
  watch_22nd_instruction(index_of(unit.value(counter)), legacy ? 0xFFFF'FFEA : 0 - std::uint64_t{22},
                         index_of(unit.global_status()), status.data());
  unit.stop(counter.mask());
  check_equal(Kind::counts, status[0], 0, "status before the 22nd event", counter.bit());
  check_equal(Kind::counts, status[1], counter.mask(), "status after the 22nd event", counter.bit());
  unit.acknowledge(status[1]);
  unit.clear(counter);
}

/// A period that is met exactly, missed by one, and passed.
void check_boundary(CounterId counter) {
  Pmu& unit = pmu();
  for (const std::int64_t extra : {-1, 0, 1, 20}) {
    unit.program(counter, silent);
    const WriteList start = unit.start_list(counter.mask());
    unit.write(counter, static_cast<std::uint64_t>(extra) - total(start));
    measure(start, unit.stop_list(counter.mask()), task);
    check_equal(Kind::counts, unit.read(counter), static_cast<std::uint64_t>(extra) & unit.mask(counter),
                "value past an overflow", counter.bit());
    const std::uint64_t expected = extra >= 0 ? counter.mask() : 0;
    check_equal(Kind::counts, unit.overflowed(counter.mask()), expected, "overflowed", counter.bit());
    unit.acknowledge(counter.mask());
    if (unit.has_global()) {
      check_equal(Kind::registers, read_msr(unit.global_status()), 0, "status acknowledged", counter.bit());
    }
    unit.clear(counter);
  }
}

/// All overflow, none interrupts; status is cleared bit by bit.
void check_all_silent(CounterSet able) {
  Pmu& unit = pmu();
  if (!unit.has_global()) return;
  pmi_tally() = {};
  route_pmis(Delivery::nmi, count_pmi);
  for_each_counter(able, [&](CounterId counter) {
    unit.program(counter, silent);
    unit.arm(counter, 20 + counter.number());
  });
  const WriteList start = unit.start_list(able);
  measure(start, unit.stop_list(able), task);
  check_equal(Kind::registers, read_msr(unit.global_status()), able, "status of all counters");
  std::uint64_t left = able;
  for_each_counter(able, [&](CounterId counter) {
    check_equal(Kind::counts, unit.read(counter), total(start) - 20 - counter.number(), "value past its overflow",
                counter.bit());
    left &= ~counter.mask();
    unit.acknowledge(counter.mask());
    check_equal(Kind::registers, read_msr(unit.global_status()), left, "one status bit cleared", counter.bit());
    unit.clear(counter);
  });
  check_equal(Kind::interrupts, pmi_tally().count, 0, "no PMI without the interrupt bit");
  mask_pmis();
}

/// The same instruction overflows them all: one PMI, all status bits.
void check_coalesced(CounterSet able, const Workload& workload, std::uint64_t before_it) {
  Pmu& unit = pmu();
  if (!unit.has_global()) return;
  pmi_tally() = {};
  route_pmis(Delivery::nmi, count_pmi);
  for_each_counter(able, [&](CounterId counter) {
    unit.program(counter, interrupting);
    unit.arm(counter, instructions_before_kernel_workload() + before_it);
  });
  measure(unit.start_list(able), unit.stop_list(able), {.workload = &workload, .iterations = 10});
  check_equal(Kind::interrupts, pmi_tally().count, 1, workload.name);
  check_equal(Kind::registers, read_msr(unit.global_status()), able, "status of counters that overflowed together");
  if (pmi_masks_lvtpc()) check(Kind::interrupts, pmi_tally().masked, "LVTPC is masked when a PMI is taken");
  if (!unit.is_intel()) check(Kind::interrupts, !pmi_tally().masked, "LVTPC is not masked by a PMI");
  unit.reset();
  mask_pmis();
}

/// A masked LVTPC drops the PMI for good; the overflow itself shows.
void check_masked(CounterId counter) {
  Pmu& unit = pmu();
  pmi_tally() = {};
  route_pmis(Delivery::nmi, count_pmi);
  mask_pmis();
  unit.program(counter, interrupting);
  unit.arm(counter, 30);
  measure(unit.start_list(counter.mask()), unit.stop_list(counter.mask()), task);
  route_pmis(Delivery::nmi, count_pmi);
  spin_workload.function(100);
  check_equal(Kind::interrupts, pmi_tally().count, 0, "a masked PMI is dropped", counter.bit());
  check_equal(Kind::counts, unit.overflowed(counter.mask()), counter.mask(), "overflow under a masked LVTPC",
              counter.bit());
  mask_pmis();
  unit.reset();
}

/// Vector mode: with IF clear the overflow shows at once, the interrupt comes with STI.
void check_vector(CounterId counter) {
  Pmu& unit = pmu();
  pmi_tally() = {};
  route_pmis(Delivery::vector, count_pmi);
  unit.program(counter, interrupting);
  unit.arm(counter, 30);
  measure(unit.start_list(counter.mask()), unit.stop_list(counter.mask()), task);
  check_equal(Kind::interrupts, pmi_tally().count, 0, "no PMI by vector while IF is 0", counter.bit());
  check_equal(Kind::counts, unit.overflowed(counter.mask()), counter.mask(), "overflow while IF is 0", counter.bit());
  interrupts_on();
  for (int i = 0; i < 10'000 && pmi_tally().count == 0; ++i) asm volatile("pause");
  interrupts_off();
  check_equal(Kind::interrupts, pmi_tally().count, 1, "PMI by vector after STI", counter.bit());
  mask_pmis();
  unit.reset();
}

/// An overflow that writes to the counter follow stays.
void check_overwritten(CounterId counter) {
  Pmu& unit = pmu();
  if (!unit.has_global()) return;
  unit.program(counter, silent);
  unit.arm(counter, 30);
  measure(unit.start_list(counter.mask()), unit.stop_list(counter.mask()), task);
  unit.arm(counter, 1'000'000);
  check_equal(Kind::registers, read_msr(unit.global_status()), counter.mask(), "an overflow outlives a counter write",
              counter.bit());
  unit.reset();
}

}  // namespace

void check_overflow() {
  begin_group("overflow");
  Pmu& unit = pmu();
  unit.reset();
  const CounterSet able = unit.counters_of(EventKind::instructions);
  if (able == 0) {
    unavailable("instructions");
    return;
  }
  for_each_counter(able, [](CounterId counter) {
    check_22nd(counter);
    check_boundary(counter);
    check_masked(counter);
    check_vector(counter);
    check_overwritten(counter);
  });
  check_all_silent(able);
  // At a native instruction, at CPUID (the second of cpuid_pairs after PUSH, MOV, XOR), and just before it.
  check_coalesced(able, nops_workload, 5);
  check_coalesced(able, cpuid_pairs_workload, 4);
  check_coalesced(able, cpuid_pairs_workload, 3);
  check_coalesced(able, cpuid_pairs_workload, 6);
  unit.reset();
}

}  // namespace vpmu::guest
