// Ring 0 sampled together with its handler. A second counter of the same event runs beside the sampled one: it says
// how many events there were.
#include <bit>

#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"
#include "runtime/sampler.hpp"
#include "sampling/groups.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

constexpr std::uint64_t period = 2003;
constinit std::uint64_t iterations = 0;

/// Up to the first overflow only known instructions retired.
void check_first_address(Sampler& from, CounterId counter, const InterruptFrame& frame) {
  if (from.sampled(counter).samples != 1 || option("rip", 1) == 0) return;
  // Where each selector starts its own counter, a second start comes between.
  if (!pmu().has_global()) return;
  const std::uint64_t retired = period + option("skid", 0) - instructions_before_kernel_workload();
  check_equal(Kind::interrupts, frame.rip, steps_rip(retired, iterations), "address of the first sample",
              counter.bit());
}

void sample(CounterId counter, CounterId companion, HandlerWay way, Delivery delivery) {
  Pmu& unit = pmu();
  const Setup setup{.event = EventKind::instructions, .rings = Rings::kernel};
  Sampler& with = sampler();
  with.forget();
  with.add(counter, setup, period);
  unit.program(companion, setup);
  unit.write(companion, 0);
  with.accompany(companion.mask());
  const CounterSet both = counter.mask() | companion.mask();
  const WriteList start = unit.start_list(both);
  Task task{.workload = &steps_workload, .iterations = scaled(5000)};
  if (task.workload->instructions(task.iterations) < 3 * period) task.iterations = period;
  iterations = task.iterations;
  with.open(way, delivery, check_first_address);
  if (delivery == Delivery::vector) interrupts_on();
  measure(start, unit.stop_list(both), task);
  interrupts_off();

  const std::uint64_t detail = counter.bit() | std::uint64_t{delivery == Delivery::vector} << 8;
  const std::uint64_t events = unit.read(companion);
  // Selectors stop and start one after the other: each handler run can set the two counters a few instructions apart.
  const std::uint64_t apart = unit.has_global() ? 0 : 32 * with.pmis();
  check_between(Kind::counts, with.events(counter), events - apart, events + apart, "both counters agree", detail);
  check_equal(Kind::counts, with.sampled(counter).samples, with.events(counter) / period, "samples", detail);
  check(Kind::counts, events >= task.workload->instructions(task.iterations), "nothing lost", detail);
  check_equal(Kind::interrupts, with.spurious(), 0, "PMIs without an overflow", detail);
  with.close();
  unit.reset();
}

}  // namespace

void sample_kernel_code() {
  begin_group("kernel");
  Pmu& unit = pmu();
  unit.reset();
  const CounterSet able = unit.counters_of(EventKind::instructions);
  if ((able & (able - 1)) == 0) {
    unavailable("instructions on two counters");
    return;
  }
  for (const HandlerWay way : {HandlerWay::global, HandlerWay::streamlined, HandlerWay::legacy}) {
    if (!allows(way)) continue;
    for (const Delivery delivery : {Delivery::nmi, Delivery::vector}) {
      for_each_counter(able, [&](CounterId counter) {
        const CounterSet others = able & ~counter.mask();
        sample(counter, CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(others))), way, delivery);
      });
      print("instructions of steps, {}, {}, with its handler: ", name_of(way), name_of(delivery));
      sampler().durations().print_figure("handler", "tsc");
    }
  }
}

}  // namespace vpmu::guest
