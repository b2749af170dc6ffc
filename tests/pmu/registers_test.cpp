// Registers as the manuals describe them, those of v3 to v5 above all.
#include <gtest/gtest.h>

#include "pmu/world.hpp"

namespace vpmu::test {
namespace {

TEST(GlobalStatusSet, SetsTheBitsOfV4WithoutAPmiAndReadsZero) {
  World world{"intel-v4"};
  const std::uint64_t legal = 0x7000000FFULL | 1ULL << 55 | 1ULL << 58 | 1ULL << 59 | 1ULL << 60 | 1ULL << 62;
  for (std::uint32_t bit = 0; bit < 64; ++bit) {
    const bool allowed = (legal >> bit & 1) != 0;
    EXPECT_EQ(world.write(Msr::ia32_perf_global_status_set, 1ULL << bit), allowed) << bit;
  }
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), legal);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status_set), 0U);
  world.entry();
  EXPECT_EQ(world.pmis, 0U);
  EXPECT_TRUE(world.write(Msr::ia32_perf_global_ovf_ctrl, legal));
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 0U);
}

TEST(GlobalStatusSet, IsAbsentBelowV4) {
  for (const char* name : {"intel-v1", "intel-v2", "intel-v3"}) {
    World world{name};
    EXPECT_FALSE(world.readable(Msr::ia32_perf_global_status_set)) << name;
    EXPECT_FALSE(world.readable(Msr::ia32_perf_global_inuse)) << name;
    EXPECT_FALSE(world.write(Msr::ia32_perf_global_status_set, 0)) << name;
  }
}

TEST(GlobalInuse, SaysWhichSelectorsAndFieldsAreInUseAndIsReadOnly) {
  World world{"intel-v5"};
  EXPECT_EQ(world.read(Msr::ia32_perf_global_inuse), 0U);
  world.write(ia32_perfevtsel[3], 0x3C);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_inuse), 1ULL << 3);
  world.write(ia32_perfevtsel[4], 0x100);  // a unit mask alone is no event
  EXPECT_EQ(world.read(Msr::ia32_perf_global_inuse), 1ULL << 3);
  world.write(Msr::ia32_fixed_ctr_ctrl, 0x020);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_inuse), 1ULL << 3 | 1ULL << 33);
  world.write(ia32_perfevtsel[3], 0x3C | evtsel::interrupt);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_inuse), 1ULL << 3 | 1ULL << 33 | 1ULL << 63);
  EXPECT_FALSE(world.write(Msr::ia32_perf_global_inuse, 0));
}

TEST(GlobalStatus, IsReadOnlyForTheGuestAndWritableForTheHost) {
  World world{"intel-v2"};
  EXPECT_FALSE(world.write(Msr::ia32_perf_global_status, 0));
  EXPECT_TRUE(world.pmu.host_write_msr(Msr::ia32_perf_global_status, 1ULL << 62 | 1).ok());
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1ULL << 62 | 1);
  EXPECT_FALSE(world.pmu.host_write_msr(Msr::ia32_perf_global_status, 1ULL << 59).ok());
  world.entry();
  EXPECT_EQ(world.pmis, 0U);
}

TEST(FixedCounters, OfV5ExistByTheirBitOfEcx) {
  Profile profile = profile_named("intel-v5");
  profile.fixed_mask = 0b0101;
  World world{profile};
  EXPECT_TRUE(world.readable(ia32_fixed_ctr[0]));
  EXPECT_FALSE(world.readable(ia32_fixed_ctr[1]));
  EXPECT_TRUE(world.readable(ia32_fixed_ctr[2]));
  EXPECT_FALSE(world.readable(ia32_fixed_ctr[3]));
  EXPECT_TRUE(world.write(Msr::ia32_fixed_ctr_ctrl, 0xB0B));
  EXPECT_FALSE(world.write(Msr::ia32_fixed_ctr_ctrl, 0x0B0));
  EXPECT_FALSE(world.write(Msr::ia32_perf_global_ctrl, 1ULL << 33));
  EXPECT_FALSE(world.pmu.read_pmc(0x40000001).ok());
}

