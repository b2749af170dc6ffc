// Law 2: each operation has a budget of host calls.
#include <gtest/gtest.h>

#include "pmu/world.hpp"

namespace vpmu::test {
namespace {

constexpr std::uint64_t period = 100000;

/// What Linux's handler does at a PMI of counter 0 (perfmon v2), an entry after each access.
void handle_pmi(World& world) {
  world.write(Msr::ia32_perf_global_ctrl, 0);
  world.entry();
  const std::uint64_t status = world.read(Msr::ia32_perf_global_status);
  world.entry();
  world.write(Msr::ia32_perf_global_ovf_ctrl, status);
  world.entry();
  static_cast<void>(world.pmu.read_pmc(0));
  world.entry();
  world.write(ia32_pmc[0], static_cast<std::uint32_t>(-period));
  world.entry();
  world.write(Msr::ia32_perf_global_ctrl, 0xFF);
  world.entry();
}

/// Counter 0 samples, and `resident` others count; one period has passed and its PMI been handled.
void start_sampling(World& world, std::uint32_t resident) {
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  for (std::uint32_t n = 1; n <= resident; ++n) world.write(ia32_perfevtsel[n], cycles | evtsel::interrupt);
  world.write(ia32_pmc[0], static_cast<std::uint32_t>(-period));
  world.entry();
  world.run(period);
  world.entry();
  handle_pmi(world);
}

/// System calls of one PMI, from the overflow to the handler's last access, in the steady state.
std::uint64_t calls_a_pmi(World& world) {
  constexpr std::uint64_t pmis = 10;
  const std::uint64_t before = world.pmis;
  world.host.reset_calls();
  for (std::uint64_t n = 0; n < pmis; ++n) {
    world.run(period);
    world.entry();
    handle_pmi(world);
  }
  EXPECT_EQ(world.pmis - before, pmis);
  return world.system_calls() / pmis;
}

TEST(Budget, AGlobalCtrlTogglePairCostsNoSystemCallWhereReadsAreFree) {
  World world{"intel-v2", policy_named("best"), true};
  for (std::uint32_t n = 0; n < 8; ++n) world.write(ia32_perfevtsel[n], instructions);
  world.entry();
  world.host.reset_calls();
  for (int pair = 0; pair < 100; ++pair) {
    world.write(Msr::ia32_perf_global_ctrl, 0);
    world.entry();
    world.happen(arch::EventKind::instructions, 3);
    world.write(Msr::ia32_perf_global_ctrl, 0xFF);
    world.run(100);
  }
  EXPECT_EQ(world.system_calls(), 0U);
  EXPECT_EQ(world.read(ia32_pmc[7]), 100U * 100);
}

TEST(Budget, AGlobalCtrlTogglePairCostsTwoSystemCallsACounterWhereReadsAreNotFree) {
  World world{"intel-v2", policy_named("best"), false};
  for (std::uint32_t n = 0; n < 4; ++n) world.write(ia32_perfevtsel[n], instructions);
  world.entry();
  world.host.reset_calls();
  constexpr std::uint64_t pairs = 100;
  for (std::uint64_t pair = 0; pair < pairs; ++pair) {
    world.write(Msr::ia32_perf_global_ctrl, 0);
    world.entry();
    world.write(Msr::ia32_perf_global_ctrl, 0xFF);
    world.run(100);
  }
  EXPECT_EQ(world.system_calls(), 2 * 4 * pairs);
  EXPECT_EQ(world.read(ia32_pmc[3]), 100 * pairs);
}

TEST(Budget, ASteadySamplingPmiCostsOneSystemCallWhereReadsAreFree) {
  for (const std::uint32_t resident : {0U, 3U, 7U}) {
    World world{"intel-v2", policy_named("best"), true};
    start_sampling(world, resident);
    EXPECT_LE(calls_a_pmi(world), 1U) << resident << " resident counters";
  }
}

TEST(Budget, ASteadySamplingPmiCostsFourSystemCallsWhereReadsAreNotFreeAndTwoForEachResidentCounter) {
  for (const std::uint32_t resident : {0U, 3U, 7U}) {
    World world{"intel-v2", policy_named("best"), false};
    start_sampling(world, resident);
    EXPECT_LE(calls_a_pmi(world), 4 + 2 * resident) << resident << " resident counters";
  }
}

TEST(Budget, BeforeS0RecreatesEachCounterExactlyOnceAPmi) {
  for (const std::uint32_t resident : {0U, 3U, 7U}) {
    World world{"intel-v2", policy_named("before-s0"), true};
    start_sampling(world, resident);
    world.host.reset_calls();
    world.run(period);
    world.entry();
    handle_pmi(world);
    EXPECT_EQ(world.host.calls().open, resident + 1) << resident << " resident counters";
    EXPECT_EQ(world.host.calls().close, resident + 1) << resident << " resident counters";
  }
}

TEST(Budget, TrackingPausesAloneSavesHostCalls) {
  Policy untracked = policy_named("before-s1");
  Policy tracked = untracked;
  tracked.pause = Policy::Pause::tracked;
  World before{"intel-v2", untracked, false};
  World after{"intel-v2", tracked, false};
  start_sampling(before, 3);
  start_sampling(after, 3);
  EXPECT_LT(calls_a_pmi(after), calls_a_pmi(before));
}

TEST(Budget, AnEmulatedInstructionBelowTheToleranceCostsNoHostCall) {
  World world{"intel-v2", policy_named("best"), false};
  world.write(ia32_perfevtsel[0], instructions);
  world.entry();
  world.host.reset_calls();
  for (int n = 0; n < 100000; ++n) {
    world.emulate();
    world.entry();
  }
  EXPECT_EQ(world.system_calls() + world.host.calls().peek, 0U);
  EXPECT_EQ(world.read(ia32_pmc[0]), 100000U);
}

TEST(Budget, AHostEventIsOpenedWhenFirstEnabledAndClosedAfterAnUnusedSlice) {
  World world{"intel-v2", policy_named("best"), true};
  world.write(ia32_perfevtsel[0], instructions & ~evtsel::enable);
  world.entry();
  EXPECT_EQ(world.host.open_events(), 0U);
  world.write(ia32_perfevtsel[0], instructions);
  world.run(10);
  EXPECT_EQ(world.host.open_events(), 1U);
  world.write(ia32_perfevtsel[0], 0);
  world.entry();
  world.pmu.sched_out();
  EXPECT_EQ(world.host.open_events(), 1U) << "it was in use during this slice";
  world.pmu.sched_out();
  EXPECT_EQ(world.host.open_events(), 0U);
  EXPECT_EQ(world.read(ia32_pmc[0]), 10U);
}

TEST(Budget, ASoftPauseBecomesARealOneAtTheFirstHintOrAfterASlice) {
  World world{"intel-v2", policy_named("best"), true};
  world.write(ia32_perfevtsel[0], instructions);
  world.write(ia32_a_pmc[0], before_overflow(1000));
  world.run(10);
  const HostEvent event = world.host.event_of(CounterId::gp(0));
  world.write(Msr::ia32_perf_global_ctrl, 0);
  world.entry();
  EXPECT_TRUE(world.host.is_enabled(event));
  world.run(2000);
  EXPECT_FALSE(world.host.is_enabled(event)) << "the hint came while the guest's counter was off";
  EXPECT_EQ(world.read(ia32_pmc[0]), before_overflow(990));
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 0U);

