// A virtual PMU on a fake host, and a guest that tests drive by hand.
#pragma once

#include <cstdint>
#include <string>

#include "arch/events.hpp"
#include "fakes/fake_host.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::test {

inline constexpr std::uint64_t both_rings = evtsel::user | evtsel::kernel;
inline constexpr std::uint64_t sampling = evtsel::enable | evtsel::interrupt;
inline constexpr std::uint64_t instructions_code = 0xC0;
inline constexpr std::uint64_t cycles_code = 0x3C;
inline constexpr std::uint64_t instructions = instructions_code | both_rings | evtsel::enable;
inline constexpr std::uint64_t cycles = cycles_code | both_rings | evtsel::enable;
inline constexpr std::uint64_t width48 = (1ULL << 48) - 1;

/// The value of a 48-bit counter that overflows after `events`.
constexpr std::uint64_t before_overflow(std::uint64_t events) { return (1ULL << 48) - events; }

inline Policy policy_named(const char* name) { return find_policy(name)->policy; }
inline Profile profile_named(const char* name) { return find_profile(name)->profile; }

struct World {
  explicit World(const Profile& profile = profile_named("intel-v2"), const Policy& policy = Policy{},
                 bool free_reads = true)
      : host{free_reads}, backing{host}, pmu{profile, backing, policy} {}
  explicit World(const char* profile, const Policy& policy = Policy{}, bool free_reads = true)
      : World{profile_named(profile), policy, free_reads} {}

  /// VM entry: brings the host in line and counts the PMI, if one is reported.
  void enter() { pmis += pmu.enter() == EntryAction::inject_pmi ? 1 : 0; }
  void leave() { pmu.leave(); }
  void entry() {
    enter();
    leave();
  }

  /// Events of one kind happen on the host while the guest runs at this CPL.
  void happen(arch::EventKind kind, std::uint64_t n, std::uint32_t cpl = 0) {
    host.happen_where(
        [&](const HostEventSpec& spec) {
          if (!(cpl == 0 ? spec.kernel : spec.user)) return false;
          if (spec.counter.is_fixed()) {
            const std::uint32_t number = spec.counter.number();
            return number < arch::fixed_events.size() && arch::fixed_events[number] == kind;
          }
          // Edges and counter masks are left out: what they would count is the hardware model's matter.
          constexpr std::uint64_t flags = evtsel::edge | evtsel::invert | evtsel::counter_mask;
          return (spec.select & flags) == 0 && (spec.select & evtsel::code) == arch::event_code(spec.vendor, kind);
        },
        n);
  }
  /// The guest runs n instructions without an exit.
  void run(std::uint64_t n, std::uint32_t cpl = 0) {
    enter();
    happen(arch::EventKind::instructions, n, cpl);
    happen(arch::EventKind::cycles, 2 * n, cpl);
    happen(arch::EventKind::branches, n / 5, cpl);
    leave();
  }
  /// The VMM completes n instructions for the guest.
  void emulate(std::uint64_t n = 1, std::uint32_t cpl = 0) {
    for (; n > 0; --n) pmu.retire(EmulatedEvent::instruction, [cpl] { return cpl; });
  }

  std::uint64_t read(Msr msr) { return pmu.read_msr(msr).value(); }
  bool write(Msr msr, std::uint64_t value) { return pmu.write_msr(msr, value).ok(); }
  bool readable(Msr msr) { return pmu.read_msr(msr).ok(); }
  /// Calls that a real host would make as system calls.
  [[nodiscard]] std::uint64_t system_calls() const {
    const auto& calls = host.calls();
    return calls.open + calls.close + calls.set_period + calls.enable + calls.disable + calls.read;
  }

  fakes::FakeHost host;
  EmulatedBacking backing;
  VirtualPmu pmu;
  std::uint64_t pmis = 0;
};

}  // namespace vpmu::test
