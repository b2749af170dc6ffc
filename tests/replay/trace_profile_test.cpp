#include "lab/trace_profile.hpp"

#include <gtest/gtest.h>

namespace vpmu::lab {
namespace {

KvmCpuid leaf(std::uint32_t number, std::uint32_t eax, std::uint32_t ebx, std::uint32_t ecx, std::uint32_t edx) {
  return {.leaf = number, .subleaf = 0, .other_leaf = false, .eax = eax, .ebx = ebx, .ecx = ecx, .edx = edx};
}

const KvmCpuid genuine_intel = leaf(0, 0xD, 0x756E6547, 0x6C65746E, 0x49656E69);
const KvmCpuid authentic_amd = leaf(0, 0x10, 0x68747541, 0x444D4163, 0x69746E65);

TEST(TraceProfile, says_nothing_before_the_perfmon_leaf) {
  TraceProfile seen;
  EXPECT_FALSE(seen.profile());
  seen.see(genuine_intel);
  EXPECT_FALSE(seen.profile());
  seen.see(leaf(1, 0xF06F1, 0x800, 0xF6F83203, 0xF8BFBFD));
  EXPECT_FALSE(seen.profile());
}

TEST(TraceProfile, finds_the_recorded_guests_pmu) {
  TraceProfile seen;
  seen.see(genuine_intel);
  seen.see(leaf(1, 0xF06F1, 0x800, 0xF6F83203, 0xF8BFBFD));
  seen.see(leaf(0xA, 0x7300402, 0x7A, 0, 0x603));
  const auto profile = seen.profile();
  ASSERT_TRUE(profile);
  EXPECT_EQ(profile->version, 2);
  EXPECT_EQ(profile->counters(), 0x70000000FU);
  EXPECT_EQ(profile->gp_width, 48);
  EXPECT_EQ(profile->fixed_width, 48);
  EXPECT_EQ(profile->events_unavailable, 0x7AU);
  EXPECT_FALSE(profile->pdcm);
}

TEST(TraceProfile, every_named_profile_comes_back_from_its_own_cpuid) {
  for (const NamedProfile& named : named_profiles()) {
    if (!named.profile.present()) continue;
    TraceProfile seen;
    seen.see(named.profile.is_intel() ? genuine_intel : authentic_amd);
    for (const std::uint32_t number : {0x1U, 0x7U, 0xAU, 0x80000001U, 0x80000022U}) {
      const CpuidResult cpuid = pmu_cpuid(named.profile, number, 0, {});
      seen.see(leaf(number, cpuid.eax, cpuid.ebx, cpuid.ecx, cpuid.edx));
    }
    if (named.profile.pdcm) seen.see_capabilities(named.profile.perf_capabilities);
    const auto profile = seen.profile();
    ASSERT_TRUE(profile) << named.name;
    EXPECT_EQ(*profile, named.profile) << named.name;
  }
}

TEST(TraceProfile, an_answer_of_another_leaf_does_not_count) {
  TraceProfile seen;
  KvmCpuid answer = leaf(0xA, 0x7300402, 0, 0, 0x603);
  answer.other_leaf = true;
  EXPECT_FALSE(seen.see(answer));
  EXPECT_FALSE(seen.profile());
}

TEST(TraceProfile, an_impossible_pmu_is_none) {
  TraceProfile seen;
  seen.see(leaf(0xA, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF));
  EXPECT_FALSE(seen.profile());
}

TEST(TraceProfile, a_guest_without_a_pmu_has_none) {
  TraceProfile seen;
  seen.see(leaf(0xA, 0, 0, 0, 0));
  ASSERT_TRUE(seen.profile());
  EXPECT_FALSE(seen.profile()->present());
}

}  // namespace
}  // namespace vpmu::lab
