// Known loops, counted exactly: each counter, all at once, each ring, each gate that can stop a counter.
#include <array>

#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "vpmu/event_select.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

constexpr std::array<const Workload*, 7> workloads{&spin_workload,     &nops_workload,    &mixed_workload,
                                                   &indirect_workload, &strings_workload, &cpuid_pairs_workload,
                                                   &cpuids_workload};
constexpr std::array<Place, 3> places{Place::kernel, Place::user_by_iret, Place::user_by_sysret};
constexpr std::array<Rings, 3> all_rings{Rings::both, Rings::user, Rings::kernel};

/// What a counter counts while all run: the assignment rotates, so that in six rounds each does everything.
Setup setup_of(CounterId counter, std::uint32_t round) {
  const std::uint32_t turn = counter.number() + round;
  Setup setup{.event = turn % 2 == 0 ? EventKind::instructions : EventKind::branches, .rings = all_rings[turn / 2 % 3]};
  if (counter.is_fixed()) setup.event = arch::fixed_events[counter.number() % arch::fixed_events.size()];
  return setup;
}

void count_with_all(const Task& task, std::uint32_t round) {
  Pmu& unit = pmu();
  CounterSet used = 0;
  for_each_counter(unit.counters(), [&](CounterId counter) {
    const Setup setup = setup_of(counter, round);
    if (!unit.can_count(counter, setup.event)) return;
    unit.program(counter, setup);
    unit.write(counter, 0);
    used |= counter.mask();
  });
  if (used == 0) return;
  const WriteList start = unit.start_list(used);
  measure(start, unit.stop_list(used), task);
  for_each_counter(used, [&](CounterId counter) {
    const Setup setup = setup_of(counter, round);
    if (setup.event != EventKind::instructions && setup.event != EventKind::branches) return;
    check_equal(Kind::counts, unit.read(counter), expected_count(setup.event, setup.rings, start, task),
                task.workload->name, counter.bit() | std::uint64_t{round} << 8);
  });
}

/// One counter alone, for longer.
void count_with_one(CounterId counter, const Setup& setup, const Task& task) {
  Pmu& unit = pmu();
  unit.program(counter, setup);
  unit.write(counter, 0);
  const WriteList start = unit.start_list(counter.mask());
  measure(start, unit.stop_list(counter.mask()), task);
  check_equal(Kind::counts, unit.read(counter), expected_count(setup.event, setup.rings, start, task),
              task.workload->name, counter.bit());
  unit.clear(counter);
}

/// A counter of the event, or of none.
CounterSet first_of(EventKind event) {
  const CounterSet able = pmu().counters_of(event);
  return able & (0 - able);
}

/// Counts with everything set up right but one thing: then nothing counts.
void check_closed(Text what, const WriteList& start, const WriteList& stop, CounterId counter) {
  Pmu& unit = pmu();
  unit.write(counter, 0);
  measure(start, stop, {.workload = &mixed_workload, .iterations = 10});
  check_equal(Kind::counts, unit.read(counter), 0, what, counter.bit());
}

WriteList one_write(Msr msr, std::uint64_t value) {
  WriteList list;
  list.add(msr, value);
  return list;
}

/// The selector's own enable bit starts and stops a counter, also where a global register exists.
void check_selector_gate(CounterId counter, EventKind event) {
  Pmu& unit = pmu();
  const Task task{.workload = &mixed_workload, .iterations = 10};
  const std::uint64_t on = unit.selector_value({.event = event, .rings = Rings::kernel});
  const std::uint64_t off = on & ~std::uint64_t{evtsel::enable};
  const WriteList start = one_write(unit.selector(counter), on);
  const WriteList stop = one_write(unit.selector(counter), off);
  write_msr(unit.selector(counter), off);
  if (unit.has_global()) write_msr(unit.global_ctrl(), counter.mask());
  unit.write(counter, 0);
  measure(start, stop, task);
  check_equal(Kind::counts, unit.read(counter), expected_count(event, Rings::kernel, start, task),
              "started and stopped by its selector", counter.bit());
  check_closed("without the enable bit", stop, stop, counter);
  const std::uint64_t ringless = on & ~std::uint64_t{evtsel::kernel | evtsel::user};
  check_closed("for no ring", one_write(unit.selector(counter), ringless), stop, counter);
  if (unit.has_global()) {
    write_msr(unit.global_ctrl(), 0);
    check_closed("without its bit in the global control", start, stop, counter);
    write_msr(unit.global_ctrl(), unit.counters() & ~counter.mask());
    check_closed("with all but its bit in the global control", start, stop, counter);
    write_msr(unit.global_ctrl(), 0);
  }
  unit.clear(counter);
}

