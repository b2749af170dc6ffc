// A few checks of each kind, which every guest makes.
#pragma once

namespace vpmu::guest {

/// The group "basics": registers, faults, an exact count, an interrupt by the APIC and one by a counter. Leaves the PMU
/// reset.
void check_basics();

}  // namespace vpmu::guest
