// What a physical PMU counts, and what an overflow does.
#include <gtest/gtest.h>

#include "host/model/hardware.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

HardwarePmu hardware(const char* name) { return HardwarePmu{svm_host(find_profile(name)->profile)}; }

constexpr auto msr(std::uint32_t index) { return static_cast<Msr>(index); }

void write(HardwarePmu& pmu, std::uint32_t index, std::uint64_t value) {
  ASSERT_TRUE(pmu.write_msr(msr(index), value).ok()) << std::hex << index << " := " << value;
}
std::uint64_t read(HardwarePmu& pmu, std::uint32_t index) { return pmu.read_msr(msr(index)).value(); }

constexpr std::uint64_t both_rings = evtsel::user | evtsel::kernel;
constexpr std::uint64_t on = evtsel::enable | both_rings;

/// Every event another number of times.
Activity sample() {
  Activity a;
  a[Event::instructions] = 1000;
  a[Event::cycles] = 3000;
  a[Event::ref_cycles] = 2500;
  a[Event::branches] = 200;
  a[Event::branch_misses] = 30;
  a[Event::llc_references] = 50;
  a[Event::llc_misses] = 7;
  for (std::size_t i = 0; i < event_count; ++i) a.edges[i] = a.count[i] / 4 + 1;
  return a;
}

/// What one general-purpose counter counts of sample() with this selector.
std::uint64_t counted(const char* profile, std::uint64_t selector) {
  auto pmu = hardware(profile);
  const bool intel = pmu.profile().is_intel();
  write(pmu, intel ? 0x186 : pmu.profile().core_ext ? 0xC0010200 : 0xC0010000, selector | on);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  return pmu.read_pmc(0).value();
}

TEST(HardwareCounting, IntelCountsTheSevenArchitecturalEvents) {
  for (const char* name : {"intel-v1", "intel-v2", "intel-v5"}) {
    EXPECT_EQ(counted(name, 0x00C0), 1000U);
    EXPECT_EQ(counted(name, 0x003C), 3000U);
    EXPECT_EQ(counted(name, 0x013C), 2500U);
    EXPECT_EQ(counted(name, 0x00C4), 200U);
    EXPECT_EQ(counted(name, 0x00C5), 30U);
    EXPECT_EQ(counted(name, 0x4F2E), 50U);
    EXPECT_EQ(counted(name, 0x412E), 7U);
  }
}

TEST(HardwareCounting, AmdCountsFourEventsByTheirTwelveBitSelectAndUnitMaskZero) {
  for (const char* name : {"amd-k7", "amd-core", "amd-v2"}) {
    EXPECT_EQ(counted(name, 0x00C0), 1000U);
    EXPECT_EQ(counted(name, 0x0076), 3000U);
    EXPECT_EQ(counted(name, 0x00C2), 200U);
    EXPECT_EQ(counted(name, 0x00C3), 30U);
    EXPECT_EQ(counted(name, 0x1'0000'00C0), 0U);
    EXPECT_EQ(counted(name, 0x01C0), 0U);
  }
}

TEST(HardwareCounting, UnknownCodesCountNothing) {
  EXPECT_EQ(counted("intel-v2", 0x0000), 0U);
  EXPECT_EQ(counted("intel-v2", 0x0300), 0U);
  EXPECT_EQ(counted("intel-v2", 0x00C2), 0U);
  EXPECT_EQ(counted("amd-v2", 0x00C4), 0U);
  EXPECT_FALSE(can_count(find_profile("amd-v2")->profile, 0x4F2E));
}

TEST(HardwareCounting, AnArchitecturalEventThatCpuidMarksUnavailableIsNotCounted) {
  auto profile = find_profile("intel-v2")->profile;
  profile.events_unavailable = 1U << 5;  // branches
  EXPECT_FALSE(can_count(profile, 0x00C4));
  EXPECT_TRUE(can_count(profile, 0x00C5));
  profile.events_length = 6;  // ends before branch misses
  EXPECT_FALSE(can_count(profile, 0x00C5));
}

TEST(HardwareCounting, FixedCountersCountInstructionsCyclesAndReferenceCycles) {
  auto pmu = hardware("intel-v2");
  write(pmu, 0x38F, 0x7'0000'0000);
  write(pmu, 0x38D, 0x333);
  (void)pmu.advance(sample(), Ring::kernel, Mode::host);
  EXPECT_EQ(read(pmu, 0x309), 1000U);
  EXPECT_EQ(read(pmu, 0x30A), 3000U);
  EXPECT_EQ(read(pmu, 0x30B), 2500U);
}

