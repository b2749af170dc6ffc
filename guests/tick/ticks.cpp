// The tick itself, under load.
#include <bit>

#include "runtime/checks.hpp"
#include "runtime/clock.hpp"
#include "runtime/distribution.hpp"
#include "runtime/interrupts.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "tick/groups.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

constinit Distribution durations{};
constinit Distribution lateness{};
constinit Distribution toggles{};
constinit volatile std::uint64_t ticks = 0;
constinit std::uint64_t toggle_ticks = 0;
constinit std::uint64_t base_work = 0;
constinit Ticker* ticker = nullptr;

/// The counters of this guest.
struct Counters {
  CounterSet resident = 0;
  CounterSet group = 0;
  bool group_on = false;
  CounterId watched = CounterId::gp(0);  // of the group; read while it is off
  std::uint64_t left_at = 0;
  std::uint64_t moved = 0;  // how often it counted while off
};
constinit Counters counters{};

void on_tick(InterruptFrame& /*frame*/) {
  const std::uint64_t start = read_tsc();
  end_of_interrupt();
  ticks = ticks + 1;
  if (base_work != 0) spin_workload.function(base_work);
  const std::uint64_t due = ticker->next();
  lateness.add(start > due ? start - due : 0);
  // Another processor's request to toggle arrives as an interrupt.
  if (toggle_ticks != 0 && ticks % toggle_ticks == 0) send_self_ipi(vector::self_ipi);
  durations.add(read_tsc() - start);
}

/// What a kernel does to turn a group on or off: all counters stop, the group's selectors are written, all start.
void on_toggle(InterruptFrame& /*frame*/) {
  const std::uint64_t start = read_tsc();
  end_of_interrupt();
  Pmu& unit = pmu();
  if (counters.group_on) {
    unit.stop(counters.resident | counters.group);
    counters.left_at = unit.read(counters.watched);
    unit.start(counters.resident);
  } else {
    if (unit.read(counters.watched) != counters.left_at) ++counters.moved;
    unit.stop(counters.resident);
    for_each_counter(counters.group, [&](CounterId counter) { unit.write(counter, unit.read(counter)); });
    unit.start(counters.resident | counters.group);
  }
  counters.group_on = !counters.group_on;
  toggles.add(read_tsc() - start);
}

CounterId lowest(CounterSet set) { return CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(set))); }

void set_up_counters() {
  Pmu& unit = pmu();
  CounterSet free = unit.gp_counters();
  // Where instructions can't be counted, cycles are: the load on the hypervisor is then its own.
  const EventKind event = unit.offers(EventKind::instructions) ? EventKind::instructions : EventKind::cycles;
  if (unit.present() && event != EventKind::instructions) unavailable("instructions");
  if (option("resident", 1) != 0 && free != 0 && unit.offers(event)) {
    const CounterId counter = lowest(free);
    free &= ~counter.mask();
    counters.resident = counter.mask();
    // As kernels set a counter up that only counts: far from its overflow, with the interrupt on.
    unit.program(counter, {.event = event, .interrupt = Interrupt::on});
    unit.write(counter, 0);
  }
  for (const Setup& setup : {Setup{.event = event, .rings = Rings::both, .interrupt = Interrupt::on},
                             Setup{.event = EventKind::cycles, .rings = Rings::both, .interrupt = Interrupt::on},
                             Setup{.event = EventKind::branches, .rings = Rings::both, .interrupt = Interrupt::on},
                             Setup{.event = event, .rings = Rings::user, .interrupt = Interrupt::on}}) {
    if (option("group", 1) == 0 || free == 0 || !unit.offers(setup.event)) continue;
    const CounterId counter = lowest(free);
    free &= ~counter.mask();
    if (counters.group == 0) counters.watched = counter;
    counters.group |= counter.mask();
    unit.program(counter, setup);
    unit.write(counter, 0);
  }
  if (counters.resident != 0) unit.start(counters.resident);
}

}  // namespace

void measure_ticks() {
  begin_group("tick");
  Pmu& unit = pmu();
  unit.reset();
  const TscRate rate = tsc_rate();
  const std::uint64_t hz = option("hz", 1000);
  const std::uint64_t wanted = option("ticks", scaled(100));
  const std::uint64_t burst = option("burst", 64);
  const std::uint64_t work = option("work", 1000);
  const bool in_kernel = option("load") == "kernel";
  base_work = option("base", 0);
  Ticker timer{rate.hz / (hz == 0 ? 1 : hz)};
  print("figure clock tsc_hz={} source={} hz={} deadline={}\n", rate.hz, rate.source, hz, timer.by_deadline() ? 1 : 0);
  ticker = &timer;
  set_up_counters();
  const std::uint64_t few = wanted / 5 + 1;
  toggle_ticks = counters.group == 0 ? 0 : option("toggle", hz < few ? hz : few);
  set_interrupt_handler(vector::timer, on_tick);
  set_interrupt_handler(vector::self_ipi, on_toggle);

  std::uint64_t rounds = 0;
  const std::uint64_t begin = read_tsc();
  // No load of this kind takes longer than ten times its ticks.
  const std::uint64_t patience = 10 * (wanted + 10) * (rate.hz / (hz == 0 ? 1 : hz));
  timer.start();
  interrupts_on();
  while (ticks < wanted && read_tsc() - begin < patience) {
    if (in_kernel) {
      cpuids_workload.function(burst);
      spin_workload.function(work);
    } else {
      run_in_user_by_iret(cpuids_workload.function, burst, rflags::always_one | rflags::interrupts);
      run_in_user_by_iret(spin_workload.function, work, rflags::always_one | rflags::interrupts);
    }
    ++rounds;
  }
  interrupts_off();
  timer.stop();
  const std::uint64_t elapsed = read_tsc() - begin;
  if (counters.resident != 0) unit.stop(counters.resident | (counters.group_on ? counters.group : 0));

  check(Kind::interrupts, ticks >= wanted, "the timer ticks", ticks);
  if (counters.resident != 0) {
    const std::uint64_t counted = unit.read(lowest(counters.resident));
    const std::uint64_t load = (cpuids_workload.instructions(burst) + spin_workload.instructions(work)) * rounds;
    if (unit.offers(EventKind::instructions)) {
      // The handlers' own instructions are few beside the load's.
      check(Kind::counts, counted >= load, "resident counter counts the load", counted);
    } else {
      check(Kind::counts, counted > 0, "resident counter counts", counted);
    }
    print("figure resident count={} load={} rounds={} elapsed={} unit=tsc\n", counted, load, rounds, elapsed);
  }
  if (toggle_ticks != 0) {
    check_equal(Kind::counts, counters.moved, 0, "a group that is off counts nothing");
    check_equal(Kind::interrupts, toggles.count(), ticks / toggle_ticks, "toggles");
  }
  durations.print_figure("tick", "tsc");
  lateness.print_figure("lateness", "tsc");
  toggles.print_figure("toggle", "tsc");
  unit.reset();
}

}  // namespace vpmu::guest
