// Mediated mode from ring 0: the freestanding core in an image of its own, with real RDMSR, WRMSR and RDPMC.
//
// It is a hypervisor, and needs a CPU to itself: vpmu run --pmu physical. VM entry and VM exit are the hypercalls of
// that machine.
#include "ring0/groups.hpp"
#include "ring0/hypervisor.hpp"
#include "runtime/checks.hpp"
#include "runtime/processor.hpp"
#include "workloads/basics.hpp"

namespace vpmu::guest {

const char guest_name[] = "ring0";

void run_guest() {
  print_pmu();
  check_basics();
  constexpr std::uint32_t hypervisor_bit = 1U << 31;
  const Profile& profile = pmu().profile();
  const char* const why = (cpuid(1).ecx & hypervisor_bit) != 0 ? "this machine is virtual, not the CPU itself"
                                                               : why_not_mediated(profile, profile);
  if (why != nullptr) {
    begin_group("mediated");
    return unavailable(why);
  }
  pmu().reset();
  Hypervisor hypervisor;
  check_regions(hypervisor);
  check_host(hypervisor);
  check_guests(hypervisor);
  check_interrupts(hypervisor);
  check_own_accesses(hypervisor);
  check_filter(hypervisor);
  pmu().reset();
}

}  // namespace vpmu::guest
