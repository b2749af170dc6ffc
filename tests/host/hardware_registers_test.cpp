// Which accesses to a physical PMU end in #GP, and what the others leave in the registers. The bit tables are written
// out here from the manuals, not taken from src/arch.
#include <gtest/gtest.h>

#include <string>

#include "host/model/hardware.hpp"

namespace vpmu::model {
namespace {

HardwarePmu hardware(const char* name) { return HardwarePmu{svm_host(find_profile(name)->profile)}; }

constexpr auto msr(std::uint32_t index) { return static_cast<Msr>(index); }

bool writes(HardwarePmu& pmu, std::uint32_t index, std::uint64_t value) {
  return pmu.write_msr(msr(index), value).ok();
}
bool reads(HardwarePmu& pmu, std::uint32_t index) { return pmu.read_msr(msr(index)).ok(); }
std::uint64_t value(HardwarePmu& pmu, std::uint32_t index) { return pmu.read_msr(msr(index)).value(); }

/// The bits that can be written to a register one at a time without #GP.
std::uint64_t writable_bits(HardwarePmu& pmu, std::uint32_t index) {
  std::uint64_t bits = 0;
  for (std::uint32_t bit = 0; bit < 64; ++bit) {
    if (writes(pmu, index, std::uint64_t{1} << bit)) bits |= std::uint64_t{1} << bit;
  }
  return bits;
}

TEST(HardwareRegisters, IntelSelectorsFaultOnReservedBits) {
  for (const char* name : {"intel-v1", "intel-v2", "intel-v3", "intel-v4", "intel-v5"}) {
    auto pmu = hardware(name);
    EXPECT_EQ(writable_bits(pmu, 0x186), 0xFFDFFFFFU) << name;
    EXPECT_EQ(writable_bits(pmu, 0x18D), 0xFFDFFFFFU) << name;
    EXPECT_FALSE(writes(pmu, 0x18E, 0)) << name;
  }
}

TEST(HardwareRegisters, TransactionBitsNeedTsxAndInTxCpIsForCounter2) {
  auto profile = find_profile("intel-v3")->profile;
  profile.tsx = true;
  HardwarePmu pmu{profile};
  EXPECT_EQ(writable_bits(pmu, 0x187), 0x1FFDFFFFFU);
  EXPECT_EQ(writable_bits(pmu, 0x188), 0x3FFDFFFFFU);
}

TEST(HardwareRegisters, IntelGlobalRegistersAreThoseOfTheVersion) {
  constexpr std::uint64_t counters = 0x7000000FF;
  constexpr std::uint64_t top = 3ULL << 62;
  constexpr std::uint64_t v4 = 7ULL << 58 | 1ULL << 55;
  struct Row {
    const char* name;
    std::uint64_t fixed_ctrl, global_ctrl, ovf_ctrl, status_set;
  };
  for (const auto& row : {Row{"intel-v1", 0, 0, 0, 0}, Row{"intel-v2", 0xBBB, counters, counters | top, 0},
                          Row{"intel-v3", 0xBBB, counters, counters | top, 0},
                          Row{"intel-v4", 0xBBB, counters, counters | top | v4, counters | 1ULL << 62 | v4},
                          Row{"intel-v5", 0xBBB, counters, counters | top | v4, counters | 1ULL << 62 | v4}}) {
    SCOPED_TRACE(row.name);
    auto pmu = hardware(row.name);
    EXPECT_EQ(writable_bits(pmu, 0x38D), row.fixed_ctrl);
    EXPECT_EQ(writable_bits(pmu, 0x38F), row.global_ctrl);
    EXPECT_EQ(writable_bits(pmu, 0x390), row.ovf_ctrl);
    EXPECT_EQ(writable_bits(pmu, 0x391), row.status_set);
    EXPECT_EQ(reads(pmu, 0x38E), row.global_ctrl != 0);
    EXPECT_EQ(reads(pmu, 0x392), row.status_set != 0);
    for (std::uint32_t read_only : {0x38EU, 0x392U, 0x345U}) EXPECT_FALSE(writes(pmu, read_only, 0)) << read_only;
  }
}

TEST(HardwareRegisters, ResetLeavesOnlyGeneralPurposeCountersGloballyEnabled) {
  for (const char* name : {"intel-v2", "intel-v5"}) {
    auto pmu = hardware(name);
    EXPECT_EQ(value(pmu, 0x38F), 0xFFU);
    for (std::uint32_t zero : {0x186U, 0xC1U, 0x309U, 0x38DU, 0x38EU}) EXPECT_EQ(value(pmu, zero), 0U);
  }
  auto amd = hardware("amd-v2");
  EXPECT_EQ(value(amd, 0xC0000301), 0x3FU);
}

TEST(HardwareRegisters, ALegacyCounterWriteTakesTheLow32BitsSignExtended) {
  auto pmu = hardware("intel-v2");
  ASSERT_TRUE(writes(pmu, 0xC1, 0x1'7FFF'FFFF));
  EXPECT_EQ(value(pmu, 0xC1), 0x7FFF'FFFFU);
  ASSERT_TRUE(writes(pmu, 0xC1, 0xFFFF'FFEA));
  EXPECT_EQ(value(pmu, 0xC1), 0xFFFF'FFFF'FFEAU);
  EXPECT_EQ(value(pmu, 0x4C1), 0xFFFF'FFFF'FFEAU);
}

TEST(HardwareRegisters, AFullWidthCounterWriteFaultsAboveTheWidth) {
  auto pmu = hardware("intel-v2");
  ASSERT_TRUE(writes(pmu, 0x4C1, 0xFFFF'FFFF'FFFF));
  EXPECT_FALSE(writes(pmu, 0x4C1, 0x1'0000'0000'0000));
  EXPECT_EQ(value(pmu, 0xC1), 0xFFFF'FFFF'FFFFU);

  auto profile = find_profile("intel-v2")->profile;
  profile.perf_capabilities = 0;
  HardwarePmu without{profile};
  EXPECT_FALSE(writes(without, 0x4C1, 0));
}

TEST(HardwareRegisters, FixedCountersAndAmdCountersDropBitsAboveTheWidth) {
  auto intel = hardware("intel-v4");
  ASSERT_TRUE(writes(intel, 0x30B, ~0ULL));
  EXPECT_EQ(value(intel, 0x30B), 0xFFFF'FFFF'FFFFU);
  EXPECT_FALSE(writes(intel, 0x30C, 0));
  auto amd = hardware("amd-core");
  ASSERT_TRUE(writes(amd, 0xC0010201, 0xFFFF'0000'8000'0000));
  EXPECT_EQ(value(amd, 0xC0010201), 0x8000'0000U);
}

TEST(HardwareRegisters, StatusIsSetAndClearedOnlyThroughItsOwnRegisters) {
  auto pmu = hardware("intel-v4");
  ASSERT_TRUE(writes(pmu, 0x391, 0x3'0000'000F));
  EXPECT_EQ(value(pmu, 0x38E), 0x3'0000'000FU);
  EXPECT_EQ(value(pmu, 0x391), 0U);
  ASSERT_TRUE(writes(pmu, 0x390, 0x1'0000'0003));
  EXPECT_EQ(value(pmu, 0x390), 0U);
  EXPECT_EQ(value(pmu, 0x38E), 0x2'0000'000CU);
  EXPECT_FALSE(pmu.pmi_raised()) << "a status bit set by software raises no PMI";
}

TEST(HardwareRegisters, InUseFollowsSelectorsFixedControlAndInterruptBits) {
  auto pmu = hardware("intel-v4");
  EXPECT_EQ(value(pmu, 0x392), 0U);
  ASSERT_TRUE(writes(pmu, 0x187, 0xC0));
  ASSERT_TRUE(writes(pmu, 0x38D, 0x20));
  EXPECT_EQ(value(pmu, 0x392), 0x2'0000'0002U);
  ASSERT_TRUE(writes(pmu, 0x187, 0x1000C0));
  EXPECT_EQ(value(pmu, 0x392), 0x8000'0002'0000'0002U);
}

TEST(HardwareRegisters, AmdSelectorsDropReservedBitsAndNeverFault) {
  auto pmu = hardware("amd-v2");
  ASSERT_TRUE(writes(pmu, 0xC0010200, ~0ULL));
  EXPECT_EQ(value(pmu, 0xC0010200), 0x30F'FFD7'FFFFU);
  HardwarePmu without_svm{find_profile("amd-v2")->profile};
  ASSERT_TRUE(writes(without_svm, 0xC0010200, ~0ULL));
  EXPECT_EQ(value(without_svm, 0xC0010200), 0xF'FFD7'FFFFU);
}

TEST(HardwareRegisters, AmdK7RegistersAliasTheFirstFourCoreCounters) {
  auto pmu = hardware("amd-v2");
  for (std::uint32_t n = 0; n < 4; ++n) {
    ASSERT_TRUE(writes(pmu, 0xC0010000 + n, 0x76 + n));
    ASSERT_TRUE(writes(pmu, 0xC0010004 + n, 1000 + n));
    EXPECT_EQ(value(pmu, 0xC0010200 + 2 * n), 0x76 + n);
    EXPECT_EQ(value(pmu, 0xC0010201 + 2 * n), 1000 + n);
  }
  auto k7 = hardware("amd-k7");
  EXPECT_TRUE(reads(k7, 0xC0010007));
  EXPECT_FALSE(reads(k7, 0xC0010200));
  EXPECT_FALSE(reads(k7, 0xC0000301));
}

TEST(HardwareRegisters, AmdGlobalRegistersNeverFault) {
  auto pmu = hardware("amd-v2");
  ASSERT_TRUE(writes(pmu, 0xC0000301, ~0ULL));
  EXPECT_EQ(value(pmu, 0xC0000301), 0x3FU);
  ASSERT_TRUE(writes(pmu, 0xC0000303, ~0ULL));
  EXPECT_EQ(value(pmu, 0xC0000300), 0x3FU);
  EXPECT_FALSE(pmu.pmi_raised());
  ASSERT_TRUE(writes(pmu, 0xC0000300, 0));
  EXPECT_EQ(value(pmu, 0xC0000300), 0x3FU) << "the status itself ignores writes";
  ASSERT_TRUE(writes(pmu, 0xC0000302, 0x15));
  EXPECT_EQ(value(pmu, 0xC0000300), 0x2AU);
  EXPECT_EQ(value(pmu, 0xC0000302), 0U);
  EXPECT_EQ(value(pmu, 0xC0000303), 0U);
}

TEST(HardwareRegisters, RdpmcTakesATypeAndAnIndexOnIntelAndAPlainIndexOnAmd) {
  auto intel = hardware("intel-v2");
  ASSERT_TRUE(writes(intel, 0x4C8, 77));
  ASSERT_TRUE(writes(intel, 0x30B, 88));
  EXPECT_EQ(intel.read_pmc(7).value(), 77U);
  EXPECT_EQ(intel.read_pmc(0x40000002).value(), 88U);
  for (std::uint32_t bad : {8U, 0x40000003U, 0x20000000U, 0x80000000U, 0x10000U}) {
    EXPECT_FALSE(intel.read_pmc(bad).ok()) << bad;
  }
  auto v1 = hardware("intel-v1");
  EXPECT_FALSE(v1.read_pmc(0x40000000).ok());
  auto amd = hardware("amd-core");
  EXPECT_TRUE(amd.read_pmc(5).ok());
  EXPECT_FALSE(amd.read_pmc(6).ok());
  EXPECT_FALSE(amd.read_pmc(0x40000000).ok());
}

TEST(HardwareRegisters, DebugctlHasTheFreezeBitsAndTheDsAreaTakesCanonicalAddresses) {
  auto pmu = hardware("intel-v2");
  EXPECT_TRUE(writes(pmu, 0x1D9, 0x1800));
  EXPECT_FALSE(writes(pmu, 0x1D9, 1ULL << 63));
  auto profile = find_profile("intel-v2")->profile;
  profile.ds = true;
  HardwarePmu with_ds{profile};
  EXPECT_TRUE(writes(with_ds, 0x600, 0xFFFF'8000'0000'0000));
  EXPECT_FALSE(writes(with_ds, 0x600, 0x8000'0000'0000));
}

TEST(HardwareRegisters, MiscEnableSaysThatThePmuIsThereAndKeepsItsOwnBits) {
  auto pmu = hardware("intel-v2");
  EXPECT_EQ(value(pmu, 0x1A0), 1U << 7 | 1U << 11 | 1U << 12);
  ASSERT_TRUE(writes(pmu, 0x1A0, 1));
  EXPECT_EQ(value(pmu, 0x1A0), 1U | 1U << 7 | 1U << 11 | 1U << 12);
}

TEST(HardwareRegisters, TheOtherVendorsRegistersFault) {
  auto intel = hardware("intel-v2");
  auto amd = hardware("amd-v2");
  EXPECT_FALSE(reads(intel, 0xC0010200));
  EXPECT_FALSE(reads(intel, 0xC0010000));
  EXPECT_FALSE(reads(amd, 0x38F));
  EXPECT_FALSE(reads(amd, 0xC1));
}

TEST(HardwareRegisters, AFaultingWriteChangesNothing) {
  auto pmu = hardware("intel-v2");
  ASSERT_TRUE(writes(pmu, 0x186, 0x5300C0));
  EXPECT_FALSE(writes(pmu, 0x186, 1ULL << 21 | 0x3C));
  EXPECT_EQ(value(pmu, 0x186), 0x5300C0U);
}

TEST(HardwareRegisters, EveryAccessIsCountedByKindAlsoIfItFaults) {
  auto pmu = hardware("intel-v2");
  (void)pmu.read_msr(msr(0x38F));
  (void)pmu.read_msr(msr(0xC0010200));
  (void)pmu.write_msr(msr(0x38F), 1);
  (void)pmu.read_pmc(99);
  (void)pmu.inspect(msr(0x38F));
  pmu.preset(msr(0x38E), 1);
  (void)pmu.load_global_ctrl(0);
  EXPECT_EQ(pmu.accesses(), (AccessCounts{.rdmsr = 2, .wrmsr = 1, .rdpmc = 1}));
}

TEST(HardwareRegisters, ResidueCanBeLeftInAnyRegisterAndStays) {
  auto pmu = hardware("intel-v4");
  pmu.preset(msr(0x38E), 0x2'0000'0001);
  pmu.preset(msr(0xC3), 0xABCD'1234'5678);
  EXPECT_EQ(value(pmu, 0x38E), 0x2'0000'0001U);
  EXPECT_EQ(pmu.read_pmc(2).value(), 0xABCD'1234'5678U);
  EXPECT_EQ(pmu.inspect(msr(0x4C3)), 0xABCD'1234'5678U);
}

TEST(HardwareRegisters, AVmEntryLoadsGlobalCtrlUnlessItHasReservedBits) {
  auto pmu = hardware("intel-v2");
  EXPECT_TRUE(pmu.load_global_ctrl(0x7'0000'0003).ok());
  EXPECT_EQ(pmu.global_ctrl(), 0x7'0000'0003U);
  EXPECT_FALSE(pmu.load_global_ctrl(0x8'0000'0000).ok());
  EXPECT_EQ(pmu.global_ctrl(), 0x7'0000'0003U);
  auto v1 = hardware("intel-v1");
  EXPECT_FALSE(v1.load_global_ctrl(0).ok());
}

}  // namespace
}  // namespace vpmu::model
