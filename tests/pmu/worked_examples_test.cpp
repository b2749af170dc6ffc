// The examples that are easy to get wrong, each under every policy.
#include <gtest/gtest.h>

#include "pmu/world.hpp"

namespace vpmu::test {
namespace {

class WorkedExample : public testing::TestWithParam<const char*> {
 protected:
  [[nodiscard]] Policy policy() const { return policy_named(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(EveryPolicy, WorkedExample,
                         testing::Values("before-s0", "before-s1", "before-s2", "before-s3", "before-s4", "best"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST_P(WorkedExample, TheWrmsrThatSetsARunningCounterItselfRetiresIntoIt) {
  World world{"intel-v2", policy()};
  world.write(ia32_perfevtsel[0], instructions);
  world.entry();
  world.write(ia32_pmc[0], 0x1000);
  world.emulate();
  EXPECT_EQ(world.read(ia32_pmc[0]), 0x1001U);
}

TEST_P(WorkedExample, TheWrmsrThatEnablesACounterIsCountedAndTheOneThatDisablesItIsNot) {
  World world{"intel-v2", policy()};
  world.write(Msr::ia32_perf_global_ctrl, 0);
  world.emulate();
  world.entry();
  world.write(ia32_perfevtsel[0], instructions);
  world.emulate();
  world.entry();
  EXPECT_EQ(world.read(ia32_pmc[0]), 0U);
  world.write(Msr::ia32_perf_global_ctrl, 1);
  world.emulate();
  world.entry();
  EXPECT_EQ(world.read(ia32_pmc[0]), 1U);
  world.write(Msr::ia32_perf_global_ctrl, 0);
  world.emulate();
  world.entry();
  EXPECT_EQ(world.read(ia32_pmc[0]), 1U);
}

TEST_P(WorkedExample, ALegacyWriteIsSignExtendedAndOverflowsAtThe22ndEvent) {
  World world{"intel-v2", policy()};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_pmc[0], 0xFFFFFFEA);
  world.emulate();
  EXPECT_EQ(world.read(ia32_pmc[0]), 0xFFFFFFFFFFEBU);
  world.run(20);
  world.entry();
  EXPECT_EQ(world.pmis, 0U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 0U);
  world.run(1);
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1U);
  EXPECT_EQ(world.read(ia32_pmc[0]), 0U);
}

TEST_P(WorkedExample, AHostOverflowAndOneByEmulationInOneExitGiveOnePmiAndBothStatusBits) {
  World world{"intel-v2", policy()};
  world.write(ia32_perfevtsel[0], cycles | evtsel::interrupt);
  world.write(ia32_perfevtsel[1], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], width48);
  world.write(ia32_a_pmc[1], width48);
  world.enter();
  world.happen(arch::EventKind::cycles, 1);
  world.leave();
  world.emulate();
  world.entry();
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 3U);
}

TEST_P(WorkedExample, AFixedCounterDisabledByItsControlAloneStops) {
  World world{"intel-v2", policy()};
  world.write(Msr::ia32_fixed_ctr_ctrl, 0x300);
  world.write(Msr::ia32_perf_global_ctrl, 1ULL << 34);
  world.enter();
  world.happen(arch::EventKind::ref_cycles, 100);
  world.leave();
  EXPECT_EQ(world.read(ia32_fixed_ctr[2]), 100U);
  world.write(Msr::ia32_fixed_ctr_ctrl, 0);
  world.enter();
  world.happen(arch::EventKind::ref_cycles, 100);
  world.leave();
  EXPECT_EQ(world.read(ia32_fixed_ctr[2]), 100U);
}

TEST_P(WorkedExample, APebsOverflowRaisesAPmiWhateverIntSaysAndOnlyOnceUntilAcknowledged) {
  Profile profile = profile_named("intel-v2");
  profile.perf_capabilities |= 3U << 8;
  World world{profile, policy()};
  world.write(ia32_perfevtsel[0], instructions);
  world.write(ia32_a_pmc[0], width48);
  world.write(Msr::ia32_pebs_enable, 1);
  world.emulate();
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1ULL << 62);
  world.write(ia32_a_pmc[0], width48);
  world.emulate();
  world.entry();
  EXPECT_EQ(world.pmis, 1U) << "the buffer's bit was still set";
  world.write(Msr::ia32_perf_global_ovf_ctrl, 1ULL << 62);
  world.write(ia32_a_pmc[0], width48);
  world.emulate();
  world.entry();
  EXPECT_EQ(world.pmis, 2U);
}

TEST_P(WorkedExample, AnOverflowByEmulationIsSeenByTheNextReadAndSurvivesADisable) {
  World world{"intel-v2", policy()};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], width48);
  world.entry();
  world.emulate();
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1U);
  world.write(ia32_perfevtsel[0], 0);
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1U);
}