  world.pmu.sched_out();
  world.write(Msr::ia32_perf_global_ctrl, 0xFF);
  world.entry();
  world.write(Msr::ia32_perf_global_ctrl, 0);
  world.entry();
  EXPECT_TRUE(world.host.is_enabled(event));
  world.pmu.sched_out();
  EXPECT_FALSE(world.host.is_enabled(event));
}

/// A PMI, and a handler that takes `events` with the guest's counters off.
void pmi_of(World& world, std::uint64_t events) {
  world.run(period);
  world.entry();
  world.write(Msr::ia32_perf_global_ctrl, 0);
  world.entry();
  world.run(events);
  world.write(Msr::ia32_perf_global_ovf_ctrl, 1);
  world.write(ia32_pmc[0], static_cast<std::uint32_t>(-period));
  world.write(Msr::ia32_perf_global_ctrl, 0xFF);
  world.entry();
}

TEST(Budget, AHandlerDuringWhichTheHostCountsOnCostsOneSystemCallAndNoEarlyHint) {
  World world{"intel-v2", policy_named("best"), true};
  start_sampling(world, 0);
  pmi_of(world, period / 2);
  pmi_of(world, period / 2);  // the first pauses and stretches are known now
  constexpr std::uint64_t pmis = 10;
  const std::uint64_t before = world.pmis;
  world.host.reset_calls();
  for (std::uint64_t n = 0; n < pmis; ++n) pmi_of(world, period / 2);
  EXPECT_EQ(world.pmis - before, pmis);
  EXPECT_EQ(world.host.calls().set_period, pmis);
  EXPECT_EQ(world.system_calls(), pmis);
  EXPECT_EQ(world.host.calls().signals, pmis);
}

TEST(Budget, PausesFarFromTheOverflowCostNothingAndThoseBeforeItADistance) {
  World world{"intel-v2", policy_named("best"), true};
  start_sampling(world, 0);
  const auto one_period = [&] {
    for (int stretch = 0; stretch < 100; ++stretch) {
      world.run(period / 100);
      world.entry();
      world.write(Msr::ia32_perf_global_ctrl, 0);
      world.entry();
      world.run(10);
      if (stretch == 99) {
        world.write(Msr::ia32_perf_global_ovf_ctrl, 1);
        world.write(ia32_pmc[0], static_cast<std::uint32_t>(-period));
      }
      world.write(Msr::ia32_perf_global_ctrl, 0xFF);
      world.entry();
    }
  };
  one_period();
  constexpr std::uint64_t periods = 10;
  const std::uint64_t before = world.pmis;
  world.host.reset_calls();
  for (std::uint64_t n = 0; n < periods; ++n) one_period();
  EXPECT_EQ(world.pmis - before, periods);
  EXPECT_LE(world.system_calls(), 4 * periods) << "of 200 entries with another enable";
  EXPECT_EQ(world.host.calls().signals, periods);
}

TEST(Budget, PausesThatOutlastAPeriodAreMostlyRealOnes) {
  World world{"intel-v2", policy_named("best"), true};
  start_sampling(world, 0);
  pmi_of(world, 3 * period);
  constexpr std::uint64_t pmis = 60;
  const std::uint64_t before = world.pmis;
  world.host.reset_calls();
  for (std::uint64_t n = 0; n < pmis; ++n) pmi_of(world, 3 * period);
  EXPECT_EQ(world.pmis - before, pmis);
  EXPECT_GT(world.host.calls().signals, pmis) << "a soft one is tried now and then";
  EXPECT_LE(world.host.calls().signals, pmis + pmis / 5);
}

TEST(Budget, OneLongPauseDoesNotEndSoftOnes) {
  World world{"intel-v2", policy_named("best"), true};
  start_sampling(world, 0);
  pmi_of(world, 3 * period);
  for (int n = 0; n < 20; ++n) pmi_of(world, period / 2);
  world.host.reset_calls();
  pmi_of(world, period / 2);
  EXPECT_EQ(world.host.calls().disable, 0U);
  EXPECT_EQ(world.host.calls().set_period, 1U);
}

}  // namespace
}  // namespace vpmu::test