TEST(HardwareCounting, EdgeInvertAndCounterMaskFollowFromOneEventACycle) {
  constexpr std::uint64_t edge = evtsel::edge;
  constexpr std::uint64_t invert = evtsel::invert;
  constexpr std::uint64_t mask1 = 1U << 24;
  constexpr std::uint64_t mask2 = 2U << 24;
  const auto branches = [](std::uint64_t flags) { return counted("intel-v2", 0x00C4 | flags); };
  EXPECT_EQ(branches(mask1), 200U) << "as many cycles as events";
  EXPECT_EQ(branches(mask2), 0U) << "never two in a cycle";
  EXPECT_EQ(branches(255ULL << 24), 0U);
  EXPECT_EQ(branches(invert), 200U) << "nothing to invert";
  EXPECT_EQ(branches(invert | mask1), 2800U) << "the other cycles";
  EXPECT_EQ(branches(invert | mask2), 3000U) << "every cycle has fewer than two";
  EXPECT_EQ(branches(edge), 51U);
  EXPECT_EQ(branches(edge | mask1), 51U);
  EXPECT_EQ(branches(edge | mask1 | invert), 51U) << "it falls as often as it rises";
  EXPECT_EQ(branches(edge | mask2), 0U);
  EXPECT_EQ(branches(edge | mask2 | invert), 751U) << "true whenever the clock runs";

  EXPECT_EQ(counted("intel-v2", 0x003C | mask1), 3000U);
  EXPECT_EQ(counted("intel-v2", 0x003C | mask1 | invert), 0U) << "no cycle lacks itself";
  EXPECT_EQ(counted("intel-v2", 0x003C | edge | mask1), 751U);
  EXPECT_EQ(counted("intel-v2", 0x003C | edge | mask1 | invert), 0U);
  EXPECT_EQ(counted("amd-v2", 0x00C2 | mask1 | invert), 2800U);
}

TEST(HardwareCounting, NothingHappensInTransactions) {
  auto profile = find_profile("intel-v2")->profile;
  profile.tsx = true;
  HardwarePmu pmu{profile};
  write(pmu, 0x188, 0xC0 | on | evtsel::in_tx);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  EXPECT_EQ(pmu.read_pmc(2).value(), 0U);
  write(pmu, 0x188, 0xC0 | on | evtsel::in_tx_cp);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  EXPECT_EQ(pmu.read_pmc(2).value(), 1000U);
}

TEST(HardwareCounting, UserAndKernelAreToldApart) {
  auto pmu = hardware("intel-v2");
  write(pmu, 0x186, 0xC0 | evtsel::enable | evtsel::user);
  write(pmu, 0x187, 0xC0 | evtsel::enable | evtsel::kernel);
  write(pmu, 0x188, 0xC0 | evtsel::enable);
  write(pmu, 0x189, 0xC0 | both_rings);
  write(pmu, 0x38F, 0x7'0000'00FF);
  write(pmu, 0x38D, 0x021);
  (void)pmu.advance(sample(), Ring::kernel, Mode::host);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  EXPECT_EQ(pmu.read_pmc(0).value(), 2000U);
  EXPECT_EQ(pmu.read_pmc(1).value(), 1000U);
  EXPECT_EQ(pmu.read_pmc(2).value(), 0U) << "at no level";
  EXPECT_EQ(pmu.read_pmc(3).value(), 0U) << "not enabled";
  EXPECT_EQ(pmu.read_pmc(0x40000000).value(), 1000U);
  EXPECT_EQ(pmu.read_pmc(0x40000001).value(), 6000U);
}

TEST(HardwareCounting, GlobalCtrlGatesEveryCounterFromV2OnAndNoneBefore) {
  auto v2 = hardware("intel-v2");
  write(v2, 0x186, 0xC0 | on);
  write(v2, 0x38D, 0x3);
  write(v2, 0x38F, 0);
  (void)v2.advance(sample(), Ring::user, Mode::host);
  EXPECT_EQ(v2.read_pmc(0).value(), 0U);
  write(v2, 0x38F, 1);
  (void)v2.advance(sample(), Ring::user, Mode::host);
  EXPECT_EQ(v2.read_pmc(0).value(), 1000U);
  EXPECT_EQ(v2.read_pmc(0x40000000).value(), 0U);
  for (const char* name : {"intel-v1", "amd-k7", "amd-core"}) EXPECT_EQ(counted(name, 0xC0), 1000U) << name;
}

