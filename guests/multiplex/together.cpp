// Four events sampled at once, each with its own period.
#include <array>

#include "multiplex/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"
#include "runtime/sampler.hpp"

namespace vpmu::guest {
namespace {

constexpr std::array<EventKind, 4> intel_events{EventKind::cycles, EventKind::instructions, EventKind::branches,
                                                EventKind::llc_misses};
constexpr std::array<EventKind, 4> amd_events{EventKind::cycles, EventKind::instructions, EventKind::branches,
                                              EventKind::branch_misses};

void check_event(CounterId counter, EventKind event, std::uint64_t rounds) {
  const Sampler& with = sampler();
  const std::uint64_t events = with.events(counter);
  const std::uint64_t samples = with.sampled(counter).samples;
  if (const std::uint64_t each = load_events(event); each != 0) {
    // AMD's branch event counts interrupts too (PPR, PMCx0C2); its manual does not say for which ring.
    const std::uint64_t more = !pmu().is_intel() && event == EventKind::branches ? with.pmis() : 0;
    check_between(Kind::counts, events, each * rounds, each * rounds + more, name_of(event), counter.bit());
  } else {
    check(Kind::counts, events > 0, name_of(event), counter.bit());
  }
  check_equal(Kind::counts, samples, events / usual_period(event), "samples", counter.bit());
  check(Kind::interrupts, samples > 0, "some samples", counter.bit());
  print("figure multiplex mode=together event={} samples={} events={}\n", name_of(event), samples, events);
}

}  // namespace

void sample_together() {
  begin_group("together");
  Pmu& unit = pmu();
  unit.reset();
  Sampler& with = sampler();
  const auto& events = unit.is_intel() ? intel_events : amd_events;
  for (const HandlerWay way : {HandlerWay::global, HandlerWay::streamlined, HandlerWay::legacy}) {
    if (!allows(way)) continue;
    with.forget();
    std::array<EventKind, 4> chosen{};  // by counter
    std::uint32_t count = 0;
    for (const EventKind event : events) {
      if (!unit.offers(event) || count >= unit.profile().gp_counters) {
        unavailable(name_of(event));
        continue;
      }
      with.add(CounterId::gp(count), {.event = event, .rings = Rings::user}, usual_period(event));
      chosen[count++] = event;
    }
    if (count == 0) return;
    with.open(way, Delivery::nmi);
    const std::uint64_t rounds = scaled(100, 10);
    with.start();
    for (std::uint64_t i = 0; i < rounds; ++i) run_load();
    with.stop();
    std::uint64_t samples = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      check_event(CounterId::gp(i), chosen[i], rounds);
      samples += with.sampled(CounterId::gp(i)).samples;
    }
    check_between(Kind::interrupts, with.pmis(), 1, samples, "PMIs");
    check_equal(Kind::interrupts, with.spurious(), 0, "PMIs without an overflow");
    print("together, {}: ", name_of(way));
    with.durations().print_figure("handler", "tsc");
    with.close();
    unit.reset();
  }
}

}  // namespace vpmu::guest