/// IA32_FIXED_CTR_CTRL alone starts and stops a fixed counter whose global bit stays set.
void check_fixed_gate(CounterId counter) {
  Pmu& unit = pmu();
  const Task task{.workload = &mixed_workload, .iterations = 10};
  const bool by_ring = counter.number() == 0 || option("cycle_rings", 1) != 0;
  const std::uint64_t rings = by_ring ? fixed_ctrl::kernel : fixed_ctrl::kernel | fixed_ctrl::user;
  const WriteList start = one_write(Msr::ia32_fixed_ctr_ctrl, rings << (4 * counter.number()));
  const WriteList stop = one_write(Msr::ia32_fixed_ctr_ctrl, 0);
  write_msr(Msr::ia32_fixed_ctr_ctrl, 0);
  write_msr(unit.global_ctrl(), counter.mask());
  unit.write(counter, 0);
  measure(start, stop, task);
  const std::uint64_t counted = unit.read(counter);
  if (counter.number() == 0) {
    check_equal(Kind::counts, counted, expected_count(EventKind::instructions, Rings::kernel, start, task),
                "started and stopped by FIXED_CTR_CTRL", counter.bit());
  } else {
    check(Kind::counts, counted != 0, "started by FIXED_CTR_CTRL", counter.bit());
    spin_workload.function(100);
    check_equal(Kind::counts, unit.read(counter), counted, "stopped by FIXED_CTR_CTRL", counter.bit());
  }
  check_closed("without a ring", stop, stop, counter);
  write_msr(unit.global_ctrl(), unit.counters() & ~counter.mask());
  check_closed("with all but its bit in the global control", start, stop, counter);
  write_msr(unit.global_ctrl(), 0);
  unit.clear(counter);
}

/// A WRMSR to a control that changes nothing is an instruction like any other.
void check_rewrite(CounterId counter) {
  Pmu& unit = pmu();
  const Setup setup{.event = EventKind::instructions, .rings = Rings::kernel};
  const Task task{.workload = &spin_workload, .iterations = 10};
  unit.program(counter, setup);
  unit.write(counter, 0);
  WriteList start = unit.start_list(counter.mask());
  WriteList stop = start;
  const std::uint64_t expected = expected_count(setup.event, setup.rings, start, task);
  measure(start, stop, task);
  const std::uint64_t between = unit.read(counter);
  unit.stop(counter.mask());
  // Past `expected`: the second WRMSR itself, and what led to the read.
  check(Kind::counts, between > expected, "writing the same control again stops nothing", counter.bit());
  unit.clear(counter);
}

}  // namespace

void check_exact_counts() {
  begin_group("exact");
  Pmu& unit = pmu();
  unit.reset();
  if (!unit.offers(EventKind::instructions)) unavailable("instructions");
  if (!unit.offers(EventKind::branches)) unavailable("branches");
  const std::uint64_t iterations = scaled(20);
  for (const Workload* workload : workloads) {
    for (const Place place : places) {
      for (std::uint32_t round = 0; round < 6; ++round) {
        count_with_all({.workload = workload, .iterations = iterations, .place = place}, round);
      }
    }
  }
  unit.reset();
  for (const EventKind event : {EventKind::instructions, EventKind::branches}) {
    for_each_counter(unit.counters_of(event), [&](CounterId counter) {
      count_with_one(counter, {.event = event, .rings = Rings::kernel}, {.workload = &mixed_workload, .iterations = 1});
      count_with_one(counter, {.event = event}, {.workload = &spin_workload, .iterations = 1, .place = places[1]});
    });
    for_each_counter(first_of(event), [&](CounterId counter) {
      for (const Workload* workload : {&spin_workload, &mixed_workload, &indirect_workload}) {
        count_with_one(counter, {.event = event, .rings = Rings::kernel},
                       {.workload = workload, .iterations = scaled(50'000)});
        count_with_one(counter, {.event = event, .rings = Rings::user},
                       {.workload = workload, .iterations = scaled(50'000), .place = places[1]});
      }
    });
  }
  unit.reset();
}

void check_gates() {
  begin_group("gates");
  Pmu& unit = pmu();
  unit.reset();
  bool any = false;
  for (const EventKind event : {EventKind::instructions, EventKind::branches}) {
    if (!unit.offers(event)) continue;
    any = true;
    for_each_counter(unit.gp_counters(), [&](CounterId counter) { check_selector_gate(counter, event); });
  }
  for_each_counter(unit.counters() & ~unit.gp_counters(), [&](CounterId counter) {
    if (counter.number() >= arch::fixed_events.size()) return;
    if (!unit.can_count(counter, arch::fixed_events[counter.number()])) return;
    any = true;
    check_fixed_gate(counter);
  });
  for_each_counter(first_of(EventKind::instructions), check_rewrite);
  if (!any) unavailable("instructions and branches");
  unit.reset();
}

}  // namespace vpmu::guest
