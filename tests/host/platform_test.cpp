// The table of platforms, and the prices made of it.
#include <gtest/gtest.h>

#include <limits>
#include <set>

#include "host/model/cost.hpp"
#include "host/model/platform.hpp"

namespace vpmu::model {
namespace {

TEST(Platforms, EveryNumberStandsWithinItsRangeAndHasASource) {
  for (const auto& platform : platforms()) {
    EXPECT_EQ(check(platform), "") << platform.name;
    for (const auto& [key, unit, member] : platform_figures()) {
      const Figure& figure = platform.*member;
      EXPECT_LE(figure.lo, figure.value) << platform.name << ' ' << key;
      EXPECT_LE(figure.value, figure.hi) << platform.name << ' ' << key;
      EXPECT_FALSE(figure.source.empty()) << platform.name << ' ' << key;
    }
  }
}

TEST(Platforms, AnAssumedNumberHasARange) {
  for (const auto& platform : platforms()) {
    for (const auto& [key, unit, member] : platform_figures()) {
      const Figure& figure = platform.*member;
      if (figure.basis != Basis::assumed || unit == Unit::factor) continue;
      EXPECT_LT(figure.lo, figure.hi) << platform.name << ' ' << key;
      EXPECT_TRUE(figure.source.starts_with("assumed: ")) << platform.name << ' ' << key;
    }
  }
}

TEST(Platforms, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const auto& platform : platforms()) {
    EXPECT_TRUE(names.insert(platform.name).second) << platform.name;
    EXPECT_EQ(find_platform(platform.name), &platform);
  }
  for (const char* name :
       {"generic", "e5-2699v4", "ice-lake", "e-2136", "epyc-7443p", "epyc-milan", "emerald-rapids", "turin"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_EQ(platforms().front().name, "generic");
  EXPECT_EQ(find_platform("pdp-11"), nullptr);
}

TEST(Platforms, EveryFigureOfTheStructIsInTheListOnce) {
  std::set<std::string_view> keys;
  for (const auto& [key, unit, member] : platform_figures()) EXPECT_TRUE(keys.insert(key).second) << key;
  EXPECT_EQ(sizeof(Platform), 2 * sizeof(std::string) + sizeof(std::uint64_t) + keys.size() * sizeof(Figure));
}

TEST(Platforms, NothingIsCalibratedYet) {
  for (const auto& platform : platforms()) EXPECT_EQ(platform.recreate_scale.value, 1) << platform.name;
}

TEST(Platforms, BadOnesAreNamedByTheirFigure) {
  Platform platform = *find_platform("generic");
  platform.wrmsr_cycles.value = platform.wrmsr_cycles.hi + 1;
  EXPECT_EQ(check(platform), "wrmsr_cycles is outside of its range");
  platform = *find_platform("generic");
  platform.open_ns.source.clear();
  EXPECT_EQ(check(platform), "open_ns has no source");
  platform = *find_platform("generic");
  platform.core_mhz.lo = 0;
  EXPECT_EQ(check(platform), "core_mhz must be from 100 to 10,000");
  platform = *find_platform("generic");
  platform.tick_ns.hi = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(check(platform), "tick_ns is not a number");
  platform = *find_platform("generic");
  platform.read_ns.lo = -1;
  EXPECT_EQ(check(platform), "read_ns is negative");
}

TEST(Prices, CostIsCountsTimesThePlatformsFigures) {
  Platform platform = *find_platform("generic");
  platform.core_mhz.value = 2000;
  platform.rdmsr_cycles.value = 60;
  platform.wrmsr_cycles.value = 100;
  platform.rdpmc_cycles.value = 30;
  platform.enable_ns.value = 1650;
  const Prices prices{platform};
  EXPECT_EQ(prices.picoseconds(AccessCounts{.rdmsr = 1, .wrmsr = 2, .rdpmc = 3}), (60U + 200U + 90U) * 500U);
  HostCallCounts calls;
  calls.enable = 2;
  EXPECT_EQ(prices.picoseconds(calls), 3'300'000U);
  EXPECT_EQ(prices.core_cycles(prices.exits(3)), 3U * 1400U);
}

TEST(Prices, LiveAndIdleCallsHaveTheirOwnPrice) {
  const Platform& platform = *find_platform("generic");
  const Prices prices{platform};
  HostCallCounts calls;
  calls.read = 5;
  calls.live_read = 2;
  const double ns = 3 * platform.read_ns.value + 2 * platform.live_read_ns.value;
  EXPECT_EQ(prices.picoseconds(calls), static_cast<std::uint64_t>(ns * 1000));
}

TEST(Prices, TheScaleFactorIsOnOpeningAndClosingAlone) {
  Platform platform = *find_platform("e5-2699v4");
  HostCallCounts recreate;
  recreate.open = recreate.close = 1;
  HostCallCounts other;
  other.set_period = other.enable = other.disable = other.read = other.peek = other.signals = 1;
  const Prices before{platform};
  platform.recreate_scale.value = platform.recreate_scale.hi = 10;
  const Prices after{platform};
  EXPECT_EQ(after.picoseconds(recreate), 10 * before.picoseconds(recreate));
  EXPECT_EQ(after.picoseconds(other), before.picoseconds(other));
}

TEST(Prices, ClockConversionsHoldForAHundredDays) {
  const Prices prices{*find_platform("generic")};
  constexpr std::uint64_t day_ps = 86'400ULL * 1'000'000'000'000;
  EXPECT_EQ(prices.tsc_ticks(100 * day_ps), 100 * 86'400ULL * 3'000'000'000);
}

}  // namespace
}  // namespace vpmu::model
