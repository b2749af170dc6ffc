#include "lab/conform_host.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "vpmu/event_select.hpp"

namespace vpmu::lab {
namespace {

using Code = std::pair<std::uint64_t, Batch::Kind>;

constexpr std::array<Code, 8> intel_codes{{{0x00C0, Batch::instructions},
                                           {0x003C, Batch::cycles},
                                           {0x00C4, Batch::branches},
                                           {0x00C5, Batch::branch_misses},
                                           {0x013C, Batch::ref_cycles},
                                           {0x0300, Batch::ref_cycles},
                                           {0x4F2E, Batch::llc_references},
                                           {0x412E, Batch::llc_misses}}};
constexpr std::array<Code, 4> amd_codes{{{0x00C0, Batch::instructions},
                                         {0x0076, Batch::cycles},
                                         {0x00C2, Batch::branches},
                                         {0x00C3, Batch::branch_misses}}};
constexpr std::array fixed_kinds{Batch::instructions, Batch::cycles, Batch::ref_cycles};

template <std::size_t n>
std::optional<Batch::Kind> look_up(const std::array<Code, n>& codes, std::uint64_t code) {
  const auto* found = std::ranges::find(codes, code, &Code::first);
  if (found == codes.end()) return std::nullopt;
  return found->second;
}

/// What an event counts, if anything.
std::optional<Batch::Kind> kind_of(const HostEventSpec& spec) {
  if (spec.counter.is_fixed()) {
    if (spec.counter.number() >= fixed_kinds.size()) return std::nullopt;
    return fixed_kinds[spec.counter.number()];
  }
  // The data does not say what these would count.
  if ((spec.select & (evtsel::edge | evtsel::invert | evtsel::counter_mask)) != 0) return std::nullopt;
  if (spec.vendor == Vendor::amd) return look_up(amd_codes, spec.select & evtsel::code);
  // The guest is never in a transaction.
  if ((spec.select & evtsel::in_tx) != 0) return std::nullopt;
  return look_up(intel_codes, spec.select & (evtsel::event | evtsel::unit_mask));
}

bool overflows(const HostEventSpec& spec) {
  return spec.counter.is_fixed() || spec.vendor == Vendor::amd || (spec.select & evtsel::in_tx_cp) == 0;
}

}  // namespace

void VectorHost::run(const Batch& batch) {
  for (Event& event : events_) {
    if (!event.open || !event.enabled || !(batch.cpl == 0 ? event.spec.kernel : event.spec.user)) continue;
    const auto kind = kind_of(event.spec);
    if (!kind) continue;
    const std::uint64_t happened = batch.counts[*kind];
    event.count += happened;
    if (happened < event.remaining) {
      event.remaining -= happened;
      continue;
    }
    event.remaining = event.period - (happened - event.remaining) % event.period;
    if (overflows(event.spec)) hint(event.spec.counter.mask());
  }
}

VectorHost::Event* VectorHost::find(HostEvent event) {
  const auto at = static_cast<std::size_t>(event);
  return at < events_.size() && events_[at].open ? &events_[at] : nullptr;
}

Result<HostEvent, HostError> VectorHost::open(const HostEventSpec& spec, std::uint64_t period) {
  if (failing_opens_ != 0) {
    --failing_opens_;
    return HostError::failed;
  }
  if (period == 0) return HostError::failed;
  auto place = std::ranges::find(events_, false, &Event::open);
  if (place == events_.end()) place = events_.insert(place, Event{});
  *place = Event{.spec = spec, .period = period, .remaining = period, .open = true};
  return static_cast<HostEvent>(place - events_.begin());
}

void VectorHost::close(HostEvent event) {
  if (Event* found = find(event)) found->open = false;
}

Status<HostError> VectorHost::set_period(HostEvent event, std::uint64_t period) {
  Event* found = find(event);
  if (found == nullptr || period == 0) return HostError::failed;
  found->period = period;
  found->remaining = period;
  return {};
}

Status<HostError> VectorHost::enable(HostEvent event) {
  Event* found = find(event);
  if (found == nullptr) return HostError::failed;
  found->enabled = true;
  return {};
}

Status<HostError> VectorHost::disable(HostEvent event) {
  Event* found = find(event);
  if (found == nullptr) return HostError::failed;
  found->enabled = false;
  return {};
}

Result<std::uint64_t, HostError> VectorHost::read(HostEvent event) {
  const Event* found = find(event);
  if (found == nullptr) return HostError::failed;
  return found->count;
}

}  // namespace vpmu::lab
