// The groups of checks of this guest.
#pragma once

namespace vpmu::guest {

class Hypervisor;

void check_regions(Hypervisor& hypervisor);
void check_host(Hypervisor& hypervisor);
void check_guests(Hypervisor& hypervisor);
void check_interrupts(Hypervisor& hypervisor);
void check_own_accesses(Hypervisor& hypervisor);
void check_filter(Hypervisor& hypervisor);

}  // namespace vpmu::guest
