// The groups of checks of this guest, and what they share.
#pragma once

#include <cstdint>

#include "runtime/pmu.hpp"

namespace vpmu::guest {

void sample_together();
void sample_in_turns();

/// One round of the load, in ring 3: something for each event.
void run_load();
/// What that retires in ring 3; 0 for events that are not exactly known.
std::uint64_t load_events(EventKind event);

/// A period that gives a few samples in a hundred rounds.
std::uint64_t usual_period(EventKind event);

}  // namespace vpmu::guest
