// Instructions that the VMM completes for its guest: S2's steps, each a property (docs/exactness.md).
#include <gtest/gtest.h>

#include <vector>

#include "pmu/random_guest.hpp"

namespace vpmu::test {
namespace {

/// A CPL source that counts how often it is asked.
struct AskedCpl {
  std::uint32_t cpl = 0;
  int asked = 0;
  std::uint32_t operator()() {
    ++asked;
    return cpl;
  }
};

TEST(EmulatedEvents, MatchOnSelectAndUnitMaskWhateverEdgeInvertAndCounterMaskSay) {
  World world{"intel-v2"};
  world.write(ia32_perfevtsel[0], instructions | evtsel::edge | evtsel::invert | 0x02000000);
  world.write(ia32_perfevtsel[1], instructions | 0x100);
  world.emulate(4);
  EXPECT_EQ(world.read(ia32_pmc[0]), 4U);
  EXPECT_EQ(world.read(ia32_pmc[1]), 0U);
}

TEST(EmulatedEvents, AskForThePrivilegeLevelOnlyIfUserAndKernelEnablesDiffer) {
  World world{"intel-v2"};
  int asked = 0;
  const auto cpl = [&] {
    ++asked;
    return 3;
  };
  world.write(ia32_perfevtsel[0], instructions);
  world.pmu.retire(EmulatedEvent::instruction, cpl);
  EXPECT_EQ(asked, 0);
  world.write(ia32_perfevtsel[1], cycles_code | evtsel::user | evtsel::enable);
  world.pmu.retire(EmulatedEvent::instruction, cpl);
  EXPECT_EQ(asked, 0) << "the counter that tells them apart does not match";
  world.write(ia32_perfevtsel[1], instructions_code | evtsel::kernel | evtsel::enable);
  world.pmu.retire(EmulatedEvent::instruction, cpl);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(world.read(ia32_pmc[0]), 3U);
  EXPECT_EQ(world.read(ia32_pmc[1]), 0U);
}

TEST(EmulatedEvents, AskForThePrivilegeLevelOnlyAfterTheEventMatched) {
  for (const char* policy : {"before-s3", "best"}) {
    World world{"intel-v2", policy_named(policy)};
    for (std::uint32_t n = 0; n < 8; ++n) {
      world.write(ia32_perfevtsel[n], cycles_code | (n % 2 == 0 ? evtsel::user : evtsel::kernel) | evtsel::enable);
    }
    AskedCpl cpl;
    for (int n = 0; n < 100; ++n) world.pmu.retire(EmulatedEvent::instruction, cpl);
    EXPECT_EQ(cpl.asked, 0) << policy;
  }
}

TEST(EmulatedEvents, WithoutAPmuThereIsNothingToLookAtUnderAnyPolicy) {
  for (const char* profile : {"none", "amd-none"}) {
    for (const char* policy : {"before-s0", "before-s2", "best"}) {
      World world{profile, policy_named(policy)};
      EXPECT_EQ(world.pmu.profile().counters(), 0U);
      EXPECT_EQ(world.pmu.registers().active(), 0U);
      AskedCpl cpl;
      world.pmu.retire(EmulatedEvent::instruction, cpl);
      world.pmu.retire(EmulatedEvent::branch, cpl);
      world.entry();
      EXPECT_EQ(cpl.asked, 0) << "the inline test ends it";
      EXPECT_EQ(world.system_calls(), 0U);
    }
  }
}

TEST(EmulatedEvents, OneTranslationServesEveryAddressOfACounter) {
  for (const char* name : {"intel-v1", "intel-v2", "intel-v5", "amd-k7", "amd-core", "amd-v2"}) {
    World world{name};
    const Profile& profile = world.pmu.profile();
    const auto expect_all = [&](std::uint32_t ecx, std::initializer_list<Msr> addresses, std::uint64_t value) {
      for (const Msr address : addresses) {
        ASSERT_TRUE(world.pmu.host_write_msr(address, value).ok()) << name;
        EXPECT_EQ(world.pmu.read_pmc(ecx).value(), value) << name << ", RDPMC " << ecx;
        for (const Msr other : addresses) EXPECT_EQ(world.read(other), value) << name;
        ++value;
      }
    };
    for (std::uint32_t n = 0; n < profile.gp_counters; ++n) {
      const std::uint64_t value = 0x1000 + 0x10 * n;
      if (!profile.is_intel()) {
        const Msr core = amd_core_perf_ctr[n];
        const Msr k7 = n < 4 ? amd_k7_perf_ctr[n] : core;
        expect_all(n, {world.readable(core) ? core : k7, k7}, value);
      } else {
        const Msr full = world.readable(ia32_a_pmc[n]) ? ia32_a_pmc[n] : ia32_pmc[n];
        expect_all(n, {ia32_pmc[n], full}, value);
      }
    }
    for (std::uint32_t n = 0; n < max_fixed_counters; ++n) {
      if ((profile.fixed_mask >> n & 1) != 0) expect_all(0x40000000 + n, {ia32_fixed_ctr[n]}, 0x2000 + 0x10 * n);
    }
  }
}

TEST(Requests, ThatArriveWhileTheHostIsBroughtInLineAreServedToo) {
  World world{"intel-v2"};
  for (std::uint32_t n = 0; n < 4; ++n) {
    world.write(ia32_perfevtsel[n], instructions | evtsel::interrupt);
    world.write(ia32_a_pmc[n], before_overflow(100));
  }
  // Within the VMM's own calls to the host, two counters overflow at once: one hint word, one atomic step.
  struct Arrival {
    World* world;
    bool done = false;
  } arrival{&world};
  world.host.set_meanwhile(
      [](void* context) {
        auto& at = *static_cast<Arrival*>(context);
        if (at.done || at.world->host.open_events() < 4) return;
        at.done = true;
        at.world->host.happen(at.world->host.event_of(CounterId::gp(0)), 100);
        at.world->host.happen(at.world->host.event_of(CounterId::gp(1)), 100);
      },
      &arrival);
  world.entry();
  ASSERT_TRUE(arrival.done);
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
  EXPECT_EQ(world.read(Msr::ia32_perf_global_status), 3U);
  for (std::uint32_t n = 0; n < 2; ++n) EXPECT_EQ(world.read(ia32_pmc[n]), 0U);
}

TEST(Requests, ReachTheCountersThatChangedAndNoOther) {
  World world{"intel-v2"};
  for (std::uint32_t n = 0; n < 8; ++n) world.write(ia32_perfevtsel[n], instructions);
  world.entry();
  for (std::uint32_t n = 0; n < 8; ++n) {
    world.host.reset_calls();
    world.write(ia32_perfevtsel[n], instructions & ~evtsel::enable);
    world.entry();
    const HostEvent event = world.host.event_of(CounterId::gp(n));
    ASSERT_GT(world.host.log_length(), 0U);
    for (std::size_t i = 0; i < world.host.log_length(); ++i) EXPECT_EQ(world.host.log(i).event, event);
  }
}

TEST(Requests, OfEmulatedEventsAreForCountersThatAreEnabled) {
  World world{"intel-v2", policy_named("before-s4")};
  world.write(ia32_perfevtsel[0], instructions);
  world.write(ia32_perfevtsel[1], instructions & ~evtsel::enable);
  world.write(ia32_perfevtsel[2], instructions);
  world.write(Msr::ia32_perf_global_ctrl, 0b011);
  world.entry();
  world.host.reset_calls();
  world.emulate(5);
  world.entry();
  const HostEvent event = world.host.event_of(CounterId::gp(0));
  ASSERT_GT(world.host.log_length(), 0U);
  for (std::size_t i = 0; i < world.host.log_length(); ++i) EXPECT_EQ(world.host.log(i).event, event);
  EXPECT_EQ(world.read(ia32_pmc[0]), 5U);
  EXPECT_EQ(world.read(ia32_pmc[1]), 0U);
  EXPECT_EQ(world.read(ia32_pmc[2]), 0U);
}

TEST(EmulatedEvents, MatchesWorkedOutBeforehandAreThoseThatALookAtEveryCounterFinds) {
  Policy walk;
  walk.retire = Policy::Retire::walk;
  Policy cached;
  cached.retire = Policy::Retire::cached;
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int sequence = 0; sequence < 500; ++sequence) {
      const Profile profile = profile_named(random.one_of({"intel-v1", "intel-v2", "intel-v4", "amd-core", "amd-v2"}));
      World plain{profile, walk};
      World quick{profile, cached};
      EventFilter filters[2];
      for (const Operation& operation : random_operations(random, profile)) {
        ASSERT_EQ(play(plain, filters[0], operation), play(quick, filters[1], operation)) << again(seed);
        const std::uint32_t cpl = random.chance(2) ? 0 : 3;
        for (World* world : {&plain, &quick}) {
          world->pmu.retire(EmulatedEvent::instruction, [cpl] { return cpl; });
          world->pmu.retire(EmulatedEvent::branch, [cpl] { return cpl; });
        }
        for (std::uint32_t n = 0; n < profile.gp_counters; ++n) {
          ASSERT_EQ(plain.pmu.read_pmc(n).value(), quick.pmu.read_pmc(n).value()) << again(seed);
        }
      }
    }
  }
}

