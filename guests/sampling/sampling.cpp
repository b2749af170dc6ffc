// Sampling: PMIs as NMI and by vector, handled as kernels do; samples and their addresses are exact.
//
// Options: only=user|kernel|late|configured; skid=N as the machine's; rip=0 checks no addresses; and for the configured
// run event=NAME period=N samples=N delivery=nmi|vector way=global|streamlined|legacy ring=user|kernel
// load=cpuids.
#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "sampling/groups.hpp"
#include "workloads/basics.hpp"

namespace vpmu::guest {

const char guest_name[] = "sampling";

void run_guest() {
  print_pmu();
  const Text only = option("only");
  const auto wanted = [&](Text name) { return only.length == 0 || only == name; };
  if (pmu().present()) {
    if (wanted("user")) sample_user_code();
    if (wanted("kernel")) sample_kernel_code();
    if (wanted("late")) check_late_delivery();
    if (wanted("configured")) sample_as_configured();
  }
  check_basics();
}

}  // namespace vpmu::guest
