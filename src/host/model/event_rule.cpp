#include "host/model/event_rule.hpp"

#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

/// The bit of CPUID.0AH:EBX that stands for an architectural event (SDM volume 2, CPUID).
constexpr std::uint32_t cpuid_bit(Event event) {
  switch (event) {
    case Event::cycles:
      return 0;
    case Event::instructions:
      return 1;
    case Event::ref_cycles:
      return 2;
    case Event::llc_references:
      return 3;
    case Event::llc_misses:
      return 4;
    case Event::branches:
      return 5;
    case Event::branch_misses:
      return 6;
  }
  return 31;
}

bool available(const Profile& host, Event event) {
  if (!host.is_intel()) return true;
  const std::uint32_t bit = cpuid_bit(event);
  return bit < host.events_length && (host.events_unavailable >> bit & 1) == 0;
}

const arch::EventCode* find_code(const Profile& host, std::uint64_t code) {
  for (const auto& known : arch::event_codes) {
    if (known.vendor == host.vendor && known.select == code && available(host, known.kind)) return &known;
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
