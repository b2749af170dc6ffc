// A guest that does anything to its PMU, in any order.
#pragma once

#include <cstdint>
#include <vector>

#include "arch/registers.hpp"
#include "pmu/world.hpp"
#include "seeds.hpp"

namespace vpmu::test {

/// One operation; what its fields mean depends on the kind.
struct Operation {
  enum class Kind : std::uint8_t { write, read, rdpmc, run, emulate, branch, entry, sched_out, filter, reset };
  Kind kind = Kind::entry;
  Msr msr{};
  std::uint64_t value = 0;
  std::uint32_t cpl = 0;
};

/// Registers of the profile that exist, and some that may not.
inline Msr random_register(Random& random, const Profile& profile) {
  const auto n = static_cast<std::uint32_t>(random.below(profile.gp_counters + 1));
  if (!profile.is_intel()) {
    const Msr choices[] = {amd_core_perf_ctl[n],
                           amd_core_perf_ctr[n],
                           amd_k7_perf_ctl[n & 3],
                           amd_k7_perf_ctr[n & 3],
                           amd_core_perf_ctl[0],
                           amd_core_perf_ctr[0],
                           amd_k7_perf_ctl[0],
                           amd_k7_perf_ctr[0],
                           Msr::amd_perf_cntr_global_ctl,
                           Msr::amd_perf_cntr_global_status,
                           Msr::amd_perf_cntr_global_status_clr,
                           Msr::amd_perf_cntr_global_status_set};
    return random.one_of(choices);
  }
  const Msr choices[] = {ia32_pmc[n],
                         ia32_a_pmc[n],
                         ia32_perfevtsel[n],
                         ia32_perfevtsel[0],
                         ia32_a_pmc[0],
                         ia32_fixed_ctr[n & 3],
                         Msr::ia32_fixed_ctr_ctrl,
                         Msr::ia32_perf_global_ctrl,
                         Msr::ia32_perf_global_ctrl,
                         Msr::ia32_perf_global_status,
                         Msr::ia32_perf_global_ovf_ctrl,
                         Msr::ia32_perf_global_status_set,
                         Msr::ia32_perf_global_inuse,
                         Msr::ia32_debugctl,
                         Msr::ia32_pebs_enable};
  return random.one_of(choices);
}

/// A value that a guest would write there more often than not.
inline std::uint64_t random_value(Random& random, const Profile& profile, Msr msr) {
  if (random.chance(30)) return random.any();
  const std::uint64_t code = random.chance(2)   ? instructions_code
                             : random.chance(2) ? arch::event_code(profile.vendor, arch::EventKind::cycles)
                                                : arch::event_code(profile.vendor, arch::EventKind::branches);
  const std::uint64_t near_overflow = before_overflow(1 + random.below(200));
  switch (arch::find_register(msr).kind) {
    case arch::RegisterKind::perfevtsel:
    case arch::RegisterKind::k7_perf_ctl:
    case arch::RegisterKind::core_perf_ctl:
      return code | (random.any() & (evtsel::user | evtsel::interrupt)) | evtsel::kernel |
             (random.chance(5) ? 0 : evtsel::enable);
    case arch::RegisterKind::fixed_ctr_ctrl:
      return random.any() & 0xBBB;
    case arch::RegisterKind::global_ctrl:
    case arch::RegisterKind::amd_global_ctl:
      return random.chance(3) ? 0 : random.chance(2) ? profile.counters() : random.any() & profile.counters();
    case arch::RegisterKind::global_ovf_ctrl:
    case arch::RegisterKind::amd_global_status_clr:
    case arch::RegisterKind::amd_global_status_set:
      return random.chance(3) ? random.any() & profile.counters() : profile.counters();
    case arch::RegisterKind::global_status_set:
      return 1ULL << random.below(64);
    case arch::RegisterKind::debugctl:
      return random.chance(3) ? debugctl::freeze_perfmon_on_pmi : 0;
    case arch::RegisterKind::pebs_enable:
      return random.chance(4) ? random.any() & 0xFF : 0;
    case arch::RegisterKind::pmc:
      return random.chance(2) ? near_overflow & 0xFFFFFFFF : random.below(1000);
    default:
      return random.chance(3) ? random.below(1000) : near_overflow;
  }
}

/// 20 to 200 operations.
inline std::vector<Operation> random_operations(Random& random, const Profile& profile) {
  std::vector<Operation> operations(20 + random.below(181));
  for (Operation& operation : operations) {
    operation.cpl = random.chance(3) ? 3 : 0;
    const std::uint64_t kind = random.below(100);
    if (kind < 35) {
      operation.kind = Operation::Kind::write;
      operation.msr = random_register(random, profile);
      operation.value = random_value(random, profile, operation.msr);
    } else if (kind < 55) {
      operation.kind = Operation::Kind::read;
      operation.msr = random_register(random, profile);
    } else if (kind < 60) {
      operation.kind = Operation::Kind::rdpmc;
      operation.value = random.below(profile.gp_counters + 1U) | (random.chance(3) ? 0x40000000U : 0);
    } else if (kind < 75) {
      operation.kind = Operation::Kind::run;
      operation.value = random.below(random.chance(4) ? 1000 : 60);
    } else if (kind < 85) {
      operation.kind = Operation::Kind::emulate;
      operation.value = 1 + random.below(20);
    } else if (kind < 88) {
      operation.kind = Operation::Kind::branch;
      operation.value = 1 + random.below(5);
    } else if (kind < 96) {
      operation.kind = Operation::Kind::entry;
    } else if (kind < 98) {
      operation.kind = Operation::Kind::sched_out;
    } else if (kind < 99) {
      operation.kind = Operation::Kind::filter;
      operation.value = random.any();
    } else {
      operation.kind = random.chance(4) ? Operation::Kind::reset : Operation::Kind::entry;
    }
  }
  return operations;
}

/// What the guest saw of an operation: the value or the fault of an access, and how many PMIs came by then.
struct Seen {
  std::uint64_t value = 0;
  bool fault = false;
  std::uint64_t pmis = 0;
  friend bool operator==(const Seen&, const Seen&) = default;
};

/// `Played`: a World, or anything with its members.
template <class Played>
Seen play(Played& world, EventFilter& filter, const Operation& operation) {
  Seen seen;
  const auto note = [&](auto result) {
    seen.fault = !result.ok();
    if (result.ok()) seen.value = result.value();
  };
  switch (operation.kind) {
    case Operation::Kind::write:
      seen.fault = !world.write(operation.msr, operation.value);
      break;
    case Operation::Kind::read:
      note(world.pmu.read_msr(operation.msr));
      break;
    case Operation::Kind::rdpmc:
      note(world.pmu.read_pmc(static_cast<std::uint32_t>(operation.value)));
      break;
    case Operation::Kind::run:
      world.run(operation.value, operation.cpl);
      break;
    case Operation::Kind::emulate:
      world.emulate(operation.value, operation.cpl);
      break;
    case Operation::Kind::branch:
      for (std::uint64_t n = 0; n < operation.value; ++n) {
        world.pmu.retire(EmulatedEvent::branch, [&] { return operation.cpl; });
      }
      break;
    case Operation::Kind::entry:
      world.entry();
      break;
    case Operation::Kind::sched_out:
      world.pmu.sched_out();
      break;
    case Operation::Kind::filter: {
      const std::uint64_t events[] = {instructions_code, cycles_code};
      const FilterRequest request{.action = static_cast<std::uint32_t>(operation.value & 1),
                                  .fixed_bitmap = static_cast<std::uint32_t>(operation.value >> 8 & 7),
                                  .events = events,
                                  .event_count = operation.value >> 16 & 1 ? 2U : 1U};
      world.pmu.set_filter(nullptr);
      seen.fault = !filter.load(world.pmu.profile().vendor, request).ok();
      if ((operation.value >> 17 & 1) != 0) world.pmu.set_filter(&filter);
      break;
    }
    case Operation::Kind::reset:
      world.pmu.reset();
      break;
  }
  seen.pmis = world.pmis;
  return seen;
}

}  // namespace vpmu::test