TEST(HardwareCounting, AnOverflowWrapsAndSetsStatusWithOrWithoutTheInterruptBit) {
  auto pmu = hardware("intel-v2");
  write(pmu, 0x186, 0xC0 | on);
  write(pmu, 0x187, 0xC0 | on | evtsel::interrupt);
  write(pmu, 0x4C1, 0xFFFF'FFFF'FFFF - 999);
  EXPECT_EQ(pmu.advance(sample(), Ring::user, Mode::host), 1U);
  EXPECT_EQ(pmu.read_pmc(0).value(), 0U);
  EXPECT_EQ(read(pmu, 0x38E), 1U);
  EXPECT_FALSE(pmu.pmi_raised());

  write(pmu, 0x4C2, 0xFFFF'FFFF'FFFF);
  EXPECT_EQ(pmu.advance(sample(), Ring::user, Mode::host), 2U);
  EXPECT_EQ(pmu.read_pmc(1).value(), 999U);
  EXPECT_EQ(read(pmu, 0x38E), 3U);
  EXPECT_TRUE(pmu.take_pmi());
  EXPECT_FALSE(pmu.take_pmi()) << "one pulse";
}

TEST(HardwareCounting, PmisThatNobodyTookMerge) {
  auto pmu = hardware("intel-v2");
  write(pmu, 0x186, 0xC0 | on | evtsel::interrupt);
  for (int i = 0; i < 3; ++i) {
    write(pmu, 0x4C1, 0xFFFF'FFFF'FFFF);
    (void)pmu.advance(sample(), Ring::user, Mode::host);
  }
  EXPECT_EQ(pmu.pmis(), 3U);
  EXPECT_TRUE(pmu.take_pmi());
  EXPECT_FALSE(pmu.pmi_raised());
}

TEST(HardwareCounting, WithoutStatusRegistersThePmiStillComes) {
  for (const char* name : {"intel-v1", "amd-k7", "amd-core"}) {
    auto pmu = hardware(name);
    const bool intel = pmu.profile().is_intel();
    write(pmu, intel ? 0x186 : 0xC0010000, 0xC0 | on | evtsel::interrupt);
    write(pmu, intel ? 0xC1 : 0xC0010004, 0xFFFF'FFFF'FFFF);
    EXPECT_EQ(pmu.advance(sample(), Ring::user, Mode::host), 1U) << name;
    EXPECT_TRUE(pmu.take_pmi()) << name;
  }
}

TEST(HardwareCounting, AFixedCounterInterruptsByItsOwnBit) {
  auto pmu = hardware("intel-v2");
  write(pmu, 0x38F, 0x7'0000'0000);
  write(pmu, 0x38D, 0x0B3);
  write(pmu, 0x309, 0xFFFF'FFFF'FFFF);
  EXPECT_EQ(pmu.advance(sample(), Ring::user, Mode::host), 1ULL << 32);
  EXPECT_FALSE(pmu.take_pmi());
  write(pmu, 0x30A, 0xFFFF'FFFF'FFFF);
  EXPECT_EQ(pmu.advance(sample(), Ring::user, Mode::host), 1ULL << 33);
  EXPECT_TRUE(pmu.take_pmi());
}

TEST(HardwareCounting, FreezeOnPmiClearsGlobalCtrlUpToV3) {
  for (const char* name : {"intel-v2", "intel-v3"}) {
    auto pmu = hardware(name);
    write(pmu, 0x1D9, 1U << 12);
    write(pmu, 0x186, 0xC0 | on | evtsel::interrupt);
    write(pmu, 0x4C1, 0xFFFF'FFFF'FFFF);
    (void)pmu.advance(sample(), Ring::user, Mode::host);
    EXPECT_EQ(read(pmu, 0x38F), 0U);
    EXPECT_EQ(read(pmu, 0x38E), 1U);
    (void)pmu.advance(sample(), Ring::user, Mode::host);
    EXPECT_EQ(pmu.read_pmc(0).value(), 999U);
  }
}

