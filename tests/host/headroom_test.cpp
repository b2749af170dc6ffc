// Headroom: what may happen with no counter overflowing.
#include <gtest/gtest.h>

#include <random>

#include "host/model/hardware.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

constexpr std::uint64_t top = 0xFFFF'FFFF'FFFF;
constexpr std::uint64_t on = evtsel::enable | evtsel::user | evtsel::kernel;

void write(HardwarePmu& pmu, std::uint32_t index, std::uint64_t value) {
  ASSERT_TRUE(pmu.write_msr(static_cast<Msr>(index), value).ok());
}

TEST(Headroom, NothingEnabledMeansNoLimit) {
  HardwarePmu pmu{find_profile("intel-v2")->profile};
  EXPECT_EQ(pmu.headroom(Ring::user, Mode::host), Headroom{});
}

TEST(Headroom, AdvanceByTheHeadroomNeverOverflowsAndOneEventMoreDoes) {
  struct Row {
    std::uint64_t code;
    Event event;
    std::uint64_t Headroom::* room;
  };
  for (const auto& [code, event, room] :
       {Row{0x00C0, Event::instructions, &Headroom::instructions}, Row{0x003C, Event::cycles, &Headroom::cycles},
        Row{0x013C, Event::ref_cycles, &Headroom::ref_cycles}, Row{0x00C4, Event::branches, &Headroom::branches},
        Row{0x00C5, Event::branch_misses, &Headroom::other}, Row{0x4F2E, Event::llc_references, &Headroom::other},
        Row{0x412E, Event::llc_misses, &Headroom::other}}) {
    HardwarePmu pmu{find_profile("intel-v2")->profile};
    write(pmu, 0x186, code | on);
    write(pmu, 0x4C1, top - 12345);
    Headroom expected;
    expected.*room = 12345;
    EXPECT_EQ(pmu.headroom(Ring::user, Mode::host), expected);
    Activity fits;
    fits[event] = 12345;
    EXPECT_EQ(pmu.advance(fits, Ring::user, Mode::host), 0U);
    EXPECT_EQ(pmu.headroom(Ring::user, Mode::host).*room, 0U);
    Activity one;
    one[event] = 1;
    EXPECT_EQ(pmu.advance(one, Ring::user, Mode::host), 1U);
    EXPECT_EQ(pmu.headroom(Ring::user, Mode::host).*room, top);
  }
}

TEST(Headroom, EdgesAreBoundedApart) {
  HardwarePmu pmu{find_profile("intel-v2")->profile};
  write(pmu, 0x186, 0xC0 | on | evtsel::edge | 1U << 24);
  write(pmu, 0x4C1, top - 5);
  Headroom expected;
  expected.other = 5;
  EXPECT_EQ(pmu.headroom(Ring::user, Mode::host), expected);
}

TEST(Headroom, InvertedCountersBoundAllCycles) {
  HardwarePmu pmu{find_profile("intel-v2")->profile};
  write(pmu, 0x186, 0xC0 | on | evtsel::invert | 1U << 24);
  write(pmu, 0x4C1, top - 100);
  EXPECT_EQ(pmu.headroom(Ring::user, Mode::host).cycles, 100U);
  EXPECT_EQ(pmu.headroom(Ring::user, Mode::host).instructions, Headroom::unlimited);
}

TEST(Headroom, FollowsEveryChangeOfARegister) {
  HardwarePmu pmu{find_profile("intel-v2")->profile};
  const auto room = [&](Ring ring) { return pmu.headroom(ring, Mode::host).instructions; };
  write(pmu, 0x186, 0xC0 | evtsel::enable | evtsel::user);
  write(pmu, 0x4C1, top - 7);
  EXPECT_EQ(room(Ring::user), 7U);
  EXPECT_EQ(room(Ring::kernel), Headroom::unlimited);
  write(pmu, 0x4C1, top - 9);
  EXPECT_EQ(room(Ring::user), 9U);
  write(pmu, 0x186, 0xC0 | evtsel::enable | evtsel::kernel);
  EXPECT_EQ(room(Ring::user), Headroom::unlimited);
  EXPECT_EQ(room(Ring::kernel), 9U);
  ASSERT_TRUE(pmu.load_global_ctrl(0).ok());
  EXPECT_EQ(room(Ring::kernel), Headroom::unlimited);
}

TEST(Headroom, RandomStretchesWithinItNeverOverflow) {
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{std::random_device{}()}}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random{seed};
    constexpr std::uint64_t codes[] = {0x00C0, 0x003C, 0x013C, 0x00C4, 0x00C5, 0x4F2E, 0x412E, 0x0000};
    for (int round = 0; round < 2000; ++round) {
      HardwarePmu pmu{find_profile("intel-v4")->profile};
      for (std::uint32_t n = 0; n < 8; ++n) {
        const std::uint64_t flags =
            random() & (evtsel::edge | evtsel::invert | 3U << 24 | evtsel::user | evtsel::kernel);
        write(pmu, 0x186 + n, codes[random() % 8] | evtsel::enable | flags);
        write(pmu, 0x4C1 + n, top - random() % 5000);
      }
      write(pmu, 0x38D, random() & 0xBBB);
      for (std::uint32_t n = 0; n < 3; ++n) write(pmu, 0x309 + n, top - random() % 5000);
      ASSERT_TRUE(pmu.load_global_ctrl(random() & 0x7'0000'00FF).ok());
      for (int step = 0; step < 10; ++step) {
        const Ring ring = random() % 2 == 0 ? Ring::kernel : Ring::user;
        const Headroom room = pmu.headroom(ring, Mode::host);
        const auto up_to = [&](std::uint64_t bound) { return random() % (std::min<std::uint64_t>(bound, 6000) + 1); };
        Activity activity;
        activity[Event::instructions] = up_to(room.instructions);
        activity[Event::cycles] = up_to(room.cycles);
        activity[Event::ref_cycles] = up_to(room.ref_cycles);
        activity[Event::branches] = up_to(room.branches);
        for (auto event : {Event::branch_misses, Event::llc_references, Event::llc_misses}) {
          activity[event] = up_to(room.other);
        }
        for (std::size_t i = 0; i < event_count; ++i) {
          activity.edges[i] = up_to(std::min(activity.count[i], room.other));
        }
        ASSERT_EQ(pmu.advance(activity, ring, Mode::host), 0U) << "round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace vpmu::model
