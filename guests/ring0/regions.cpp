// Load, guest region, put: what counts in the region, and what it leaves behind.
#include <array>

#include "ring0/groups.hpp"
#include "ring0/hypervisor.hpp"
#include "runtime/checks.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/processor.hpp"
#include "vpmu/event_filter.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

constexpr std::array<const char*, 3> switch_names{"write", "elide", "ownership"};
constexpr std::array switches{Policy::Switch::write, Policy::Switch::elide, Policy::Switch::ownership};

Policy policy_of(Policy::Switch mode) {
  Policy policy;
  policy.mode_switch = mode;
  return policy;
}

std::uint64_t expected_in(EventKind event, const Workload& workload, std::uint64_t iterations) {
  return event == EventKind::branches ? world_switch_counts.branches + workload.branches(iterations)
                                      : world_switch_counts.instructions + workload.instructions(iterations);
}

/// The register by which the guest writes a counter whole.
Msr value_msr(CounterId counter) {
  if (counter.is_fixed()) return ia32_fixed_ctr[counter.number()];
  return pmu().is_intel() ? ia32_a_pmc[counter.number()] : amd_core_perf_ctr[counter.number()];
}

/// The guest has these counters count the event from 0, and starts them.
void program(Vcpu& vcpu, CounterSet counters, const Setup& setup) {
  std::uint64_t fixed = 0;
  for_each_counter(counters, [&](CounterId counter) {
    vcpu.write(value_msr(counter), 0);
    if (counter.is_fixed()) {
      fixed |= (fixed_ctrl::kernel | (setup.interrupt == Interrupt::on ? fixed_ctrl::interrupt : 0))
               << (4 * counter.number());
    } else {
      vcpu.write(pmu().selector(counter), pmu().selector_value(setup));
    }
  });
  if (pmu().is_intel()) vcpu.write(Msr::ia32_fixed_ctr_ctrl, fixed);
  vcpu.write(pmu().global_ctrl(), counters);
}

void check_values(Vcpu& vcpu, CounterSet counters, std::uint64_t expected, Text what) {
  for_each_counter(counters, [&](CounterId counter) {
    check_equal(Kind::counts, vcpu.read(value_msr(counter)), expected, what, counter.bit());
  });
}

constexpr std::uint64_t iterations = 100;

void count_region(Hypervisor& hypervisor, Policy::Switch mode, EventKind event) {
  const CounterSet counters = pmu().counters_of(event);
  if (counters == 0) return unavailable(name_of(event));
  Vcpu vcpu{hypervisor, policy_of(mode)};
  program(vcpu, counters, {.event = event, .rings = Rings::kernel});
  const std::uint64_t once = expected_in(event, mixed_workload, iterations);
  vcpu.run(mixed_workload.function, iterations);
  spin_workload.function(1000);  // the host's
  check_values(vcpu, counters, once, "one region");
  vcpu.run(mixed_workload.function, iterations);
  check_values(vcpu, counters, 2 * once, "two regions");
  vcpu.pmu.sched_out();
  check(Kind::registers, hypervisor.host_has_the_pmu(), "the host has its PMU back after a time slice");
  spin_workload.function(1000);
  vcpu.run(mixed_workload.function, iterations);
  check_values(vcpu, counters, 3 * once, "a region in the next time slice");
  // An instruction that the hypervisor completes.
  vcpu.pmu.retire(EmulatedEvent::instruction, [] { return 0U; });
  check_values(vcpu, counters, 3 * once + (event == EventKind::instructions ? 1 : 0), "an emulated instruction");
  vcpu.write(pmu().global_ctrl(), 0);
  vcpu.run(mixed_workload.function, iterations);
  check_values(vcpu, counters, 3 * once + (event == EventKind::instructions ? 1 : 0), "stopped counters");
}

// --- What the guest does without its hypervisor ---

constinit std::uint64_t seen_value = 0;
constinit std::uint64_t seen_status = 0;

