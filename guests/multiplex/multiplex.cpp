// Multiplexing: four events sampled at once, and seven that take turns on up to four counters.
//
// Options: only=together|turns, window=N (TSC ticks of a turn), windows=N, period=N percent of the usual ones.
#include "multiplex/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "workloads/basics.hpp"

namespace vpmu::guest {

const char guest_name[] = "multiplex";

void run_guest() {
  print_pmu();
  if (pmu().present()) {
    if (option("only") != "turns") sample_together();
    if (option("only") != "together") sample_in_turns();
  }
  check_basics();
}

}  // namespace vpmu::guest
