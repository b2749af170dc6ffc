// Law 1: a policy changes cost, never what the guest sees. And what holds for any guest whatever it does.
#include <gtest/gtest.h>

#include <memory>

#include "pmu/random_guest.hpp"

namespace vpmu::test {
namespace {

constexpr int sequences_a_seed = 2500;  // with the four seeds of an ordinary run: 10,000

const char* const profiles[] = {"intel-v1", "intel-v2", "intel-v3", "intel-v4", "intel-v5",
                                "amd-k7",   "amd-core", "amd-v2",   "none",     "amd-none"};

/// A guest of random operations under one policy.
struct Player {
  Player(const Profile& profile, const Policy& policy, bool free_reads)
      : world{std::make_unique<World>(profile, policy, free_reads)} {}

  std::unique_ptr<World> world;
  EventFilter filter;
};

Profile random_profile(Random& random) {
  Profile profile = profile_named(random.one_of(profiles));
  if (profile.is_intel() && profile.version >= 2 && random.chance(3)) profile.perf_capabilities |= 3U << 8;
  return profile;
}

class Law1 : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(EveryPolicy, Law1, testing::Values("before-s1", "before-s2", "before-s3", "before-s4", "best"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

TEST_P(Law1, ReadsStatusAndPmisAreThoseOfBeforeS0WhereNoLatenessIsAllowed) {
  Policy policy = policy_named(GetParam());
  policy.fold = 0;
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      const Profile profile = random_profile(random);
      const auto operations = random_operations(random, profile);
      Player before{profile, policy_named("before-s0"), true};
      Player after{profile, policy, random.chance(2)};
      for (std::size_t i = 0; i < operations.size(); ++i) {
        const Seen expected = play(*before.world, before.filter, operations[i]);
        const Seen seen = play(*after.world, after.filter, operations[i]);
        ASSERT_EQ(seen, expected) << again(seed) << ", sequence " << sequence << ", operation " << i << ": value "
                                  << std::hex << seen.value << " for " << expected.value << ", PMIs " << seen.pmis
                                  << " for " << expected.pmis;
      }
    }
  }
}

TEST_P(Law1, ReadsAreThoseOfBeforeS0WithTheToleranceToo) {
  const Policy policy = policy_named(GetParam());
  for (const std::uint64_t seed : seeds()) {
    Random random{seed ^ 1};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      Profile profile = random_profile(random);
      const auto operations = random_operations(random, profile);
      Player before{profile, policy_named("before-s0"), true};
      Player after{profile, policy, random.chance(2)};
      for (std::size_t i = 0; i < operations.size(); ++i) {
        // When a PMI may come late, so may the freeze that follows it.
        if (arch::find_register(operations[i].msr).kind == arch::RegisterKind::debugctl) continue;
        Seen expected = play(*before.world, before.filter, operations[i]);
        Seen seen = play(*after.world, after.filter, operations[i]);
        expected.pmis = seen.pmis = 0;
        ASSERT_EQ(seen, expected) << again(seed) << ", sequence " << sequence << ", operation " << i << ": value "
                                  << std::hex << seen.value << " for " << expected.value;
      }
    }
  }
}

TEST(Law1, PolicyChangesOnARunningGuestChangeNoCount) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed ^ 2};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      const Profile profile = random_profile(random);
      const auto operations = random_operations(random, profile);
      Player before{profile, policy_named("before-s0"), true};
      Player after{profile, policy_named("before-s0"), random.chance(2)};
      for (std::size_t i = 0; i < operations.size(); ++i) {
        if (random.chance(4)) {
          Policy policy = named_policies().first[random.below(named_policies().count)].policy;
          policy.fold = 0;
          after.world->pmu.set_policy(policy);
        }
        const Seen expected = play(*before.world, before.filter, operations[i]);
        const Seen seen = play(*after.world, after.filter, operations[i]);
        ASSERT_EQ(seen, expected) << again(seed) << ", sequence " << sequence << ", operation " << i;
      }
    }
  }
}

/// The calls that the host got so far, whatever they cost.
std::uint64_t host_calls(const World& world) { return world.system_calls() + world.host.calls().peek; }

TEST(AnyGuest, KeepsCountersBelowTheirWidthAndStatusToCountersThatExist) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed ^ 3};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      const Profile profile = random_profile(random);
      Player player{profile, named_policies().first[random.below(named_policies().count)].policy, random.chance(2)};
      const RegisterFile& registers = player.world->pmu.registers();
      for (const Operation& operation : random_operations(random, profile)) {
        const std::uint64_t pmis = player.world->pmis;
        play(*player.world, player.filter, operation);
        ASSERT_LE(player.world->pmis, pmis + 1) << again(seed);
        for_each_counter(profile.counters(), [&](CounterId counter) {
          ASSERT_EQ(registers.value(counter) >> profile.width(counter), 0U) << again(seed);
        });
        const std::uint64_t legal = profile.is_intel() ? arch::legal_global_ovf_ctrl(profile) : profile.counters();
        ASSERT_EQ(registers.global_status() & ~legal, 0U) << again(seed);
        ASSERT_EQ(registers.active() & ~profile.counters(), 0U) << again(seed);
      }
    }
  }
}

