// Why a counter counts, or stands still.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "pmu/world.hpp"
#include "seeds.hpp"

namespace vpmu::test {
namespace {

using testing::HasSubstr;

constexpr CounterId gp0 = CounterId::gp(0);

/// Whether it counts, and the sentence.
testing::Matcher<const Explanation&> says(bool counts, const std::string& part) {
  return testing::AllOf(testing::Field(&Explanation::counts, counts),
                        testing::Field(&Explanation::sentence, HasSubstr(part)));
}

TEST(Explain, NamesTheFirstReasonOnTheWayToTheHost) {
  World world{"intel-v4"};
  world.write(Msr::ia32_perf_global_ctrl, 0);
  EXPECT_THAT(world.pmu.explain(CounterId::gp(8)), says(false, "no such counter"));
  EXPECT_THAT(world.pmu.explain(CounterId::fixed(3)), says(false, "no such counter"));
  EXPECT_THAT(world.pmu.explain(gp0), says(false, "enable bit (22) of its event select is 0"));
  world.write(ia32_perfevtsel[0], instructions_code | evtsel::enable);
  EXPECT_THAT(world.pmu.explain(gp0), says(false, "neither the USR nor the OS bit"));
  world.write(ia32_perfevtsel[0], instructions);
  EXPECT_THAT(world.pmu.explain(gp0), says(false, "its bit of GLOBAL_CTRL is 0"));
  world.write(Msr::ia32_perf_global_ctrl, 1);
  EXPECT_THAT(world.pmu.explain(gp0), says(true, "from the next VM entry on"));
  world.entry();
  EXPECT_THAT(world.pmu.explain(gp0), says(true, "it counts"));
  world.write(Msr::ia32_perf_global_status_set, global_status::counters_frozen);
  EXPECT_THAT(world.pmu.explain(gp0), says(false, "CTR_FRZ"));
}

TEST(Explain, FixedCountersHaveAControlOfTheirOwn) {
  World world{"intel-v4"};
  constexpr CounterId fixed1 = CounterId::fixed(1);
  EXPECT_THAT(world.pmu.explain(fixed1), says(false, "FIXED_CTR_CTRL enables it at no privilege level"));
  world.write(Msr::ia32_fixed_ctr_ctrl, 0x80);  // the interrupt alone
  EXPECT_THAT(world.pmu.explain(fixed1), says(false, "FIXED_CTR_CTRL enables it at no privilege level"));
  world.write(Msr::ia32_fixed_ctr_ctrl, 0x20);
  EXPECT_THAT(world.pmu.explain(fixed1), says(false, "its bit of GLOBAL_CTRL is 0"));
}

TEST(Explain, TellsTheEventFilterApart) {
  World world{"intel-v4"};
  world.write(ia32_perfevtsel[0], instructions);
  world.write(Msr::ia32_fixed_ctr_ctrl, 0x3);
  const std::uint64_t denied[] = {instructions_code};
  EventFilter filter;
  ASSERT_TRUE(
      filter.load(Vendor::intel, {.action = FilterRequest::deny, .fixed_bitmap = 1, .events = denied, .event_count = 1})
          .ok());
  world.pmu.set_filter(&filter);
  EXPECT_THAT(world.pmu.explain(gp0), says(false, "the event filter denies its event"));
  EXPECT_THAT(world.pmu.explain(CounterId::fixed(0)), says(false, "the event filter denies this fixed counter"));
}

TEST(Explain, SaysWhatTheHostSaid) {
  const auto with = [](HostError error, std::uint32_t unavailable = 0) {
    Profile profile = profile_named("intel-v2");
    profile.events_unavailable = unavailable;
    World world{profile};
    world.host.fail_always(fakes::HostCall::open, error);
    world.write(ia32_perfevtsel[0], instructions);
    world.entry();
    return world.pmu.explain(gp0);
  };
  EXPECT_THAT(with(HostError::no_counter), says(false, "no host counter is free"));
  EXPECT_THAT(with(HostError::not_permitted), says(false, "the host's settings forbid it"));
  EXPECT_THAT(with(HostError::unsupported), says(false, "the host can't count this event"));
  EXPECT_THAT(with(HostError::unsupported, 1U << 1), says(false, "CPUID says that its event is not available"));
  EXPECT_THAT(with(HostError::unsupported, 1U << 0), says(false, "the host can't count this event"));
}

TEST(Explain, EverySentenceFollowsWhatCounts) {
  // The law: a counter that is said to count is active in the register file, and the reverse.
  Random random{7};
  for (int i = 0; i < 20'000; ++i) {
    World world{random.chance(2) ? "intel-v4" : "amd-v2"};
    const bool intel = world.pmu.profile().is_intel();
    world.write(intel ? ia32_perfevtsel[0] : amd_core_perf_ctl[0],
                instructions_code | (random.any() & (both_rings | evtsel::enable)));
    world.write(intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl, random.below(2));
    if (intel) world.write(Msr::ia32_fixed_ctr_ctrl, random.any() & 0xBBB);
    world.entry();
    for_each_counter(world.pmu.profile().counters(), [&](CounterId counter) {
      ASSERT_EQ(world.pmu.explain(counter).counts, (world.pmu.registers().active() & counter.mask()) != 0);
    });
  }
}

}  // namespace
}  // namespace vpmu::test