TEST_P(WorkedExample, TheInterruptBitAsOfTheOverflowDecides) {
  World world{"intel-v2", policy()};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], before_overflow(10));
  world.enter();
  world.host.hold_hints(true);  // the host's hint is late: only the count says that it overflowed
  world.happen(arch::EventKind::instructions, 10);
  world.leave();
  world.write(ia32_perfevtsel[0], instructions);
  world.entry();
  EXPECT_EQ(world.pmis, 1U);

  world.host.hold_hints(false);
  world.write(Msr::ia32_perf_global_ovf_ctrl, 1);
  world.write(ia32_a_pmc[0], width48);
  world.emulate();
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.entry();
  EXPECT_EQ(world.pmis, 1U) << "at the overflow the bit was clear";
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1U);
}

TEST_P(WorkedExample, EachOfSeveralWrapsBetweenTwoReadsCounts) {
  World world{"intel-v2", policy()};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  for (int wraps = 1; wraps <= 3; ++wraps) {
    world.write(ia32_a_pmc[0], width48);
    world.emulate();
    world.entry();
    EXPECT_EQ(world.pmis, static_cast<std::uint64_t>(wraps));
    world.write(Msr::ia32_perf_global_ovf_ctrl, 1);
    EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 0U);
  }
}

TEST_P(WorkedExample, WhatWasCountedBeforeACounterWriteIsDroppedButItsOverflowStays) {
  World world{"intel-v2", policy()};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], before_overflow(5));
  world.entry();
  world.emulate(7);
  world.write(ia32_a_pmc[0], 100);
  EXPECT_EQ(world.read(ia32_pmc[0]), 100U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1U);
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
  EXPECT_EQ(world.read(ia32_pmc[0]), 100U);
}

TEST_P(WorkedExample, AmdK7RegistersReadZeroAndIgnoreWritesWithoutAPmuAndNothingElseAnswers) {
  World world{"amd-none", policy()};
  for (std::uint32_t n = 0; n < 4; ++n) {
    EXPECT_TRUE(world.write(amd_k7_perf_ctl[n], ~0ULL));
    EXPECT_TRUE(world.write(amd_k7_perf_ctr[n], ~0ULL));
    EXPECT_EQ(world.read(amd_k7_perf_ctl[n]), 0U);
    EXPECT_EQ(world.read(amd_k7_perf_ctr[n]), 0U);
  }
  EXPECT_FALSE(world.readable(amd_core_perf_ctl[0]));
  EXPECT_FALSE(world.readable(Msr::amd_perf_cntr_global_ctl));
  EXPECT_FALSE(world.write(Msr::ia32_perf_global_ctrl, 0));
}

TEST_P(WorkedExample, TheRegistersBehindRdpmcAreNotMsrs) {
  World world{"intel-v2", policy()};
  EXPECT_FALSE(world.pmu.owns(static_cast<Msr>(0x40000000)));
  EXPECT_FALSE(world.readable(static_cast<Msr>(0x40000000)));
  EXPECT_TRUE(world.pmu.read_pmc(0x40000000).ok());
}

TEST_P(WorkedExample, RdpmcChecksTheIndexFirstAndThenPrivilege) {
  World world{"intel-v2", policy()};
  EXPECT_FALSE(world.pmu.read_pmc(8, {.cpl = 0}).ok());
  EXPECT_TRUE(world.pmu.read_pmc(0, {.cpl = 0}).ok());
  EXPECT_FALSE(world.pmu.read_pmc(0, {.cpl = 3}).ok());
  EXPECT_TRUE(world.pmu.read_pmc(0, {.cpl = 3, .cr4_pce = true}).ok());
  EXPECT_TRUE(world.pmu.read_pmc(0, {.cpl = 3, .cr4_pce = false, .cr0_pe = false}).ok());
}

}  // namespace
}  // namespace vpmu::test
