#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <random>
#include <vector>

#include "seeds.hpp"
#include "vpmu/kvm.hpp"

namespace vpmu::kvm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint64_t rip = 0x400000;
constexpr std::uint64_t physical = 0x1000;

std::vector<std::uint64_t> sites_in(std::vector<std::uint8_t> code, CodeSize size = CodeSize::bits64) {
  std::vector<RdpmcSite> sites;
  find_rdpmc(code, size, rip, physical, sites);
  std::vector<std::uint64_t> offsets;
  for (const RdpmcSite& site : sites) offsets.push_back(site.rip - rip);
  return offsets;
}

TEST(FindRdpmc, FindsTheInstructionAmongOthers) {
  EXPECT_THAT(sites_in({0x90, 0x0F, 0x33, 0xC3, 0x0F, 0x33}), ElementsAre(1, 4));
}

TEST(FindRdpmc, TakesNoBytesInsideOfOtherInstructions) {
  EXPECT_THAT(sites_in({0xB8, 0x0F, 0x33, 0x0F, 0x33, 0xC3}), IsEmpty()) << "mov $0x330F330F, %eax";
  EXPECT_THAT(sites_in({0x48, 0x8B, 0x05, 0x0F, 0x33, 0x00, 0x00}), IsEmpty()) << "mov 0x330F(%rip), %rax";
  EXPECT_THAT(sites_in({0xE9, 0x00, 0x00, 0x0F, 0x33}), IsEmpty()) << "jmp";
  EXPECT_THAT(sites_in({0x66, 0x0F, 0x3A, 0x0F, 0xC1, 0x33}), IsEmpty()) << "palignr $0x33";
  EXPECT_THAT(sites_in({0x0F, 0x1F, 0x84, 0x00, 0x00, 0x0F, 0x33, 0x00}), IsEmpty()) << "nop 0x330F00(...)";
}

TEST(FindRdpmc, FindsItBehindPrefixesAndPointsAtTheOpcode) {
  const std::vector<std::uint8_t> code{0x90, 0x48, 0x0F, 0x33};
  std::vector<RdpmcSite> sites;
  find_rdpmc(code, CodeSize::bits64, rip, physical, sites);
  EXPECT_THAT(sites, ElementsAre(RdpmcSite{.rip = rip + 1, .physical = physical + 2}));
}

TEST(FindRdpmc, GoesOnBehindBytesThatAreNoInstruction) {
  EXPECT_THAT(sites_in({0x06, 0x0F, 0x33}), ElementsAre(1)) << "PUSH ES does not exist in 64-bit mode";
  EXPECT_THAT(sites_in({0x0F, 0x33, 0x0F}), ElementsAre(0)) << "the last is cut off";
  EXPECT_THAT(sites_in({0x0F}), IsEmpty());
  EXPECT_THAT(sites_in({}), IsEmpty());
}

TEST(FindRdpmc, DecodesAsTheModeSays) {
  // 48 is a prefix in 64-bit mode, and DEC EAX in 32-bit mode.
  EXPECT_THAT(sites_in({0x48, 0x0F, 0x33}, CodeSize::bits64), ElementsAre(0));
  EXPECT_THAT(sites_in({0x48, 0x0F, 0x33}, CodeSize::bits32), ElementsAre(1));
}

TEST(FindRdpmc, FindsInAnyBytesOnlyWhatIsOneAndChangesOnlyThat) {
  for (const std::uint64_t seed : test::seeds()) {
    std::mt19937_64 random{seed};
    std::vector<std::uint8_t> code(4096);
    for (auto& byte : code)
      byte = static_cast<std::uint8_t>(random() % 8 == 0 ? 0x0F : random() % 8 == 0 ? 0x33 : random());
    std::vector<RdpmcSite> sites;
    find_rdpmc(code, CodeSize::bits64, rip, 0, sites);
    const std::vector<std::uint8_t> before = code;
    EXPECT_EQ(patch_rdpmc(sites, code), sites) << seed;
    std::size_t changed = 0;
    for (std::size_t n = 0; n < code.size(); ++n) {
      if (code[n] == before[n]) continue;
      ++changed;
      EXPECT_EQ(before[n], 0x33);
      EXPECT_EQ(before[n - 1], 0x0F);
      EXPECT_EQ(code[n], 0x32);
    }
    EXPECT_EQ(changed, sites.size()) << seed;
  }
}

TEST(PatchRdpmc, LeavesAloneWhereMemoryHoldsSomethingElse) {
  std::vector<std::uint8_t> memory{0x0F, 0x34, 0x0F, 0x33};
  const std::vector<RdpmcSite> sites{{1, 0}, {2, 2}, {3, 3}, {4, 4}, {5, ~std::uint64_t{0}}};
  EXPECT_THAT(patch_rdpmc(sites, memory), ElementsAre(RdpmcSite{2, 2}));
  EXPECT_THAT(memory, ElementsAre(0x0F, 0x34, 0x0F, 0x32));
  EXPECT_THAT(patch_rdpmc(sites, std::span<std::uint8_t>{}), IsEmpty());
}

std::vector<std::uint8_t> guest() {
  std::ifstream file{VPMU_GUESTS "/counting.elf", std::ios::binary};
  return {std::istreambuf_iterator<char>{file}, {}};
}

TEST(FindRdpmcInElf, FindsThoseOfARealImage) {
  const auto sites = find_rdpmc(guest());
  // read_pmc() and try_read_pmc(), inlined some times, and the one that runs in ring 3.
  EXPECT_GE(sites.size(), 3U);
  EXPECT_LE(sites.size(), 20U);
  for (const RdpmcSite& site : sites) EXPECT_EQ(site.rip, site.physical) << "linear addresses are physical there";
}

TEST(FindRdpmcInElf, RefusesNoImageButFindsNothingInABrokenOne) {
  const auto whole = guest();
  ASSERT_FALSE(whole.empty());
  for (const std::uint64_t seed : test::seeds()) {
    std::mt19937_64 random{seed};
    auto broken = whole;
    broken.resize(random() % whole.size());
    for (int n = 0; n < 20 && !broken.empty(); ++n)
      broken[random() % std::min<std::size_t>(broken.size(), 4096)] = static_cast<std::uint8_t>(random());
    std::vector<std::uint8_t> memory(8U << 20);
    static_cast<void>(patch_rdpmc(find_rdpmc(broken), memory));
  }
  EXPECT_THAT(find_rdpmc(std::vector<std::uint8_t>(1000)), IsEmpty());
}

}  // namespace
}  // namespace vpmu::kvm
