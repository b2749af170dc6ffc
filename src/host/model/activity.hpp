// What a physical CPU did, in the events that a PMU can count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "arch/events.hpp"

namespace vpmu::model {

/// The events that the modelled hardware can count.
using Event = arch::EventKind;
inline constexpr std::size_t event_count = 7;

constexpr std::size_t index_of(Event event) { return static_cast<std::size_t>(event); }

/// Privilege as a PMU tells it apart: CPL 0 is the kernel's, CPL 1 to 3 the user's.
enum class Ring : std::uint8_t { kernel, user };

/// Events of one stretch of execution at one privilege level.
///
/// No event happens more than once in a cycle (cycles themselves apart): so the cycles in which an event
/// happened are as many as the events, which is all that a counter mask asks for.
struct Activity {
  /// How often each event happened.
  std::array<std::uint64_t, event_count> count{};
  /// How often it happened in a cycle that follows one in which it did not: what edge detection counts.
  std::array<std::uint64_t, event_count> edges{};

  [[nodiscard]] std::uint64_t operator[](Event event) const { return count[index_of(event)]; }
  [[nodiscard]] std::uint64_t& operator[](Event event) { return count[index_of(event)]; }
};

}  // namespace vpmu::model
