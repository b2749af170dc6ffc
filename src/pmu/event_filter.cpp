#include "vpmu/event_filter.hpp"

#include "vpmu/event_select.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t exclude_bit = 1ULL << 55;
constexpr std::uint64_t mask_bits = 0xFFULL << 56;

constexpr std::uint16_t select_of(std::uint64_t bits) {
  return static_cast<std::uint16_t>((bits & evtsel::event) | (bits & evtsel::event_high) >> 24);
}

}  // namespace

const char* describe(FilterError error) {
  switch (error) {
    case FilterError::too_many_events:
      return "more than 300 events";
    case FilterError::bad_action:
      return "the action is neither allow nor deny";
    case FilterError::bad_flags:
      return "an unknown flag";
    case FilterError::stray_bit:
      return "a masked entry sets a bit that means nothing";
  }
  return "unknown error";
}

Status<FilterError> EventFilter::load(Vendor vendor, const FilterRequest& request, std::size_t* bad_entry) {
  if (request.action != FilterRequest::allow && request.action != FilterRequest::deny) return FilterError::bad_action;
  if ((request.flags & ~FilterRequest::masked_events) != 0) return FilterError::bad_flags;
  if (request.event_count > max_filter_events) return FilterError::too_many_events;
  const bool masked = (request.flags & FilterRequest::masked_events) != 0;
  const std::uint64_t select_bits = vendor == Vendor::amd ? evtsel::event | evtsel::event_high : evtsel::event;
  const std::uint64_t known = select_bits | evtsel::unit_mask | (masked ? exclude_bit | mask_bits : 0);
  for (std::size_t i = 0; masked && i < request.event_count; ++i) {
    if ((request.events[i] & ~known) != 0) {
      if (bad_entry != nullptr) *bad_entry = i;
      return FilterError::stray_bit;
    }
  }

  count_ = 0;
  for (std::size_t i = 0; i < request.event_count; ++i) {
    const std::uint64_t bits = request.events[i];
    if ((bits & ~known) != 0) continue;  // a plain entry that names more than an event matches none
    Entry entry{};
    entry.select = select_of(bits);
    entry.match = static_cast<std::uint8_t>(bits >> 8);
    entry.mask = masked ? static_cast<std::uint8_t>(bits >> 56) : 0xFF;
    entry.exclude = masked && (bits & exclude_bit) != 0;
    // Insertion keeps the entries sorted by select; their order among equals does not matter.
    std::size_t at = count_++;
    for (; at > 0 && entries_[at - 1].select > entry.select; --at) entries_[at] = entries_[at - 1];
    entries_[at] = entry;
  }
  select_bits_ = select_bits;
  fixed_bitmap_ = request.fixed_bitmap;
  listed_may_count_ = request.action == FilterRequest::allow;
  return {};
}

bool EventFilter::allows(std::uint64_t selector) const {
  const std::uint16_t select = select_of(selector & select_bits_);
  std::uint32_t low = 0;
  for (std::uint32_t high = count_; low < high;) {
    const std::uint32_t middle = (low + high) / 2;
    if (entries_[middle].select < select) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  const auto unit_mask = static_cast<std::uint8_t>(selector >> 8);
  bool included = false;
  bool excluded = false;
  for (; low < count_ && entries_[low].select == select; ++low) {
    const Entry& entry = entries_[low];
    if ((unit_mask & entry.mask) != entry.match) continue;
    (entry.exclude ? excluded : included) = true;
  }
  return (included && !excluded) == listed_may_count_;
}

bool EventFilter::allows_fixed(std::uint32_t n) const { return ((fixed_bitmap_ >> n & 1) != 0) == listed_may_count_; }

}  // namespace vpmu
