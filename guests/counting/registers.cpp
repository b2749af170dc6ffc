// Every bit of every register: taken or refused, and what reads back.
#include <array>

#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/probe.hpp"
#include "runtime/processor.hpp"
#include "runtime/random.hpp"
#include "runtime/register_rules.hpp"

namespace vpmu::guest {
namespace {

using Access = RegisterRule::Access;

void check_write(Msr msr, const RegisterRule& rule, std::uint64_t value) {
  if ((value & rule.open) != 0) return;
  const std::uint64_t before = read_msr(msr);
  const bool taken = try_write_msr(msr, value);
  if (!rule.takes(value)) {
    check(Kind::faults, !taken, "WRMSR that is to be refused", index_of(msr));
    check_equal(Kind::registers, read_msr(msr), before, "a refused WRMSR changes nothing", index_of(msr));
    return;
  }
  if (!check(Kind::registers, taken, "WRMSR that is to be taken", index_of(msr))) return;
  if (rule.access == Access::plain) {
    check_equal(Kind::registers, read_msr(msr), rule.stored(value), "what was written reads back", index_of(msr));
  }
  if (rule.access == Access::reads_zero) {
    check_equal(Kind::registers, read_msr(msr), 0, "a write-only register reads 0", index_of(msr));
  }
}

void check_bits(Msr msr) {
  const RegisterRule rule = register_rule(pmu().profile(), msr);
  if (rule.access != Access::plain && rule.access != Access::reads_zero) return;
  for (std::uint32_t bit = 0; bit < 64; ++bit) check_write(msr, rule, 1ULL << bit);
  constexpr std::array<std::uint64_t, 8> patterns{
      ~std::uint64_t{0}, 0, 0x1'7FFF'FFFF, 0x8000'0000, 0x7FFF'FFFF, 0x8000'0000'0000, 0x7FFF'FFFF'FFFF, 0xFFFF'FFFF,
  };
  for (const std::uint64_t pattern : patterns) check_write(msr, rule, pattern);
  write_msr(msr, 0);
}

/// Random values, most of them with only such bits set as can be legal.
void check_random_values() {
  Random random{option("seed", 1)};
  for_each_pmu_register([&](Msr msr) {
    const RegisterRule rule = register_rule(pmu().profile(), msr);
    if (rule.access != Access::plain && rule.access != Access::reads_zero) return;
    const std::uint64_t rounds = scaled(8);
    for (std::uint64_t i = 0; i < rounds; ++i) {
      const std::uint64_t value = random.next();
      check_write(msr, rule, random.below(4) == 0 ? value : value & rule.legal & rule.kept);
      // A control whose counters would run goes back at once.
      if (rule.content == RegisterRule::Content::control) write_msr(msr, 0);
    }
    write_msr(msr, 0);
  });
}

/// APM volume 2, section 13.2.1: the first four core counters are the K7 ones.
void check_aliases() {
  const Profile& profile = pmu().profile();
  if (profile.is_intel()) {
    if (!profile.full_width_writes()) return;
    for (std::uint32_t n = 0; n < profile.gp_counters; ++n) {
      const std::uint64_t width = pmu().mask(CounterId::gp(n));
      write_msr(ia32_a_pmc[n], 0x1234'5678'9ABC & width);
      check_equal(Kind::registers, read_msr(ia32_pmc[n]), 0x1234'5678'9ABC & width, "IA32_PMCn is IA32_A_PMCn", n);
      write_msr(ia32_pmc[n], 0x8000'0001);
      check_equal(Kind::registers, read_msr(ia32_a_pmc[n]), 0xFFFF'FFFF'8000'0001 & width, "IA32_A_PMCn is IA32_PMCn",
                  n);
    }
    return;
  }
  if (!profile.core_ext) return;
  for (std::uint32_t n = 0; n < amd_k7_perf_ctr.count; ++n) {
    write_msr(amd_core_perf_ctl[n], 0x1'0030'0041);
    check_equal(Kind::registers, read_msr(amd_k7_perf_ctl[n]), 0x1'0010'0041, "K7 selector is the core one", n);
    write_msr(amd_k7_perf_ctr[n], 0x1234'5678'9ABC);
    check_equal(Kind::registers, read_msr(amd_core_perf_ctr[n]), 0x1234'5678'9ABC, "core counter is the K7 one", n);
  }
}

/// SDM volume 3, "IA32_PERF_GLOBAL_STATUS_SET" and "_INUSE" (v4); APM volume 2, section 13.2.1 (PerfMonV2).
void check_status_set() {
  Pmu& unit = pmu();
  const Profile& profile = unit.profile();
  if (profile.is_intel() ? profile.version < 4 : profile.version < 2) return;
  const Msr set = profile.is_intel() ? Msr::ia32_perf_global_status_set : Msr::amd_perf_cntr_global_status_set;
  unit.acknowledge(unit.status_bits());
  for_each_counter(unit.counters(), [&](CounterId counter) {
    write_msr(set, counter.mask());
    check_equal(Kind::registers, read_msr(unit.global_status()), counter.mask(), "status set", counter.bit());
    unit.acknowledge(counter.mask());
    check_equal(Kind::registers, read_msr(unit.global_status()), 0, "status cleared", counter.bit());
  });
  if (!profile.is_intel()) return;
  check_equal(Kind::registers, read_msr(Msr::ia32_perf_global_inuse), 0, "nothing in use");
  for_each_counter(unit.counters(), [&](CounterId counter) {
    unit.program(counter, {.event = EventKind::instructions});
    check_equal(Kind::registers, read_msr(Msr::ia32_perf_global_inuse), counter.mask(), "in use", counter.bit());
    constexpr std::uint64_t pmi_in_use = 1ULL << 63;
    unit.program(counter, {.event = EventKind::instructions, .interrupt = Interrupt::on});
    check_equal(Kind::registers, read_msr(Msr::ia32_perf_global_inuse), counter.mask() | pmi_in_use, "PMI in use",
                counter.bit());
    unit.clear(counter);
  });
}

}  // namespace

void check_register_bits() {
  begin_group("registers");
  pmu().reset();
  for_each_pmu_register(check_bits);
  check_random_values();
  pmu().reset();
  check_aliases();
  pmu().reset();
  check_status_set();
  pmu().reset();
}

}  // namespace vpmu::guest