TEST(Freeze, OfV2ClearsGlobalCtrlWhenThePmiIsSignalled) {
  for (const char* name : {"intel-v2", "intel-v3"}) {
    World world{name};
    world.write(Msr::ia32_debugctl, debugctl::freeze_perfmon_on_pmi);
    world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
    world.write(ia32_perfevtsel[1], cycles);
    world.write(ia32_a_pmc[0], before_overflow(10));
    world.run(10);
    EXPECT_EQ(world.read(Msr::ia32_perf_global_ctrl), 0xFFU) << name;
    world.enter();
    EXPECT_EQ(world.pmis, 1U) << name;
    EXPECT_EQ(world.read(Msr::ia32_perf_global_ctrl), 0U) << name;
    world.happen(arch::EventKind::instructions, 100);
    world.happen(arch::EventKind::cycles, 100);
    world.leave();
    EXPECT_EQ(world.read(ia32_pmc[0]), 0U) << name;
    EXPECT_EQ(world.read(ia32_pmc[1]), 20U) << name;
  }
}

TEST(Freeze, OfV4SetsCtrFrzWhichStopsAllCountersUntilItIsCleared) {
  for (const char* name : {"intel-v4", "intel-v5"}) {
    World world{name};
    world.write(Msr::ia32_debugctl, debugctl::freeze_perfmon_on_pmi);
    world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
    world.write(ia32_perfevtsel[1], cycles);
    world.write(ia32_a_pmc[0], before_overflow(10));
    world.run(10);
    world.run(100);  // its entry signals the PMI and freezes
    EXPECT_EQ(world.pmis, 1U) << name;
    EXPECT_EQ(world.read(Msr::ia32_perf_global_status), global_status::counters_frozen | 1) << name;
    EXPECT_EQ(world.read(Msr::ia32_perf_global_ctrl), 0xFFU) << name << ": the control stays";
    EXPECT_EQ(world.read(ia32_pmc[0]), 0U) << name;
    EXPECT_EQ(world.read(ia32_pmc[1]), 20U) << name;
    world.emulate(3);
    EXPECT_EQ(world.read(ia32_pmc[0]), 0U) << name << ": emulated instructions are frozen too";
    world.write(Msr::ia32_perf_global_ovf_ctrl, global_status::counters_frozen | 1);
    world.emulate();
    world.run(5);
    EXPECT_EQ(world.read(ia32_pmc[0]), 6U) << name;
    EXPECT_EQ(world.read(ia32_pmc[1]), 30U) << name;
  }
}

TEST(Freeze, DoesNothingWithoutItsBit) {
  World world{"intel-v4"};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], before_overflow(10));
  world.run(10);
  world.run(5);
  EXPECT_EQ(world.pmis, 1U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1U);
  EXPECT_EQ(world.read(ia32_pmc[0]), 5U);
}

TEST(Freeze, CtrFrzSetBySoftwareStopsTheCounters) {
  World world{"intel-v4"};
  world.write(ia32_perfevtsel[0], instructions);
  world.write(Msr::ia32_perf_global_status_set, global_status::counters_frozen);
  world.run(5);
  EXPECT_EQ(world.read(ia32_pmc[0]), 0U);
}

TEST(Debugctl, RefusesReservedBitsAndIsAbsentBelowV2) {
  World world{"intel-v2"};
  for (std::uint32_t bit = 0; bit < 64; ++bit) {
    EXPECT_EQ(world.write(Msr::ia32_debugctl, 1ULL << bit), bit == 1 || bit == 11 || bit == 12) << bit;
  }
  World old{"intel-v1"};
  EXPECT_FALSE(old.readable(Msr::ia32_debugctl));
}

TEST(MiscEnable, StatesThePmuAndRefusesToHaveItsBitsChanged) {
  World world{"intel-v2"};
  EXPECT_EQ(world.read(Msr::ia32_misc_enable), 0x1880U);
  EXPECT_TRUE(world.write(Msr::ia32_misc_enable, 0x1881));
  EXPECT_FALSE(world.write(Msr::ia32_misc_enable, 0x1800));
  EXPECT_FALSE(world.write(Msr::ia32_misc_enable, 0x0880));
}