/// Stops all counters itself, and reads the first by RDPMC.
std::uint64_t stop_and_read(std::uint64_t /*unused*/) {
  write_msr(pmu().global_ctrl(), 0);
  seen_value = read_pmc(0);
  seen_status = read_msr(pmu().global_status());
  mixed_workload.function(iterations);
  return 0;
}

/// Gives the first counter another value.
std::uint64_t write_counter(std::uint64_t value) {
  write_msr(value_msr(CounterId::gp(0)), value);
  return 0;
}

}  // namespace

void check_regions(Hypervisor& hypervisor) {
  for (std::size_t i = 0; i < switches.size(); ++i) {
    begin_group(switch_names[i]);
    count_region(hypervisor, switches[i], EventKind::instructions);
    count_region(hypervisor, switches[i], EventKind::branches);
    check_equal(Kind::registers, hypervisor.left_behind(), 0, "registers that a put left behind");
  }
}

void check_host(Hypervisor& hypervisor) {
  begin_group("host");
  Pmu& unit = pmu();
  for (const Policy::Switch mode : switches) {
    Vcpu vcpu{hypervisor, policy_of(mode)};
    const CounterSet guests = unit.counters_of(EventKind::instructions);
    program(vcpu, guests, {.event = EventKind::instructions, .rings = Rings::kernel});
    const Task task{.workload = &spin_workload, .iterations = iterations};
    // The same registers are the host's before and after the guest has them.
    for_each_counter(guests, [&](CounterId counter) {
      unit.program(counter, {.event = EventKind::instructions, .rings = Rings::kernel});
      unit.write(counter, 0);
      const WriteList start = unit.start_list(counter.mask());
      const WriteList stop = unit.stop_list(counter.mask());
      const std::uint64_t once = expected_count(EventKind::instructions, Rings::kernel, start, task);
      measure(start, stop, task);
      const std::uint64_t selector =
          counter.is_fixed() ? read_msr(Msr::ia32_fixed_ctr_ctrl) : read_msr(unit.selector(counter));
      vcpu.run(mixed_workload.function, iterations);
      vcpu.pmu.sched_out();
      check_equal(Kind::counts, unit.read(counter), once, "the host's count after the guest", counter.bit());
      check_equal(Kind::registers,
                  counter.is_fixed() ? read_msr(Msr::ia32_fixed_ctr_ctrl) : read_msr(unit.selector(counter)), selector,
                  "the host's control after the guest", counter.bit());
      measure(start, stop, task);
      check_equal(Kind::counts, unit.read(counter), 2 * once, "the host goes on counting", counter.bit());
      unit.clear(counter);
      unit.write(counter, 0);
    });
    check_equal(Kind::registers, read_apic(ApicRegister::lvt_performance), lvt::nmi, "LVTPC is the host's");
  }
  check_equal(Kind::registers, hypervisor.left_behind(), 0, "registers that a put left behind");
  unit.reset();
}

void check_guests(Hypervisor& hypervisor) {
  begin_group("guests");
  for (const Policy::Switch mode : switches) {
    Vcpu one{hypervisor, policy_of(mode)};
    Vcpu other{hypervisor, policy_of(mode)};
    program(one, CounterId::gp(0).mask(), {.event = EventKind::instructions, .rings = Rings::kernel});
    program(other, CounterId::gp(0).mask(), {.event = EventKind::branches, .rings = Rings::kernel});
    constexpr std::uint64_t turns = 5;
    for (std::uint64_t i = 0; i < turns; ++i) {
      one.run(mixed_workload.function, iterations);
      one.pmu.sched_out();
      other.run(spin_workload.function, iterations);
      other.pmu.sched_out();
    }
    check_values(one, CounterId::gp(0).mask(), turns * expected_in(EventKind::instructions, mixed_workload, iterations),
                 "the first guest's");
    check_values(other, CounterId::gp(0).mask(), turns * expected_in(EventKind::branches, spin_workload, iterations),
                 "the second guest's");
  }
}

