// Legal bits by the manuals' tables, bit by bit.
#include <gtest/gtest.h>

#include "arch/registers.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu {
namespace {

const Profile& profile_of(const char* name) { return find_profile(name)->profile; }

TEST(LegalBits, IntelSelectorsReserve21And63To32) {
  for (const char* name : {"intel-v1", "intel-v2", "intel-v3", "intel-v4", "intel-v5"}) {
    EXPECT_EQ(arch::legal_selector(profile_of(name), CounterId::gp(0)), 0xFFDFFFFFU) << name;
  }
}

TEST(LegalBits, TransactionBitsNeedTsxAndInTxCpIsCounter2s) {
  Profile profile = profile_of("intel-v4");
  profile.tsx = true;
  EXPECT_EQ(arch::legal_selector(profile, CounterId::gp(1)), 0x1FFDFFFFFU);
  EXPECT_EQ(arch::legal_selector(profile, CounterId::gp(2)), 0x3FFDFFFFFU);
}

TEST(LegalBits, AdaptiveRecordsNeedPebsBaseline) {
  Profile profile = profile_of("intel-v5");
  profile.perf_capabilities |= 4U << 8 | 1U << 14;
  EXPECT_EQ(arch::legal_selector(profile, CounterId::gp(0)), 0x4FFDFFFFFU);
  EXPECT_EQ(arch::legal_pebs_enable(profile), 0x7000000FFU);
  profile.perf_capabilities &= ~(1ULL << 14);
  EXPECT_EQ(arch::legal_pebs_enable(profile), 0xFFU);
}

TEST(LegalBits, AmdSelectorsKeepEventBits35To32AndDropTheRest) {
  Profile profile = profile_of("amd-v2");
  EXPECT_EQ(arch::legal_selector(profile, CounterId::gp(0)), 0xFFFD7FFFFU);
  profile.nested_virtualization = true;
  EXPECT_EQ(arch::legal_selector(profile, CounterId::gp(0)), 0x30FFFD7FFFFU);
}

TEST(LegalBits, FixedControlTakesBits0And1And3OfEachExistingField) {
  EXPECT_EQ(arch::legal_fixed_ctrl(profile_of("intel-v2")), 0xBBBU);
  Profile profile = profile_of("intel-v5");
  profile.fixed_mask = 0b1001;
  EXPECT_EQ(arch::legal_fixed_ctrl(profile), 0xB00BU);
}

TEST(LegalBits, GlobalControlTakesTheCountersThatExist) {
  EXPECT_EQ(arch::legal_global_ctrl(profile_of("intel-v2")), 0x7000000FFU);
  EXPECT_EQ(arch::legal_global_ctrl(profile_of("amd-v2")), 0x3FU);
  EXPECT_EQ(arch::reset_global_ctrl(profile_of("intel-v2")), 0xFFU);
  EXPECT_EQ(arch::reset_global_ctrl(profile_of("amd-v2")), 0x3FU);
}

TEST(LegalBits, StatusBitsGrowWithV4) {
  constexpr std::uint64_t counters = 0x7000000FF;
  constexpr std::uint64_t v2 = counters | 1ULL << 62 | 1ULL << 63;
  constexpr std::uint64_t v4 = v2 | 1ULL << 55 | 1ULL << 58 | 1ULL << 59 | 1ULL << 60;
  EXPECT_EQ(arch::legal_global_ovf_ctrl(profile_of("intel-v2")), v2);
  EXPECT_EQ(arch::legal_global_ovf_ctrl(profile_of("intel-v3")), v2);
  EXPECT_EQ(arch::legal_global_ovf_ctrl(profile_of("intel-v4")), v4);
  EXPECT_EQ(arch::legal_global_ovf_ctrl(profile_of("intel-v5")), v4);
  EXPECT_EQ(arch::legal_global_status_set(profile_of("intel-v4")), v4 & ~(1ULL << 63));
  EXPECT_EQ(arch::legal_global_status(profile_of("amd-v2")), 0x3FU);
}

TEST(LegalBits, DebugctlTakesBranchTrapAndTheFreezeBits) {
  Profile profile = profile_of("intel-v2");
  EXPECT_EQ(arch::legal_debugctl(profile), 1U << 1 | 1U << 11 | 1U << 12);
  profile.perf_capabilities |= 1U << 12;
  EXPECT_EQ(arch::legal_debugctl(profile), 1U << 1 | 1U << 11 | 1U << 12 | 1U << 14);
}

TEST(LegalBits, MiscEnableSaysWhatCpuidSays) {
  EXPECT_EQ(arch::misc_enable_bits(profile_of("intel-none")), 0x1800U);
  EXPECT_EQ(arch::misc_enable_bits(profile_of("intel-v2")), 0x1880U);
  Profile profile = profile_of("intel-v2");
  profile.perf_capabilities |= 4U << 8;
  EXPECT_EQ(arch::misc_enable_bits(profile), 0x0880U);
}

TEST(Rdpmc, IntelTakesTypeAndNumberAndAmdAPlainIndex) {
  const Profile& intel = profile_of("intel-v2");
  EXPECT_EQ(arch::find_pmc(intel, 7), CounterId::gp(7).bit());
  EXPECT_EQ(arch::find_pmc(intel, 0x40000002), CounterId::fixed(2).bit());
  for (const std::uint32_t ecx : {8U, 0x40000003U, 0x40000010U, 0x10000U, 0x20000000U, 0x80000000U, 0xC0000000U, ~0U}) {
    EXPECT_EQ(arch::find_pmc(intel, ecx), arch::no_counter) << std::hex << ecx;
  }
  const Profile& amd = profile_of("amd-v2");
  EXPECT_EQ(arch::find_pmc(amd, 5), CounterId::gp(5).bit());
  for (const std::uint32_t ecx : {6U, 0x40000000U, ~0U}) EXPECT_EQ(arch::find_pmc(amd, ecx), arch::no_counter);
  EXPECT_EQ(arch::find_pmc(profile_of("intel-v1"), 0x40000000), arch::no_counter);
  EXPECT_EQ(arch::find_pmc(profile_of("none"), 0), arch::no_counter);
}

}  // namespace
}  // namespace vpmu
