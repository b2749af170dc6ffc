// Events whose counts depend on the processor's insides: within bounds only. models=0 leaves caches and branch
// prediction out, for machines that do not model them.
#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/probe.hpp"
#include "runtime/processor.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

struct Bounds {
  std::uint64_t low;
  std::uint64_t high;
};

bool is_modelled(EventKind event) {
  return event == EventKind::llc_references || event == EventKind::llc_misses || event == EventKind::branch_misses;
}

/// False, and said, if the event can't be counted here.
bool usable(EventKind event) {
  if (pmu().counters_of(event) == 0) {
    unavailable(name_of(event));
    return false;
  }
  if (is_modelled(event) && option("models", 1) == 0) {
    unavailable("caches and branch prediction (models=0)");
    return false;
  }
  return true;
}

void check_event(EventKind event, Rings rings, const Task& task, Bounds bounds) {
  Pmu& unit = pmu();
  for_each_counter(unit.counters_of(event), [&](CounterId counter) {
    unit.program(counter, {.event = event, .rings = rings});
    unit.write(counter, 0);
    measure(unit.start_list(counter.mask()), unit.stop_list(counter.mask()), task);
    check_between(Kind::counts, unit.read(counter), bounds.low, bounds.high, name_of(event), counter.bit());
    unit.clear(counter);
  });
}

/// From eight instructions a cycle to a hundred cycles an instruction, and what an interrupted machine may add. A
/// machine that is itself emulated takes longer: cycle_bound=0.
void check_cycles(EventKind event) {
  const std::uint64_t iterations = scaled(2000);
  const std::uint64_t instructions = mixed_workload.instructions(iterations);
  constexpr std::uint64_t slack = 1'000'000;
  if (!usable(event)) return;
  const Bounds bounds{instructions / 8, option("cycle_bound", 1) != 0 ? instructions * 100 + slack : ~std::uint64_t{0}};
  check_event(event, Rings::both, {.workload = &mixed_workload, .iterations = iterations}, bounds);
  if (option("cycle_rings", 1) == 0) {
    unavailable("cycles by ring (cycle_rings=0)");
    return;
  }
  check_event(event, Rings::kernel, {.workload = &mixed_workload, .iterations = iterations}, bounds);
  check_event(event, Rings::user, {.workload = &mixed_workload, .iterations = iterations, .place = Place::user_by_iret},
              bounds);
  check_event(event, Rings::user, {.workload = &mixed_workload, .iterations = iterations}, {0, 0});
}

/// Each flushed line is missed once, and asked for once.
void check_caches() {
  const std::uint64_t iterations = scaled(1000);
  constexpr std::uint64_t cold = 200;
  const Task flushed{.workload = &flushed_loads_workload, .iterations = iterations};
  const Task cached{.workload = &mixed_workload, .iterations = iterations};
  for (const EventKind event : {EventKind::llc_references, EventKind::llc_misses}) {
    if (!usable(event)) continue;
    check_event(event, Rings::kernel, flushed, {iterations, 2 * iterations + cold});
    check_event(event, Rings::kernel, cached, {0, cold});
  }
}

/// A branch that nothing predicts is missed about half the time; a loop's is not.
void check_branch_misses() {
  if (!usable(EventKind::branch_misses)) return;
  constexpr std::uint64_t barrier = 1;
  if (!try_write_msr(msr::pred_cmd, barrier)) unavailable("MSR 0x49, the prediction barrier");
  const std::uint64_t iterations = scaled(2000, 500);
  constexpr std::uint64_t cold = 200;
  check_event(EventKind::branch_misses, Rings::kernel, {.workload = &unpredictable_workload, .iterations = iterations},
              {iterations / 4, iterations + cold});
  check_event(EventKind::branch_misses, Rings::kernel, {.workload = &spin_workload, .iterations = iterations},
              {0, iterations / 20 + cold});
}

}  // namespace

void check_modelled_events() {
  begin_group("modelled");
  pmu().reset();
  check_cycles(EventKind::cycles);
  if (pmu().is_intel()) {
    check_cycles(EventKind::ref_cycles);
    check_caches();
  }
  check_branch_misses();
  pmu().reset();
}

}  // namespace vpmu::guest