TEST(PebsRegisters, KeepTheirValuesAndRefuseReservedBits) {
  Profile profile = profile_named("intel-v5");
  profile.perf_capabilities |= 4U << 8 | 1U << 14;
  profile.ds = true;
  World world{profile};
  EXPECT_TRUE(world.write(Msr::ia32_pebs_enable, 0x7000000FF));
  EXPECT_EQ(world.read(Msr::ia32_pebs_enable), 0x7000000FFU);
  EXPECT_FALSE(world.write(Msr::ia32_pebs_enable, 1ULL << 8));
  EXPECT_TRUE(world.write(Msr::msr_pebs_data_cfg, 0xF));
  EXPECT_EQ(world.read(Msr::msr_pebs_data_cfg), 0xFU);
  EXPECT_FALSE(world.write(Msr::msr_pebs_data_cfg, 1U << 4));
  EXPECT_TRUE(world.write(Msr::ia32_ds_area, 0xFFFF800000000000));
  EXPECT_TRUE(world.write(Msr::ia32_ds_area, 0x00007FFFFFFFFFFF));
  EXPECT_FALSE(world.write(Msr::ia32_ds_area, 0x0000800000000000));
  EXPECT_EQ(world.read(Msr::ia32_ds_area), 0x00007FFFFFFFFFFFU);
}

TEST(Selector, KeepsItsValueThoughTheFilterDeniesItsEvent) {
  World world{"intel-v2"};
  EventFilter filter;
  const std::uint64_t denied = instructions_code;
  ASSERT_TRUE(filter.load(Vendor::intel, {.action = FilterRequest::deny, .events = &denied, .event_count = 1}).ok());
  world.pmu.set_filter(&filter);
  world.write(ia32_perfevtsel[0], instructions);
  world.write(ia32_perfevtsel[1], cycles);
  world.run(10);
  world.emulate(3);
  EXPECT_EQ(world.read(ia32_perfevtsel[0]), instructions);
  EXPECT_EQ(world.read(ia32_pmc[0]), 0U);
  EXPECT_EQ(world.read(ia32_pmc[1]), 20U);
  world.pmu.set_filter(nullptr);
  world.run(10);
  EXPECT_EQ(world.read(ia32_pmc[0]), 10U);
}

TEST(Amd, SelectorBitsBeyondTheManualAreDroppedAndNeverFault) {
  World world{"amd-v2"};
  EXPECT_TRUE(world.write(amd_core_perf_ctl[0], ~0ULL));
  EXPECT_EQ(world.read(amd_core_perf_ctl[0]), 0xFFFD7FFFFU);
  EXPECT_EQ(world.read(amd_k7_perf_ctl[0]), 0xFFFD7FFFFU) << "one register under two addresses";
  EXPECT_TRUE(world.write(amd_core_perf_ctr[0], ~0ULL));
  EXPECT_EQ(world.read(amd_k7_perf_ctr[0]), width48);
}

TEST(Amd, GlobalStatusIgnoresGuestWritesAndClrAndSetReadZero) {
  World world{"amd-v2"};
  EXPECT_TRUE(world.write(Msr::amd_perf_cntr_global_status, 0x3F));
  EXPECT_EQ(world.read(Msr::amd_perf_cntr_global_status), 0U);
  EXPECT_TRUE(world.write(Msr::amd_perf_cntr_global_status_set, ~0ULL));
  EXPECT_EQ(world.read(Msr::amd_perf_cntr_global_status), 0x3FU);
  world.entry();
  EXPECT_EQ(world.pmis, 0U) << "SET raises no PMI";
  EXPECT_TRUE(world.write(Msr::amd_perf_cntr_global_status_clr, 0x0F));
  EXPECT_EQ(world.read(Msr::amd_perf_cntr_global_status), 0x30U);
  EXPECT_EQ(world.read(Msr::amd_perf_cntr_global_status_clr), 0U);
  EXPECT_EQ(world.read(Msr::amd_perf_cntr_global_status_set), 0U);
  EXPECT_FALSE(world.pmu.host_write_msr(Msr::amd_perf_cntr_global_status, 0x40).ok());
  EXPECT_TRUE(world.write(Msr::amd_perf_cntr_global_ctl, ~0ULL));
  EXPECT_EQ(world.read(Msr::amd_perf_cntr_global_ctl), 0x3FU);
}

