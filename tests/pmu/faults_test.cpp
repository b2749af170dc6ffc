// Host failures surface as health, the guest's registers stay coherent, and no counter silently reads 0.
#include <gtest/gtest.h>

#include "pmu/random_guest.hpp"

namespace vpmu::test {
namespace {

using fakes::HostCall;

constexpr HostError errors[] = {HostError::no_counter,  HostError::no_resources, HostError::not_permitted,
                                HostError::unsupported, HostError::lost,         HostError::failed};
constexpr HostCall calls[] = {HostCall::open,    HostCall::set_period, HostCall::enable,
                              HostCall::disable, HostCall::read,       HostCall::peek};

TEST(Health, SaysThatACounterIsIdleAndThenThatItCounts) {
  World world{"intel-v2"};
  EXPECT_EQ(world.pmu.health(CounterId::gp(0)), Health::idle);
  world.write(ia32_perfevtsel[0], instructions);
  world.entry();
  EXPECT_EQ(world.pmu.health(CounterId::gp(0)), Health::counting);
  world.write(ia32_perfevtsel[0], 0);
  world.entry();
  EXPECT_EQ(world.pmu.health(CounterId::gp(0)), Health::idle);
}

TEST(Health, SaysWhyAnEventWasRefused) {
  const std::pair<HostError, Health> expected[] = {{HostError::no_counter, Health::no_counter},
                                                   {HostError::no_resources, Health::no_resources},
                                                   {HostError::not_permitted, Health::not_permitted},
                                                   {HostError::unsupported, Health::unsupported},
                                                   {HostError::lost, Health::lost},
                                                   {HostError::failed, Health::failed}};
  for (const auto& [error, health] : expected) {
    World world{"intel-v2"};
    world.host.fail_always(HostCall::open, error);
    world.write(ia32_perfevtsel[0], instructions);
    world.run(10);
    EXPECT_EQ(world.pmu.health(CounterId::gp(0)), health);
    world.emulate(3);
    EXPECT_EQ(world.read(ia32_pmc[0]), 3U) << "emulated instructions count all the same";
  }
}

TEST(Health, ACounterThatFoundNoneFreeIsTriedAgainInTheNextSlice) {
  World world{"intel-v2"};
  world.host.set_counters(1);
  world.write(ia32_perfevtsel[0], instructions);
  world.write(ia32_perfevtsel[1], cycles);
  world.run(10);
  EXPECT_EQ(world.pmu.health(CounterId::gp(1)), Health::no_counter);
  world.host.set_counters(2);
  world.pmu.sched_out();
  world.run(10);
  EXPECT_EQ(world.pmu.health(CounterId::gp(1)), Health::counting);
  EXPECT_EQ(world.read(ia32_pmc[1]), 20U);
}

TEST(Health, AHostWithoutAFreeCounterGetsBackThoseOfCountersThatAreOff) {
  for (const bool free_reads : {true, false}) {
    World world{"intel-v2", Policy{}, free_reads};
    world.host.set_counters(1);
    world.write(ia32_perfevtsel[0], instructions);
    world.run(10);
    world.write(ia32_perfevtsel[0], 0);
    world.write(ia32_perfevtsel[1], cycles);
    world.run(10);
    EXPECT_EQ(world.pmu.health(CounterId::gp(1)), Health::counting);
    EXPECT_EQ(world.read(ia32_pmc[0]), 10U);
    EXPECT_EQ(world.read(ia32_pmc[1]), 20U);
  }
}

TEST(Health, AnEventThatTheHostTakesAwayKeepsWhatWasCountedAndSaysSo) {
  World world{"intel-v2", Policy{}, false};
  world.write(ia32_perfevtsel[0], instructions);
  world.run(10);
  EXPECT_EQ(world.read(ia32_pmc[0]), 10U);
  world.host.lose(world.host.event_of(CounterId::gp(0)));
  world.run(10);
  EXPECT_EQ(world.read(ia32_pmc[0]), 10U);
  EXPECT_EQ(world.pmu.health(CounterId::gp(0)), Health::lost);
  world.pmu.sched_out();
  world.run(5);
  EXPECT_EQ(world.pmu.health(CounterId::gp(0)), Health::counting);
  EXPECT_EQ(world.read(ia32_pmc[0]), 15U);
}

TEST(Hints, ThatComeLateMergedOrNotAtAllLoseNoOverflow) {
  for (const bool free_reads : {true, false}) {
    World world{"intel-v2", Policy{}, free_reads};
    world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
    world.write(ia32_perfevtsel[1], cycles | evtsel::interrupt);
    world.write(ia32_a_pmc[0], before_overflow(10));
    world.write(ia32_a_pmc[1], before_overflow(30));
    world.host.hold_hints(true);
    world.run(20);
    world.entry();
    EXPECT_EQ(world.pmis, 0U);
    world.host.deliver_hints();
    world.entry();
    world.entry();
    EXPECT_EQ(world.pmis, 1U) << "late and merged";
    EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 3U);

    world.host.hold_hints(false);
    world.host.lose_hints(1);
    world.write(Msr::ia32_perf_global_ovf_ctrl, 3);
    world.write(ia32_a_pmc[0], before_overflow(10));
    world.run(10);
    EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 1U) << "lost: the next look finds it";
    world.entry();
    EXPECT_EQ(world.pmis, 2U);
  }
}

