#include "host/model/event_rule.hpp"

#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

const arch::EventCode* find_code(const Profile& host, std::uint64_t code) {
  for (const auto& known : arch::event_codes) {
    if (known.vendor == host.vendor && known.select == code && arch::is_available(host, known.kind)) return &known;
  }
  return nullptr;
}

/// Bits 35:32 belong to the event select on AMD alone.
constexpr std::uint64_t code_bits(Vendor vendor) {
  return vendor == Vendor::amd ? evtsel::code : evtsel::event | evtsel::unit_mask;
}

}  // namespace

bool can_count(const Profile& host, std::uint64_t code) { return find_code(host, code) != nullptr; }

EventRule rule_of(const Profile& host, std::uint64_t selector) {
  const auto* known = find_code(host, selector & code_bits(host.vendor));
  if (known == nullptr) return {};
  if (host.is_intel() && (selector & evtsel::in_tx) != 0) return {};

  const Event event = known->kind;
  const bool edge = (selector & evtsel::edge) != 0;
  const bool invert = (selector & evtsel::invert) != 0;
  const std::uint64_t mask = (selector & evtsel::counter_mask) >> 24;
  if (mask >= 2) {
    if (!invert) return {};
    return {Event::cycles, edge ? How::rises : How::events};
  }
  if (mask == 1 && invert && event == Event::cycles) return {};  // never true, so it never rises either
  if (edge) return {event, How::rises};
  return {event, mask == 1 && invert ? How::other_cycles : How::events};
}

EventRule rule_of_fixed(std::uint32_t n) {
  if (n >= arch::fixed_events.size()) return {};
  return {arch::fixed_events[n], How::events};
}

}  // namespace vpmu::model