void check_interrupts(Hypervisor& hypervisor) {
  begin_group("interrupts");
  constexpr CounterId counter = CounterId::gp(0);
  for (const Policy::Switch mode : switches) {
    Vcpu vcpu{hypervisor, policy_of(mode)};
    program(vcpu, counter.mask(),
            {.event = EventKind::instructions, .rings = Rings::kernel, .interrupt = Interrupt::on});
    vcpu.write(value_msr(counter), pmu().mask(counter) - 499);  // the 500th overflows
    check(Kind::interrupts, vcpu.run(mixed_workload.function, iterations) == EntryAction::none, "no PMI before");
    check_equal(Kind::registers, vcpu.read(pmu().global_status()), counter.mask(), "status of the overflow");
    check_equal(Kind::counts, vcpu.read(value_msr(counter)),
                expected_in(EventKind::instructions, mixed_workload, iterations) - 500, "events since the overflow");
    check(Kind::interrupts, vcpu.run(mixed_workload.function, 1) == EntryAction::inject_pmi, "a PMI is reported");
    check(Kind::interrupts, vcpu.run(mixed_workload.function, 1) == EntryAction::none, "once");
    vcpu.write(pmu().global_clear(), counter.mask());
    check_equal(Kind::registers, vcpu.read(pmu().global_status()), 0, "the guest clears it");
    vcpu.pmu.sched_out();
    check_equal(Kind::registers, read_apic(ApicRegister::lvt_performance), lvt::nmi, "LVTPC is the host's");
  }
}

void check_own_accesses(Hypervisor& hypervisor) {
  begin_group("own");
  constexpr CounterId counter = CounterId::gp(0);
  for (const Policy::Switch mode : {Policy::Switch::write, Policy::Switch::elide}) {
    Vcpu vcpu{hypervisor, policy_of(mode)};
    program(vcpu, counter.mask(), {.event = EventKind::instructions, .rings = Rings::kernel});
    seen_value = 0;
    vcpu.run(stop_and_read, 0);
    check(Kind::registers, hypervisor.pass().global && hypervisor.pass().rdpmc, "all that may pass does");
    check(Kind::counts, seen_value > world_switch_counts.instructions, "RDPMC in the guest");
    check_equal(Kind::counts, vcpu.read(value_msr(counter)), seen_value, "nothing after the guest's own stop");
    check_equal(Kind::registers, vcpu.read(pmu().global_ctrl()), 0, "GLOBAL_CTRL as the guest left it");
    check_equal(Kind::registers, seen_status, 0, "status in the guest");
    vcpu.run(write_counter, 0x12345);
    check_equal(Kind::counts, vcpu.read(value_msr(counter)), 0x12345, "the value that the guest wrote");
  }
}

void check_filter(Hypervisor& hypervisor) {
  begin_group("filter");
  Pmu& unit = pmu();
  const std::uint64_t denied[] = {arch::event_code(unit.profile().vendor, EventKind::instructions)};
  EventFilter filter;
  const auto loaded = filter.load(
      unit.profile().vendor, {.action = FilterRequest::deny, .fixed_bitmap = 1, .events = denied, .event_count = 1});
  check(Kind::registers, loaded.ok(), "the filter loads");
  Vcpu vcpu{hypervisor, Policy{}};
  vcpu.pmu.set_filter(&filter);
  const CounterSet counters = unit.counters_of(EventKind::instructions);
  program(vcpu, counters, {.event = EventKind::instructions, .rings = Rings::kernel});
  vcpu.run(mixed_workload.function, iterations);
  check_values(vcpu, counters, 0, "a denied event");
  check_equal(Kind::registers, vcpu.read(unit.selector(CounterId::gp(0))),
              unit.selector_value({.event = EventKind::instructions, .rings = Rings::kernel}), "its selector");
  vcpu.pmu.set_filter(nullptr);
  vcpu.run(mixed_workload.function, iterations);
  check_values(vcpu, counters, expected_in(EventKind::instructions, mixed_workload, iterations), "let through again");
}

}  // namespace vpmu::guest
