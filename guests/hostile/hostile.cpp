// Random MSR traffic: every PMU register of both vendors and its neighbours, with random values, while counters run and
// interrupt as they may. The machine has to survive, and to answer as its CPUID says.
//
// Options: seed=N, ops=N.
#include "hostile/traffic.hpp"
#include "runtime/checks.hpp"
#include "runtime/machine.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "workloads/basics.hpp"

namespace vpmu::guest {

const char guest_name[] = "hostile";

void run_guest() {
  print_pmu();
  begin_group("traffic");
  if (ignores_unknown_msrs()) {
    unavailable("random MSRs: this machine ignores those it does not know");
  } else {
    const std::uint64_t seed = option("seed", 1);
    Traffic traffic{seed};
    traffic.run(option("ops", scaled(10'000)));
    print("figure hostile seed={} reads={} writes={} rdpmc={} faults={} pmis={}\n", seed, traffic.tally().reads,
          traffic.tally().writes, traffic.tally().pmc_reads, traffic.tally().faults, traffic.pmis());
    traffic.end();
  }
  // Whatever happened, the PMU now has to work like any other.
  check_basics();
}

}  // namespace vpmu::guest
