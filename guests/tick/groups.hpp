// The groups of checks of this guest.
#pragma once

namespace vpmu::guest {

void check_timers();
void measure_ticks();

}  // namespace vpmu::guest
