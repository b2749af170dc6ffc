// One sampled event as the command line says, for figures: how long the handler takes.
#include <bit>

#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"
#include "runtime/sampler.hpp"
#include "sampling/groups.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

EventKind wanted_event() {
  for (const EventKind event : {EventKind::instructions, EventKind::ref_cycles, EventKind::branches,
                                EventKind::branch_misses, EventKind::llc_references, EventKind::llc_misses}) {
    if (option("event") == name_of(event)) return event;
  }
  return EventKind::cycles;
}

HandlerWay wanted_way() {
  for (const HandlerWay way : {HandlerWay::global, HandlerWay::streamlined, HandlerWay::legacy}) {
    if (option("way") == name_of(way) && allows(way)) return way;
  }
  return usual_way();
}

}  // namespace

void sample_as_configured() {
  begin_group("configured");
  Pmu& unit = pmu();
  unit.reset();
  const EventKind event = wanted_event();
  const CounterSet able = unit.counters_of(event);
  if (able == 0) {
    unavailable(name_of(event));
    return;
  }
  const CounterId counter = CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(able)));
  const Delivery delivery = option("delivery") == "vector" ? Delivery::vector : Delivery::nmi;
  const bool in_kernel = option("ring") == "kernel";
  const std::uint64_t period = option("period", 20'000);
  const std::uint64_t samples = option("samples", scaled(100));
  Sampler& with = sampler();
  with.forget();
  with.add(counter, {.event = event, .rings = Rings::both}, period);
  with.open(wanted_way(), delivery);
  const Task task{.workload = option("load") == "cpuids"          ? &cpuids_workload
                              : event == EventKind::branch_misses ? &unpredictable_workload
                              : event == EventKind::llc_misses || event == EventKind::llc_references
                                  ? &flushed_loads_workload
                                  : &mixed_workload,
                  .iterations = 2000,
                  .place = in_kernel ? Place::kernel : Place::user_by_iret,
                  .user_flags = rflags::always_one | (delivery == Delivery::vector ? rflags::interrupts : 0)};
  const std::uint64_t start = read_tsc();
  // Far more than it takes, so that a counter which never overflows ends the guest as a failure.
  const std::uint64_t patience = 1000 + samples * (1 + period / 1000);
  for (std::uint64_t i = 0; i < patience && with.sampled(counter).samples < samples; ++i) {
    if (in_kernel && delivery == Delivery::vector) interrupts_on();
    measure(unit.start_list(counter.mask()), unit.stop_list(counter.mask()), task);
    interrupts_off();
  }
  const std::uint64_t elapsed = read_tsc() - start;
  check(Kind::interrupts, with.sampled(counter).samples >= samples, "samples arrive", with.sampled(counter).samples);
  check_equal(Kind::interrupts, with.spurious(), 0, "PMIs without an overflow");
  check_equal(Kind::counts, with.sampled(counter).samples, with.events(counter) / period, "samples of all events");
  print("figure sampling event={} period={} way={} delivery={} ring={} samples={} events={} elapsed={} unit=tsc\n",
        name_of(event), period, name_of(wanted_way()), name_of(delivery), in_kernel ? "kernel" : "user",
        with.sampled(counter).samples, with.events(counter), elapsed);
  with.durations().print_figure("handler", "tsc");
  with.lateness().print_figure("lateness", "events");
  with.close();
  unit.reset();
}

}  // namespace vpmu::guest
