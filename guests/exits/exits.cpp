// VM exits: TSC ticks of each kind, with the PMU untouched, idle (counters run, but count nothing that the hypervisor
// emulates) and counting what it emulates.
//
// Options: pmu=off|idle|counting ring=kernel|user kind=NAME (all without), count=N (exits of each), counters=N (1).
#include <array>
#include <bit>

#include "runtime/checks.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "workloads/basics.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {

const char guest_name[] = "exits";

namespace {

struct ExitKind {
  const char* name;
  const Workload* workload;
  bool in_user;  // ring 3 may do it
};
constexpr std::array<ExitKind, 7> kinds{{
    {"cpuid", &cpuids_workload, true},
    {"port-read", &port_reads_workload, true},
    {"port-write", &port_writes_workload, true},
    {"rdmsr", &msr_reads_workload, false},
    {"wrmsr", &msr_writes_workload, false},
    {"rdpmc", &pmc_reads_workload, false},
    {"apic", &apic_reads_workload, false},
}};

enum class Mode : std::uint8_t { off, idle, counting };
constexpr std::array<const char*, 3> mode_names{"off", "idle", "counting"};

bool wanted(Text key, Text value) { return option(key).length == 0 || option(key) == value; }

/// The counters that run, from the lowest on.
CounterSet chosen(EventKind event) {
  CounterSet able = pmu().counters_of(event);
  CounterSet set = 0;
  for (std::uint64_t i = option("counters", 1); i > 0 && able != 0; --i) {
    set |= able & (0 - able);
    able &= able - 1;
  }
  return set;
}

EventKind event_of(Mode mode) { return mode == Mode::counting ? EventKind::instructions : EventKind::cycles; }

CounterSet set_up(Mode mode) {
  if (mode == Mode::off) return 0;
  const CounterSet set = chosen(event_of(mode));
  for_each_counter(set, [&](CounterId counter) {
    pmu().program(counter, {.event = event_of(mode)});
    pmu().write(counter, 0);
  });
  return set;
}

Task task_of(const ExitKind& kind, Place place, std::uint64_t count) {
  return {.workload = kind.workload,
          .iterations = count,
          .place = place,
          .user_flags = rflags::always_one | rflags::port_access};
}

void run(const Task& task) {
  if (task.place == Place::kernel) {
    task.workload->function(task.iterations);
  } else {
    run_in_user_by_iret(task.workload->function, task.iterations, task.user_flags);
  }
}

void time(const ExitKind& kind, Mode mode, Place place, CounterSet running) {
  const std::uint64_t count = option("count", scaled(2000));
  const Task task = task_of(kind, place, count);
  if (running != 0) pmu().start(running);
  run(task_of(kind, place, 1));
  const std::uint64_t start = read_tsc();
  run(task);
  const std::uint64_t elapsed = read_tsc() - start;
  if (running != 0) pmu().stop(running);
  check(Kind::counts, elapsed >= count, "exits take time", elapsed);
  print("figure exits kind={} pmu={} ring={} count={} elapsed={} each={} unit=tsc\n", kind.name,
        mode_names[static_cast<std::size_t>(mode)], place == Place::kernel ? "kernel" : "user", count, elapsed,
        elapsed / count);
}

/// The same exits between two WRMSRs: all counted, none twice.
void count(const ExitKind& kind, Place place, CounterSet running) {
  const Task task = task_of(kind, place, scaled(200));
  for_each_counter(running, [](CounterId counter) { pmu().write(counter, 0); });
  const WriteList start = pmu().start_list(running);
  measure(start, pmu().stop_list(running), task);
  for_each_counter(running, [&](CounterId counter) {
    check_equal(Kind::counts, pmu().read(counter), expected_count(EventKind::instructions, Rings::both, start, task),
                kind.name, counter.bit());
  });
}

void run_mode(Mode mode) {
  Pmu& unit = pmu();
  if (mode != Mode::off && (!unit.present() || chosen(event_of(mode)) == 0)) {
    if (unit.present()) unavailable(name_of(event_of(mode)));
    return;
  }
  const CounterSet running = set_up(mode);
  for (const Place place : {Place::kernel, Place::user_by_iret}) {
    if (!wanted("ring", place == Place::kernel ? "kernel" : "user")) continue;
    for (const ExitKind& kind : kinds) {
      if (!wanted("kind", kind.name) || (place != Place::kernel && !kind.in_user)) continue;
      if (kind.workload == &pmc_reads_workload && !unit.present()) continue;
      if (kind.workload == &apic_reads_workload && uses_x2apic()) continue;
      time(kind, mode, place, running);
      if (mode == Mode::counting) count(kind, place, running);
    }
  }
  for_each_counter(running, [&](CounterId counter) { unit.clear(counter); });
}

/// A register that any such processor has; where there is a PMU, one of its own.
void choose_registers() {
  const Pmu& unit = pmu();
  if (unit.present()) {
    const CounterId last = CounterId::gp(unit.profile().gp_counters - 1U);
    exit_msr = index_of(unit.selector(last));
    exit_pmc = unit.rdpmc_index(last);
  } else {
    exit_msr = index_of(unit.is_intel() ? Msr::ia32_misc_enable : amd_k7_perf_ctl[0]);
  }
}

}  // namespace

void run_guest() {
  print_pmu();
  choose_registers();
  for (const Mode mode : {Mode::off, Mode::idle, Mode::counting}) {
    const char* const name = mode_names[static_cast<std::size_t>(mode)];
    if (!wanted("pmu", name)) continue;
    begin_group(name);
    run_mode(mode);
  }
  check_basics();
}

}  // namespace vpmu::guest
