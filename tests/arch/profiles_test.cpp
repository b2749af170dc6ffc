#include <gtest/gtest.h>

#include <set>
#include <string>

#include "vpmu/profile.hpp"

namespace vpmu {
namespace {

TEST(Profiles, EveryNamedProfileIsSoundAndFoundByItsName) {
  std::set<std::string> names;
  for (const auto& named : named_profiles()) {
    EXPECT_EQ(check(named.profile), nullptr) << named.name;
    EXPECT_EQ(find_profile(named.name), &named);
    EXPECT_TRUE(names.insert(named.name).second);
  }
  for (const char* name : {"intel-v1", "intel-v2", "intel-v3", "intel-v4", "intel-v5", "amd-k7", "amd-core", "amd-v2",
                           "intel-none", "amd-none"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  EXPECT_STREQ(find_profile("none")->name, "intel-none");
  EXPECT_EQ(find_profile("intel-v6"), nullptr);
  EXPECT_EQ(find_profile("intel-v"), nullptr);
  EXPECT_EQ(find_profile(""), nullptr);
}

TEST(Profiles, IntelV2HasEightAndThreeCountersOf48BitsAndFullWidthWrites) {
  const Profile& profile = find_profile("intel-v2")->profile;
  EXPECT_EQ(profile.gp_counters, 8);
  EXPECT_EQ(profile.fixed_mask, 0b111);
  EXPECT_EQ(profile.gp_width, 48);
  EXPECT_EQ(profile.fixed_width, 48);
  EXPECT_TRUE(profile.full_width_writes());
  EXPECT_EQ(profile.counters(), 0x7000000FFU);
}

/// A profile with one change must be refused with a reason.
template <class Change>
void expect_refused(const char* name, Change change) {
  Profile profile = find_profile(name)->profile;
  change(profile);
  EXPECT_NE(check(profile), nullptr) << name;
}

TEST(Profiles, ImpossibleProfilesAreRefusedWithAReason) {
  expect_refused("intel-v2", [](Profile& p) { p.gp_counters = 17; });
  expect_refused("intel-v2", [](Profile& p) { p.gp_width = 64; });
  expect_refused("intel-v2", [](Profile& p) { p.gp_width = 31; });
  expect_refused("intel-v2", [](Profile& p) { p.fixed_width = 0; });
  expect_refused("intel-v2", [](Profile& p) { p.version = 6; });
  expect_refused("intel-v1", [](Profile& p) { p.fixed_mask = 1; });
  expect_refused("intel-v4", [](Profile& p) { p.fixed_mask = 0b101; });
  expect_refused("amd-v2", [](Profile& p) { p.core_ext = false; });
  expect_refused("amd-v2", [](Profile& p) { p.version = 3; });
  expect_refused("amd-v2", [](Profile& p) { p.fixed_mask = 1; });
  expect_refused("amd-k7", [](Profile& p) { p.gp_counters = 6; });
  expect_refused("intel-none", [](Profile& p) { p.gp_counters = 1; });
}

TEST(Profiles, V5MayHaveFixedCountersWithGaps) {
  Profile profile = find_profile("intel-v5")->profile;
  profile.fixed_mask = 0b1011;
  EXPECT_EQ(check(profile), nullptr);
}

}  // namespace
}  // namespace vpmu
