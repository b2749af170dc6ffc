// What an event selector counts of an Activity.
#pragma once

#include <cstdint>

#include "host/model/activity.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::model {

/// Edge, invert and counter mask (SDM volume 3, "IA32_PERFEVTSELx MSRs"; APM volume 2, section 13.2.1), for events that
/// happen at most once a cycle:
///
/// | counter mask | invert | edge | counts                                                                   |
/// |---|---|---|---|
/// | 0        | any | no  | the events: with no mask there is nothing to invert                                  |
/// | 1        | no  | no  | the cycles in which the event happened: as many as the events                        |
/// | 1        | yes | no  | the other cycles                                                                     |
/// | 2 and up | no  | any | nothing: no cycle has two                                                            |
/// | 2 and up | yes | no  | all cycles                                                                           |
/// | 0, 1     | any | yes | rises; an inverted condition rises as often as the plain one falls, which is as often |
/// | 2 and up | yes | yes | rises of "a cycle": the clock's restarts                                             |
enum class How : std::uint8_t { nothing, events, rises, other_cycles };

struct EventRule {
  Event event = Event::instructions;
  How how = How::nothing;
};

/// What a general-purpose counter of this host counts with this selector; enable bits and privilege aside. Unknown
/// codes, and architectural events that CPUID says are unavailable, count nothing. So does IN_TX: no transactions.
EventRule rule_of(const Profile& host, std::uint64_t selector);
/// What fixed counter n counts.
EventRule rule_of_fixed(std::uint32_t n);

/// Whether a general-purpose counter of this host knows the event of this code (event select and unit mask; no flags).
bool can_count(const Profile& host, std::uint64_t code);

inline std::uint64_t amount(EventRule rule, const Activity& activity) {
  switch (rule.how) {
    case How::events:
      return activity[rule.event];
    case How::rises:
      return activity.edges[index_of(rule.event)];
    case How::other_cycles: {
      const std::uint64_t cycles = activity[Event::cycles];
      const std::uint64_t events = activity[rule.event];
      return cycles > events ? cycles - events : 0;
    }
    case How::nothing:
      break;
  }
  return 0;
}

}  // namespace vpmu::model
