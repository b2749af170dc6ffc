// The event filter: which events a guest may count.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "vpmu/profile.hpp"
#include "vpmu/result.hpp"

namespace vpmu {

enum class FilterError : std::uint8_t {
  too_many_events,  // more than max_filter_events (E2BIG)
  bad_action,       // neither allow nor deny (EINVAL)
  bad_flags,        // an unknown flag (EINVAL)
  stray_bit,        // a masked entry with a bit that means nothing (EINVAL)
};
const char* describe(FilterError error);

inline constexpr std::size_t max_filter_events = 300;

/// A filter as a VMM states it. `events` is only looked at by EventFilter::load().
struct FilterRequest {
  static constexpr std::uint32_t allow = 0;
  static constexpr std::uint32_t deny = 1;
  static constexpr std::uint32_t masked_events = 1;

  std::uint32_t action = allow;
  std::uint32_t flags = 0;
  /// Bit n: fixed counter n is listed. Judged apart from the events.
  std::uint32_t fixed_bitmap = 0;
  /// Without masked_events: event select in bits 7:0 (AMD also 35:32) and unit mask in 15:8; an entry with any other
  /// bit set matches nothing. With it: see masked_entry().
  const std::uint64_t* events = nullptr;
  std::size_t event_count = 0;
};

/// A masked entry (select bits 11:8 on AMD alone): matches events of this select whose unit mask, ANDed with `mask`,
/// equals `match`. An event is listed if an including entry matches it and no excluding one does.
constexpr std::uint64_t masked_entry(std::uint32_t select, std::uint8_t mask, std::uint8_t match, bool exclude) {
  return (select & 0xFFU) | std::uint64_t{select & 0xF00U} << 24 | std::uint64_t{match} << 8 |
         std::uint64_t{mask} << 56 | std::uint64_t{exclude} << 55;
}

/// A loaded filter. A new one lets everything through. Caller-owned and of fixed size; while a PMU uses it, only
/// VirtualPmu::set_filter() may follow a change.
class EventFilter {
 public:
  /// Takes over the request, or says what is wrong with it and at which entry, changing nothing.
  Status<FilterError> load(Vendor vendor, const FilterRequest& request, std::size_t* bad_entry = nullptr);

  /// Whether a general-purpose counter may count the event of this selector.
  [[nodiscard]] bool allows(std::uint64_t selector) const;
  /// Whether fixed counter n may count.
  [[nodiscard]] bool allows_fixed(std::uint32_t n) const;

 private:
  struct Entry {
    std::uint16_t select;
    std::uint8_t mask;
    std::uint8_t match;
    bool exclude;
  };
  std::array<Entry, max_filter_events> entries_{};  // sorted by select
  std::uint32_t count_ = 0;
  std::uint32_t fixed_bitmap_ = 0;
  std::uint64_t select_bits_ = 0xFF;
  bool listed_may_count_ = false;  // action allow
};

}  // namespace vpmu