TEST(Health, ACounterWhosePeriodIsTooShortForTheHostIsClampedAndStillExact) {
  World world{"intel-v2"};
  world.host.set_shortest_period(1000);
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], before_overflow(10));
  world.run(30);
  EXPECT_EQ(world.pmu.health(CounterId::gp(0)), Health::clamped);
  EXPECT_EQ(world.read(ia32_pmc[0]), 20U);
  world.entry();
  EXPECT_EQ(world.pmis, 1U) << "the read found the overflow";
  world.write(ia32_a_pmc[0], before_overflow(5000));
  world.run(1);
  EXPECT_EQ(world.pmu.health(CounterId::gp(0)), Health::counting);
}

TEST(Hints, ThatComeWithoutAnOverflowAreNotTakenForOne) {
  World world{"intel-v2"};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], before_overflow(100));
  world.run(10);
  for (int n = 0; n < 5; ++n) {
    world.host.hint(~CounterSet{0});
    world.entry();
  }
  EXPECT_EQ(world.pmis, 0U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 0U);
  world.run(89);
  world.entry();
  EXPECT_EQ(world.pmis, 0U);
  world.run(1);
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
}

TEST(AnyFailure, OfAnyCallAtAnyTimeLeavesRegistersCoherentAndIsNeverSilent) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int sequence = 0; sequence < 2500; ++sequence) {
      const Profile profile = profile_named(random.chance(2) ? "intel-v4" : "amd-v2");
      World world{profile, named_policies().first[random.below(named_policies().count)].policy, random.chance(2)};
      EventFilter filter;
      for (const Operation& operation : random_operations(random, profile)) {
        if (random.chance(10)) {
          world.host.fail_nth(random.one_of(calls), 1 + random.below(3), random.one_of(errors));
        }
        if (random.chance(50)) {
          const HostEvent event = world.host.event_of(CounterId::gp(static_cast<std::uint32_t>(random.below(4))));
          if (event != HostEvent::none) world.host.lose(event);
        }
        play(world, filter, operation);
        const RegisterFile& registers = world.pmu.registers();
        for_each_counter(profile.counters(), [&](CounterId counter) {
          ASSERT_EQ(registers.value(counter) >> profile.width(counter), 0U) << again(seed);
        });
        ASSERT_EQ(registers.active() & ~profile.counters(), 0U) << again(seed);
      }
      // With a host that works again, whatever failed counts from the next slice on.
      for (const HostCall call : calls) world.host.fail_never(call);
      world.pmu.reset();
      const Msr selector = profile.is_intel() ? ia32_perfevtsel[0] : amd_core_perf_ctl[0];
      const Msr counter = profile.is_intel() ? ia32_pmc[0] : amd_core_perf_ctr[0];
      world.pmu.set_filter(nullptr);
      world.write(selector, instructions_code | both_rings | evtsel::enable);
      world.run(10);
      ASSERT_EQ(world.read(counter), 10U) << again(seed);
      ASSERT_EQ(world.pmu.health(CounterId::gp(0)), Health::counting) << again(seed);
    }
  }
}

TEST(AnyFailure, MakesTheCountersThatShouldCountAndDoNotSayWhy) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int sequence = 0; sequence < 1000; ++sequence) {
      const Profile profile = profile_named("intel-v2");
      World world{profile, named_policies().first[random.below(named_policies().count)].policy, random.chance(2)};
      EventFilter filter;
      for (const Operation& operation : random_operations(random, profile)) {
        if (random.chance(10)) {
          world.host.fail_nth(random.one_of(calls), 1 + random.below(3), random.one_of(errors));
        }
        play(world, filter, operation);
        world.enter();
        for_each_counter(world.pmu.registers().active(), [&](CounterId counter) {
          const HostEvent event = world.host.event_of(counter);
          const bool counts = event != HostEvent::none && world.host.is_enabled(event);
          ASSERT_EQ(world.pmu.health(counter) == Health::counting, counts) << again(seed);
        });
        world.leave();
      }
    }
  }
}

}  // namespace
}  // namespace vpmu::test
