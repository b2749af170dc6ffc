// Counting: registers, exact counts of known loops, overflow status.
#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/pmu.hpp"
#include "workloads/basics.hpp"

namespace vpmu::guest {

const char guest_name[] = "counting";

void run_guest() {
  check_reset_state();
  print_pmu();
  check_presence();
  check_basics();
  if (pmu().present()) {
    check_register_bits();
    check_exact_counts();
    check_gates();
    check_emulated();
    check_running_counters();
    check_overflow();
    check_freeze();
    check_modelled_events();
  }
  check_faulting_instructions();
  check_user_access();
  pmu().reset();
}

}  // namespace vpmu::guest
