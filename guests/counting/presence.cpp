// What exists by CPUID's word, and that nothing else does.
#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/machine.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"
#include "runtime/probe.hpp"
#include "runtime/register_rules.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::guest {
namespace {

using Access = RegisterRule::Access;

void check_register(Msr msr) {
  const RegisterRule rule = register_rule(pmu().profile(), msr);
  const std::uint32_t index = index_of(msr);
  const ProbedValue got = try_read_msr(msr);
  if (rule.access == Access::absent) {
    check(Kind::faults, got.faulted, "RDMSR of an absent register is #GP", index);
    check(Kind::faults, !try_write_msr(msr, 0), "WRMSR of an absent register is #GP", index);
    return;
  }
  if (!check(Kind::registers, !got.faulted, "RDMSR of a present register", index)) return;
  if (rule.access == Access::dead) {
    check(Kind::registers, try_write_msr(msr, ~std::uint64_t{0}), "WRMSR of a K7 register without a PMU", index);
    check_equal(Kind::registers, try_read_msr(msr).value, 0, "a K7 register without a PMU reads 0", index);
  }
  if (rule.access == Access::reads_zero)
    check_equal(Kind::registers, got.value, 0, "a write-only register reads 0", index);
  if (rule.access == Access::read_only) {
    check(Kind::faults, !try_write_msr(msr, 0), "WRMSR of 0 to a read-only register is #GP", index);
    check(Kind::faults, !try_write_msr(msr, got.value), "WRMSR of its value to a read-only register is #GP", index);
  }
  if (rule.access == Access::ignores) check(Kind::registers, try_write_msr(msr, 1), "an ignored WRMSR", index);
}

void check_rdpmc(std::uint32_t index) {
  if (option("user_rdpmc", 1) == 0 && !is_rewritable_pmc(index)) return;
  const bool exists = rdpmc_takes(pmu().profile(), index);
  const bool read = !try_read_pmc(index).faulted;
  check(exists ? Kind::registers : Kind::faults, read == exists, "RDPMC exists as CPUID says", index);
}

/// SDM volume 4, IA32_MISC_ENABLE.
void check_misc_enable() {
  const ProbedValue got = try_read_msr(Msr::ia32_misc_enable);
  if (!check(Kind::registers, !got.faulted, "RDMSR of IA32_MISC_ENABLE")) return;
  const Profile& profile = pmu().profile();
  check_equal(Kind::registers, (got.value & misc_enable::perfmon_available) != 0 ? 1 : 0, profile.present() ? 1 : 0,
              "IA32_MISC_ENABLE says whether there is a PMU");
  check_equal(Kind::registers, (got.value & misc_enable::pebs_unavailable) != 0 ? 1 : 0, profile.pebs() ? 0 : 1,
              "IA32_MISC_ENABLE says whether there is PEBS");
}

}  // namespace

void check_reset_state() {
  begin_group("reset");
  // Not through pmu(): that writes a counter on some processors.
  for_each_pmu_register([](Msr msr) {
    const bool capabilities = msr == Msr::ia32_perf_capabilities;
    const bool control = msr == Msr::ia32_perf_global_ctrl || msr == Msr::amd_perf_cntr_global_ctl;
    const ProbedValue got = try_read_msr(msr);
    if (!got.faulted && !capabilities && !control) {
      check_equal(Kind::registers, got.value, 0, "register after RESET", index_of(msr));
    }
  });
  if (pmu().has_global()) {
    const ProbedValue got = try_read_msr(pmu().global_ctrl());
    check_equal(Kind::registers, got.value, pmu().gp_counters(), "global control after RESET");
  }
}

void check_presence() {
  begin_group("presence");
  if (ignores_unknown_msrs()) {
    unavailable("absent registers: this machine ignores them");
  } else {
    for_each_pmu_register(check_register);
    if (pmu().is_intel()) check_misc_enable();
  }
  for (std::uint32_t i = 0; i < 20; ++i) {
    check_rdpmc(i);
    check_rdpmc(0x40000000 + i);
  }
  for (const std::uint32_t type : {0x10000U, 0x20000000U, 0x40010000U, 0x80000000U, 0xC0000000U, 0xFFFF0000U}) {
    check_rdpmc(type);
    check_rdpmc(type + 1);
  }
  pmu().reset();
}

}  // namespace vpmu::guest
