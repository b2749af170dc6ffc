// Why a counter counts, or does not: the first reason on the way from its own control to the host.
#include "arch/events.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu {
namespace {

bool cpuid_denies(const Profile& profile, std::uint64_t selector) {
  for (const arch::EventCode& code : arch::event_codes) {
    if (code.vendor == profile.vendor && code.select == (selector & evtsel::code)) {
      return !arch::is_available(profile, code.kind);
    }
  }
  return false;
}

Explanation of_gp(std::uint64_t selector, bool passes) {
  if ((selector & evtsel::enable) == 0) return {false, "the enable bit (22) of its event select is 0"};
  if ((selector & (evtsel::user | evtsel::kernel)) == 0) {
    return {false, "its event select has neither the USR nor the OS bit (16, 17): it counts at no privilege level"};
  }
  if (!passes) return {false, "the event filter denies its event"};
  return {true, nullptr};
}

Explanation of_fixed(std::uint64_t field, bool passes) {
  if ((field & (fixed_ctrl::user | fixed_ctrl::kernel)) == 0) {
    return {false, "its field of FIXED_CTR_CTRL enables it at no privilege level"};
  }
  if (!passes) return {false, "the event filter denies this fixed counter"};
  return {true, nullptr};
}

Explanation of_host(Health health) {
  switch (health) {
    case Health::idle:
      return {true, "it counts from the next VM entry on"};
    case Health::counting:
      return {true, "it counts"};
    case Health::clamped:
      return {true, "it counts, but its period is too short for the host: overflows come late"};
    default:
      return {false, describe(health)};
  }
}

}  // namespace

Explanation VirtualPmu::explain(CounterId counter) const {
  const CounterSet mask = counter.mask();
  if ((profile().counters() & mask) == 0) return {false, "this PMU has no such counter"};
  const std::uint64_t selector = counter.is_fixed() ? 0 : registers_.selector(counter);
  const bool passes = (registers_.let_through() & mask) != 0;
  const Explanation own = counter.is_fixed()
                              ? of_fixed(fixed_ctrl::field(registers_.fixed_ctrl(), counter.number()), passes)
                              : of_gp(selector, passes);
  if (!own.counts) return own;
  if ((registers_.active() & mask) == 0) {
    if ((registers_.global_ctrl() & mask) == 0) return {false, "its bit of GLOBAL_CTRL is 0"};
    return {false, "the counters are frozen: GLOBAL_STATUS has CTR_FRZ (59) set"};
  }
  const Health health = backing_.health(counter);
  if (health == Health::unsupported && !counter.is_fixed() && cpuid_denies(profile(), selector)) {
    return {false, "CPUID says that its event is not available, and the host can't count it"};
  }
  return of_host(health);
}

}  // namespace vpmu
