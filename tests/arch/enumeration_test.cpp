// The one law: a register is accessible if and only if it is enumerated.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "arch/registers.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu {
namespace {

/// What the manuals enumerate for a profile, written without the table of src/arch: an index and whether it exists.
std::map<std::uint32_t, bool> expected_registers(const Profile& p) {
  std::map<std::uint32_t, bool> expected;
  const bool intel = p.vendor == Vendor::intel;
  for (std::uint32_t n = 0; n < 16; ++n) {
    const bool gp = intel && n < p.gp_counters;
    expected[0xC1 + n] = gp;
    expected[0x186 + n] = gp;
    expected[0x4C1 + n] = gp && p.pdcm && (p.perf_capabilities & 1 << 13) != 0;
    const bool core = !intel && p.core_ext && n < p.gp_counters;
    expected[0xC0010200 + 2 * n] = core;
    expected[0xC0010201 + 2 * n] = core;
  }
  for (std::uint32_t n = 0; n < 8; ++n) expected[0x309 + n] = intel && p.version >= 2 && (p.fixed_mask >> n & 1) != 0;
  for (const std::uint32_t msr : {0x38DU, 0x38EU, 0x38FU, 0x390U, 0x1D9U}) expected[msr] = intel && p.version >= 2;
  for (const std::uint32_t msr : {0x391U, 0x392U}) expected[msr] = intel && p.version >= 4;
  expected[0x345] = intel && p.pdcm;
  expected[0x3F1] = intel && p.pdcm && (p.perf_capabilities & 0xF00) != 0;
  expected[0x3F2] = intel && p.pdcm && (p.perf_capabilities & 0xF00) != 0 && (p.perf_capabilities & 1 << 14) != 0;
  expected[0x600] = intel && p.ds;
  expected[0x1A0] = intel;
  for (std::uint32_t n = 0; n < 4; ++n) {
    expected[0xC0000300 + n] = !intel && p.version == 2;
    expected[0xC0010000 + n] = !intel && n < p.gp_counters;
    expected[0xC0010004 + n] = !intel && n < p.gp_counters;
  }
  return expected;
}

void expect_law(const std::string& name, const Profile& profile) {
  SCOPED_TRACE(name);
  const auto expected = expected_registers(profile);
  const auto exists = [&](std::uint32_t index) {
    const auto found = expected.find(index);
    return found != expected.end() && found->second;
  };
  // Everything around each block of PMU registers, and the indices that RDPMC stands behind.
  constexpr std::array<std::pair<std::uint32_t, std::uint32_t>, 5> stretches{{{0, 0x700},
                                                                              {0x40000000, 0x40000010},
                                                                              {0xC00002F0, 0xC0000310},
                                                                              {0xC000FFF0, 0xC0010240},
                                                                              {0xFFFFFFF0, 0xFFFFFFFF}}};
  for (const auto& [first, last] : stretches) {
    for (std::uint64_t index = first; index <= last; ++index) {
      const auto msr = static_cast<Msr>(index);
      ASSERT_EQ(arch::enumerates(profile, arch::find_register(msr)), exists(static_cast<std::uint32_t>(index)))
          << std::hex << index;
    }
  }
}

TEST(Enumeration, ARegisterIsAccessibleIfAndOnlyIfItIsEnumeratedInEveryNamedProfile) {
  for (const auto& named : named_profiles()) expect_law(named.name, named.profile);
}

TEST(Enumeration, TheLawHoldsForEveryCountOfCountersAndEveryFeature) {
  for (const auto& named : named_profiles()) {
    if (!named.profile.present()) continue;
    for (std::uint8_t counters = 0; counters <= max_gp_counters; ++counters) {
      for (int features = 0; features < 32; ++features) {
        Profile profile = named.profile;
        profile.gp_counters = counters;
        profile.pdcm = (features & 1) != 0;
        profile.perf_capabilities = ((features & 2) != 0 ? 1U << 13 : 0) | ((features & 4) != 0 ? 4U << 8 : 0) |
                                    ((features & 8) != 0 ? 1U << 14 : 0);
        profile.ds = (features & 16) != 0;
        if (check(profile) != nullptr) continue;
        expect_law(std::string{named.name} + " with " + std::to_string(counters), profile);
      }
    }
  }
}

TEST(Enumeration, NoIndexOfAll32BitsBeyondTheTableIsARegister) {
#ifndef NDEBUG
  GTEST_SKIP() << "all 2^32 indices take minutes in a debug build; the release build looks at them";
#endif
  std::map<std::uint32_t, bool> table;
  for (const auto& row : arch::register_rows) {
    for (std::uint32_t n = 0; n < row.msrs.count; ++n) table[index_of(row.msrs[n])] = true;
  }
  std::uint64_t found = 0;
  for (std::uint64_t index = 0; index <= 0xFFFFFFFF; ++index) {
    if (arch::find_register(static_cast<Msr>(index))) ++found;
  }
  EXPECT_EQ(found, table.size());
  for (const auto& [index, _] : table) EXPECT_TRUE(arch::find_register(static_cast<Msr>(index))) << std::hex << index;
}

TEST(Enumeration, NoIndexStandsInTwoRows) {
  std::map<std::uint32_t, std::string> owner;
  for (const auto& row : arch::register_rows) {
    for (std::uint32_t n = 0; n < row.msrs.count; ++n) {
      EXPECT_TRUE(owner.emplace(index_of(row.msrs[n]), row.name).second) << row.name << " " << n;
    }
  }
}

TEST(Enumeration, K7RegistersReadZeroOnAnAmdVcpuWithoutAPmu) {
  for (const auto& named : named_profiles()) {
    for (std::uint32_t n = 0; n < 8; ++n) {
      const arch::Register reg = arch::find_register(static_cast<Msr>(0xC0010000 + n));
      EXPECT_EQ(arch::reads_zero(named.profile, reg), named.profile.vendor == Vendor::amd && !named.profile.present())
          << named.name;
    }
    EXPECT_FALSE(arch::reads_zero(named.profile, arch::find_register(amd_core_perf_ctl[0]))) << named.name;
  }
}

}  // namespace
}  // namespace vpmu