TEST(AnyGuest, ReachesTheHostAtEntryExitAndReadsAloneNotByEmulatedInstructionsOrGlobalControl) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed ^ 4};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      const Profile profile = random_profile(random);
      Player player{profile, named_policies().first[random.below(named_policies().count)].policy, random.chance(2)};
      for (const Operation& operation : random_operations(random, profile)) {
        const std::uint64_t calls = host_calls(*player.world);
        play(*player.world, player.filter, operation);
        const arch::RegisterKind kind = arch::find_register(operation.msr).kind;
        const bool silent = operation.kind == Operation::Kind::emulate || operation.kind == Operation::Kind::branch ||
                            (operation.kind == Operation::Kind::write &&
                             (kind == arch::RegisterKind::global_ctrl || kind == arch::RegisterKind::amd_global_ctl ||
                              kind == arch::RegisterKind::global_status_set || kind == arch::RegisterKind::debugctl));
        if (silent) {
          ASSERT_EQ(host_calls(*player.world), calls) << again(seed);
        }
      }
    }
  }
}

TEST(AnyGuest, GivesEveryHostEventBackWhenItsPmuGoes) {
  Random random{seeds().back()};
  for (int sequence = 0; sequence < 200; ++sequence) {
    const Profile profile = random_profile(random);
    fakes::FakeHost host{random.chance(2)};
    {
      EmulatedBacking backing{host};
      VirtualPmu pmu{profile, backing, named_policies().first[random.below(named_policies().count)].policy};
      for (int i = 0; i < 50; ++i) {
        const Msr msr = random_register(random, profile);
        static_cast<void>(pmu.write_msr(msr, random_value(random, profile, msr)));
        static_cast<void>(pmu.enter());
      }
    }
    ASSERT_EQ(host.open_events(), 0U);
  }
}

TEST(Fold, APmiIsAtMostAThousandthOfItsPeriodLateWhateverShareIsEmulated) {
  for (const bool free_reads : {true, false}) {
    for (const std::uint64_t period : {1ULL, 2ULL, 999ULL, 1000ULL, 1001ULL, 5000ULL, 20000ULL, 100000ULL}) {
      for (const std::uint64_t emulated_percent : {0ULL, 1ULL, 10ULL, 50ULL, 90ULL, 99ULL, 100ULL}) {
        Random random{period * 101 + emulated_percent};
        World world{"intel-v2", Policy{}, free_reads};
        world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
        world.write(ia32_a_pmc[0], before_overflow(period));
        std::uint64_t events = 0;
        std::uint64_t samples = 0;
        for (std::uint64_t step = 0; step < 4 * period + 100; ++step) {
          world.enter();
          if (world.pmis > samples) {
            // As the entry that reports it precedes the next event, `events` have happened by the PMI.
            ASSERT_GE(events, period);
            ASSERT_LE(events - period, period / 1000) << period << " " << emulated_percent << "% emulated";
            ++samples;
            world.write(Msr::ia32_perf_global_ovf_ctrl, 1);
            world.write(ia32_a_pmc[0], before_overflow(period));
            world.enter();
            events = 0;
          }
          if (random.below(100) < emulated_percent) {
            world.leave();
            world.emulate();
          } else {
            world.happen(arch::EventKind::instructions, 1);
            world.leave();
          }
          ++events;
        }
        ASSERT_GE(samples, 3U) << period << " " << emulated_percent;
      }
    }
  }
}

TEST(Fold, ReprogramsAreEmulatedEventsDividedByTPlus1) {
  for (const std::uint64_t tolerance : {0ULL, 1ULL, 9ULL, 1000ULL}) {
    Policy policy = policy_named("before-s4");
    policy.fold = tolerance;
    World world{"intel-v2", policy};
    world.write(ia32_perfevtsel[0], instructions);
    world.entry();
    world.host.reset_calls();
    constexpr std::uint64_t emulated = 10000;
    for (std::uint64_t n = 0; n < emulated; ++n) {
      world.emulate();
      world.entry();
    }
    EXPECT_EQ(world.host.calls().set_period, emulated / (tolerance + 1)) << tolerance;
    EXPECT_EQ(world.read(ia32_pmc[0]), emulated) << tolerance;
  }
}

TEST(Fold, AToleranceChangedOnARunningGuestHoldsFromTheNextEntry) {
  Policy policy = policy_named("before-s4");
  World world{"intel-v2", policy};
  world.write(ia32_perfevtsel[0], instructions);
  world.entry();
  policy.fold = 1000000;
  world.pmu.set_policy(policy);
  world.entry();
  world.host.reset_calls();
  for (int n = 0; n < 1000; ++n) {
    world.emulate();
    world.entry();
  }
  EXPECT_EQ(world.system_calls(), 0U);
  policy.fold = 0;
  world.pmu.set_policy(policy);
  world.entry();
  world.emulate();
  world.entry();
  EXPECT_GT(world.system_calls(), 0U);
  EXPECT_EQ(world.read(ia32_pmc[0]), 1001U);
}

}  // namespace
}  // namespace vpmu::test
