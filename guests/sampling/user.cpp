// Ring 3 sampled by counters that count it alone, so that the handler counts nothing: all of it is known beforehand.
#include <array>

#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"
#include "runtime/sampler.hpp"
#include "sampling/groups.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

constinit std::uint64_t iterations = 0;
constinit bool address_matters = false;

/// After k periods the processor stands at the instruction that follows k * period others, and as many more as it
/// skids.
void check_address(Sampler& from, CounterId counter, const InterruptFrame& frame) {
  if (!address_matters) return;
  const SampledCounter& state = from.sampled(counter);
  const std::uint64_t retired = state.samples * state.period + option("skid", 0) - instructions_before_user_workload;
  check(Kind::interrupts, frame.from_user(), "sampled in ring 3", state.samples);
  check_equal(Kind::interrupts, frame.rip, steps_rip(retired, iterations), "address of a sample", state.samples);
}

struct Plan {
  EventKind event;
  const Workload* workload;
  std::uint64_t period;
  HandlerWay way;
  Delivery delivery;
};

void sample(CounterId counter, const Plan& plan) {
  Pmu& unit = pmu();
  Task task{.workload = plan.workload,
            .iterations = scaled(5000),
            .place = Place::user_by_iret,
            .user_flags = rflags::always_one | (plan.delivery == Delivery::vector ? rflags::interrupts : 0)};
  const WriteList start = unit.start_list(counter.mask());
  const auto expected = [&] { return expected_count(plan.event, Rings::user, start, task); };
  // The last period ends well before the last overflow's interrupt could come too late.
  while (expected() % plan.period < plan.period / 2 || expected() < 2 * plan.period) ++task.iterations;
  iterations = task.iterations;
  address_matters = plan.event == EventKind::instructions && plan.workload == &steps_workload && option("rip", 1) != 0;

  Sampler& with = sampler();
  with.forget();
  with.add(counter, {.event = plan.event, .rings = Rings::user}, plan.period);
  with.open(plan.way, plan.delivery, check_address);
  measure(unit.start_list(counter.mask()), unit.stop_list(counter.mask()), task);
  const std::uint64_t detail = counter.bit() | std::uint64_t{plan.delivery == Delivery::vector} << 8;
  // AMD's branch event counts interrupts too (PPR, PMCx0C2); its manual does not say for which ring.
  const std::uint64_t more = !unit.is_intel() && plan.event == EventKind::branches ? with.pmis() : 0;
  const std::uint64_t events = with.events(counter);
  check_between(Kind::counts, events, expected(), expected() + more, "events counted while sampled", detail);
  check_equal(Kind::counts, with.sampled(counter).samples, events / plan.period, "samples", detail);
  check_equal(Kind::interrupts, with.pmis(), events / plan.period, "PMIs", detail);
  check_equal(Kind::interrupts, with.spurious(), 0, "PMIs without an overflow", detail);
  with.close();
  unit.reset();
}

void sample_with_all(EventKind event, const Workload& workload, std::uint64_t period) {
  for (const HandlerWay way : {HandlerWay::global, HandlerWay::streamlined, HandlerWay::legacy}) {
    if (!allows(way)) continue;
    for (const Delivery delivery : {Delivery::nmi, Delivery::vector}) {
      const CounterSet able = pmu().counters_of(event);
      for_each_counter(able, [&](CounterId counter) {
        sample(counter, {.event = event, .workload = &workload, .period = period, .way = way, .delivery = delivery});
      });
      if (able == 0) continue;
      print("{} of {}, {}, {}: ", name_of(event), workload.name, name_of(way), name_of(delivery));
      sampler().durations().print_figure("handler", "tsc");
    }
  }
}

}  // namespace

void sample_user_code() {
  begin_group("user");
  pmu().reset();
  for (const EventKind event : {EventKind::instructions, EventKind::branches}) {
    if (!pmu().offers(event)) unavailable(name_of(event));
  }
  sample_with_all(EventKind::instructions, steps_workload, 997);
  sample_with_all(EventKind::instructions, cpuid_pairs_workload, 1009);
  sample_with_all(EventKind::branches, mixed_workload, 499);
}

}  // namespace vpmu::guest