TEST(EmulatedEvents, SeveralInstructionsOfOneExitAllCount) {
  World world{"intel-v2"};
  world.write(ia32_perfevtsel[0], instructions);
  world.entry();
  world.emulate(1000);
  world.pmu.retire(EmulatedEvent::branch, [] { return 0; });
  EXPECT_EQ(world.read(ia32_pmc[0]), 1000U);
}

TEST(EmulatedEvents, AFilterThatIsReplacedDecidesFromTheNextInstruction) {
  World world{"intel-v2"};
  world.write(ia32_perfevtsel[0], instructions);
  world.write(Msr::ia32_fixed_ctr_ctrl, 3);
  world.write(Msr::ia32_perf_global_ctrl, 0x1000000FF);
  world.emulate(7);
  EventFilter deny;
  const std::uint64_t denied = instructions_code;
  ASSERT_TRUE(
      deny.load(Vendor::intel, {.action = FilterRequest::deny, .fixed_bitmap = 1, .events = &denied, .event_count = 1})
          .ok());
  world.pmu.set_filter(&deny);
  AskedCpl cpl;
  world.pmu.retire(EmulatedEvent::instruction, cpl);
  world.emulate(3);
  EXPECT_EQ(world.read(ia32_pmc[0]), 7U);
  EXPECT_EQ(world.read(ia32_fixed_ctr[0]), 7U);
  world.pmu.set_filter(nullptr);
  world.emulate(2);
  EXPECT_EQ(world.read(ia32_pmc[0]), 9U);
  EXPECT_EQ(world.read(ia32_fixed_ctr[0]), 9U);
}

}  // namespace
}  // namespace vpmu::test
