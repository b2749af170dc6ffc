#include <gtest/gtest.h>

#include "vpmu/profile.hpp"

namespace vpmu {
namespace {

constexpr CpuidResult ones{~0U, ~0U, ~0U, ~0U};

TEST(Cpuid, LeafAStatesVersionCountersWidthsAndMissingEvents) {
  Profile profile = find_profile("intel-v2")->profile;
  profile.gp_counters = 4;
  profile.events_unavailable = 0x7A;
  const CpuidResult leaf = pmu_cpuid(profile, 0xA, 0, ones);
  EXPECT_EQ(leaf.eax, 0x07300402U);
  EXPECT_EQ(leaf.ebx, 0x7AU);
  EXPECT_EQ(leaf.ecx, 0U);
  EXPECT_EQ(leaf.edx, 0x8603U);  // 3 counters, 48 bits, AnyThread deprecated
}

TEST(Cpuid, FixedCountersOfV5StandInEcxAndTheContiguousOnesInEdx) {
  Profile profile = find_profile("intel-v5")->profile;
  profile.fixed_mask = 0b1011;
  const CpuidResult leaf = pmu_cpuid(profile, 0xA, 0, {});
  EXPECT_EQ(leaf.ecx, 0b1011U);
  EXPECT_EQ(leaf.edx & 0x1F, 2U);
}

TEST(Cpuid, LeafAIsZeroWithoutAnIntelPmu) {
  for (const char* name : {"intel-none", "amd-none", "amd-k7", "amd-core", "amd-v2"}) {
    const CpuidResult leaf = pmu_cpuid(find_profile(name)->profile, 0xA, 0, ones);
    EXPECT_EQ(leaf.eax | leaf.ebx | leaf.ecx | leaf.edx, 0U) << name;
  }
}

TEST(Cpuid, PerfMonV2StandsInLeaf80000022) {
  const CpuidResult leaf = pmu_cpuid(find_profile("amd-v2")->profile, 0x80000022, 0, ones);
  EXPECT_EQ(leaf.eax, 1U);
  EXPECT_EQ(leaf.ebx, 6U);
  const CpuidResult none = pmu_cpuid(find_profile("amd-core")->profile, 0x80000022, 0, ones);
  EXPECT_EQ(none.eax | none.ebx | none.ecx | none.edx, 0U);
}

TEST(Cpuid, FeatureBitsAreSetAndClearedAndAllOthersAreLeftAlone) {
  Profile profile = find_profile("intel-v2")->profile;
  EXPECT_EQ(pmu_cpuid(profile, 1, 0, {}).ecx, 1U << 15);
  EXPECT_EQ(pmu_cpuid(profile, 1, 0, ones).edx, ~(1U << 21));
  EXPECT_EQ(pmu_cpuid(profile, 7, 0, ones).ebx, ~(1U << 4 | 1U << 11));
  EXPECT_EQ(pmu_cpuid(profile, 7, 1, ones).ebx, ~0U);
  profile.pdcm = false;
  profile.ds = profile.tsx = true;
  EXPECT_EQ(pmu_cpuid(profile, 1, 0, ones).ecx, ~(1U << 15));
  EXPECT_EQ(pmu_cpuid(profile, 1, 0, {}).edx, 1U << 21);
  EXPECT_EQ(pmu_cpuid(profile, 7, 0, {}).ebx, 1U << 4 | 1U << 11);
  EXPECT_EQ(pmu_cpuid(find_profile("amd-core")->profile, 0x80000001, 0, {}).ecx, 1U << 23);
  EXPECT_EQ(pmu_cpuid(find_profile("amd-k7")->profile, 0x80000001, 0, ones).ecx, ~(1U << 23));
  EXPECT_EQ(pmu_cpuid(profile, 2, 0, ones).eax, ~0U);
}

}  // namespace
}  // namespace vpmu