TEST(HardwareCounting, FreezeOnPmiSetsCtrFrzFromV4OnUntilItIsCleared) {
  for (const char* name : {"intel-v4", "intel-v5"}) {
    auto pmu = hardware(name);
    write(pmu, 0x1D9, 1U << 12);
    write(pmu, 0x186, 0xC0 | on | evtsel::interrupt);
    write(pmu, 0x4C1, 0xFFFF'FFFF'FFFF);
    (void)pmu.advance(sample(), Ring::user, Mode::host);
    EXPECT_EQ(read(pmu, 0x38F), 0xFFU);
    EXPECT_EQ(read(pmu, 0x38E), 1U | 1ULL << 59);
    (void)pmu.advance(sample(), Ring::user, Mode::host);
    EXPECT_EQ(pmu.read_pmc(0).value(), 999U);
    write(pmu, 0x390, 1ULL << 59);
    (void)pmu.advance(sample(), Ring::user, Mode::host);
    EXPECT_EQ(pmu.read_pmc(0).value(), 1999U);
    EXPECT_EQ(read(pmu, 0x38E), 1U);
  }
}

TEST(HardwareCounting, AnOverflowThatRaisesNoPmiFreezesNothing) {
  auto pmu = hardware("intel-v4");
  write(pmu, 0x1D9, 1U << 12);
  write(pmu, 0x186, 0xC0 | on);
  write(pmu, 0x4C1, 0xFFFF'FFFF'FFFF);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  EXPECT_EQ(read(pmu, 0x38E), 1U);
}

TEST(HardwareCounting, APebsCounterFillsTheBufferInsteadOfItsOwnStatusBit) {
  auto profile = find_profile("intel-v2")->profile;
  profile.perf_capabilities |= 1U << 8;
  HardwarePmu pmu{profile};
  write(pmu, 0x3F1, 1);
  write(pmu, 0x186, 0xC0 | on);
  write(pmu, 0x4C1, 0xFFFF'FFFF'FFFF);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  EXPECT_EQ(read(pmu, 0x38E), 1ULL << 62);
  EXPECT_TRUE(pmu.take_pmi()) << "whatever INT says";
  write(pmu, 0x4C1, 0xFFFF'FFFF'FFFF);
  (void)pmu.advance(sample(), Ring::user, Mode::host);
  EXPECT_FALSE(pmu.take_pmi()) << "the buffer is full already";
}

TEST(HardwareCounting, AmdGuestOnlyAndHostOnlyCountByModeAndOnlyWithSvme) {
  auto pmu = hardware("amd-v2");
  write(pmu, 0xC0010200, 0xC0 | on | evtsel::guest_only);
  write(pmu, 0xC0010202, 0xC0 | on | evtsel::host_only);
  write(pmu, 0xC0010204, 0xC0 | on | evtsel::guest_only | evtsel::host_only);
  write(pmu, 0xC0010206, 0xC0 | on);
  const auto expect = [&](std::uint64_t guest, std::uint64_t host, std::uint64_t both, std::uint64_t neither) {
    EXPECT_EQ(pmu.read_pmc(0).value(), guest);
    EXPECT_EQ(pmu.read_pmc(1).value(), host);
    EXPECT_EQ(pmu.read_pmc(2).value(), both);
    EXPECT_EQ(pmu.read_pmc(3).value(), neither);
  };
  (void)pmu.advance(sample(), Ring::kernel, Mode::guest);
  (void)pmu.advance(sample(), Ring::kernel, Mode::host);
  expect(0, 0, 0, 2000);
  pmu.set_svme(true);
  (void)pmu.advance(sample(), Ring::kernel, Mode::guest);
  expect(1000, 0, 1000, 3000);
  (void)pmu.advance(sample(), Ring::kernel, Mode::host);
  expect(1000, 1000, 2000, 4000);
  pmu.set_svme(false);
  (void)pmu.advance(sample(), Ring::kernel, Mode::host);
  expect(1000, 1000, 2000, 5000);
}

TEST(HardwareCounting, OnlyEventsThatSomeCounterCountsAreUsed) {
  auto pmu = hardware("intel-v2");
  EXPECT_FALSE(pmu.uses(Event::instructions, Mode::host));
  write(pmu, 0x186, 0x412E | evtsel::enable | evtsel::user);
  EXPECT_TRUE(pmu.uses(Event::llc_misses, Mode::host));
  EXPECT_FALSE(pmu.uses(Event::branch_misses, Mode::host));
  EXPECT_FALSE(pmu.uses_edges(Mode::host));
  write(pmu, 0x187, 0xC5 | on | evtsel::edge);
  EXPECT_TRUE(pmu.uses(Event::branch_misses, Mode::host));
  EXPECT_TRUE(pmu.uses_edges(Mode::host));
  write(pmu, 0x38F, 0);
  EXPECT_FALSE(pmu.uses(Event::llc_misses, Mode::host));
  EXPECT_FALSE(pmu.uses_edges(Mode::host));
}

}  // namespace
}  // namespace vpmu::model
