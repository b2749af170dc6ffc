// The timer tick: how long its handler takes while an instruction counter is resident, a group of counters is toggled
// now and then, and the load makes the hypervisor emulate instructions.
//
// Options: ticks=N hz=N (1000) toggle=N (ticks between two toggles; a second's) burst=N (CPUIDs in a row) work=N (loop
// iterations between bursts) base=N (loop iterations in the handler) resident=0 group=0 load=kernel.
#include "runtime/checks.hpp"
#include "runtime/pmu.hpp"
#include "tick/groups.hpp"
#include "workloads/basics.hpp"

namespace vpmu::guest {

const char guest_name[] = "tick";

void run_guest() {
  print_pmu();
  check_timers();
  measure_ticks();
  check_basics();
}

}  // namespace vpmu::guest