TEST(Amd, V1HasNoVisibleStatusAndStillRaisesThePmi) {
  for (const char* name : {"amd-k7", "amd-core"}) {
    World world{name};
    world.write(amd_k7_perf_ctl[0], instructions_code | both_rings | sampling);
    world.write(amd_k7_perf_ctr[0], before_overflow(10));
    world.run(10);
    world.entry();
    EXPECT_EQ(world.pmis, 1U) << name;
    EXPECT_FALSE(world.readable(Msr::amd_perf_cntr_global_status)) << name;
  }
}

TEST(Reset, ZeroesAllButGlobalCtrlDropsThePmiAndGivesHostEventsBack) {
  for (const char* name : {"intel-v2", "amd-v2"}) {
    World world{name};
    const bool intel = world.pmu.profile().is_intel();
    const Msr selector = intel ? ia32_perfevtsel[0] : amd_core_perf_ctl[0];
    const Msr counter = intel ? ia32_a_pmc[0] : amd_core_perf_ctr[0];
    const Msr status = intel ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status;
    const Msr control = intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl;
    world.write(selector, instructions_code | both_rings | sampling);
    world.write(counter, width48);
    world.write(control, 1);
    world.run(1);
    EXPECT_TRUE(world.pmu.pmi_pending()) << name;
    EXPECT_EQ(world.host.open_events(), 1U) << name;
    world.pmu.reset();
    EXPECT_EQ(world.host.open_events(), 0U) << name;
    world.entry();
    EXPECT_EQ(world.pmis, 0U) << name;
    EXPECT_EQ(world.read(selector), 0U) << name;
    EXPECT_EQ(world.read(counter), 0U) << name;
    EXPECT_EQ(world.read(status), 0U) << name;
    EXPECT_EQ(world.read(control), first_gp(world.pmu.profile().gp_counters)) << name;
  }
}

TEST(ProfileChange, ResetsAndThePendingPmiGoes) {
  World world{"intel-v2"};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], width48);
  world.emulate();
  world.pmu.set_profile(profile_named("amd-v2"));
  world.entry();
  EXPECT_EQ(world.pmis, 0U);
  EXPECT_FALSE(world.readable(ia32_pmc[0]));
  EXPECT_TRUE(world.readable(amd_core_perf_ctr[5]));
}

TEST(HostAccess, OfARegisterOfTheSaveListThatTheProfileLacksReadsZeroAndTakesZero) {
  World world{profile_named("intel-none")};
  EXPECT_EQ(world.pmu.host_read_msr(ia32_perfevtsel[3]).value(), 0U);
  EXPECT_TRUE(world.pmu.host_write_msr(ia32_perfevtsel[3], 0).ok());
  EXPECT_FALSE(world.pmu.host_write_msr(ia32_perfevtsel[3], 1).ok());
  EXPECT_FALSE(world.pmu.host_read_msr(ia32_a_pmc[0]).ok());
  EXPECT_FALSE(world.readable(ia32_perfevtsel[3]));
}

TEST(HostAccess, WritesACounterWithoutSignExtension) {
  World world{"intel-v2"};
  EXPECT_TRUE(world.pmu.host_write_msr(ia32_pmc[0], 0xFFFFFFFF).ok());
  EXPECT_EQ(world.read(ia32_pmc[0]), 0xFFFFFFFFU);
}

TEST(CounterWrite, TakesLow32BitsByTheOldAddressAndTheFullWidthByTheNewOne) {
  World world{"intel-v2"};
  EXPECT_TRUE(world.write(ia32_pmc[0], 0x17FFFFFFF));
  EXPECT_EQ(world.read(ia32_pmc[0]), 0x7FFFFFFFU);
  EXPECT_TRUE(world.write(ia32_a_pmc[0], width48));
  EXPECT_EQ(world.read(ia32_pmc[0]), width48);
  EXPECT_FALSE(world.write(ia32_a_pmc[0], 1ULL << 48));
  EXPECT_TRUE(world.write(ia32_fixed_ctr[0], ~0ULL));
  EXPECT_EQ(world.read(ia32_fixed_ctr[0]), width48);
}

TEST(V1, CountsWithoutGlobalRegistersAndRaisesThePmi) {
  World world{"intel-v1"};
  EXPECT_FALSE(world.readable(Msr::ia32_perf_global_ctrl));
  EXPECT_FALSE(world.readable(ia32_fixed_ctr[0]));
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_pmc[0], 0xFFFFFFF6);
  world.run(10);
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
}

}  // namespace
}  // namespace vpmu::test
