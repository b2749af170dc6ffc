// Parts of the kvm machine that need no KVM: the serial line, CPUID, what a host's profile becomes.
#include "machine/kvm/machine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "machine/kvm/guest_cpuid.hpp"
#include "machine/kvm/uart.hpp"

namespace vpmu::kvm {
namespace {

using testing::ElementsAre;

struct UartTest : testing::Test {
  std::string sent;
  std::vector<bool> levels;
  Uart uart{[this](char c) { sent += c; }, [this](bool level) { levels.push_back(level); }};
};

TEST_F(UartTest, SendsAtOnceAndSaysSo) {
  uart.write(0, 'h');
  uart.write(0, 'i');
  EXPECT_EQ(sent, "hi");
  EXPECT_EQ(uart.read(5), 0x60);
  EXPECT_TRUE(levels.empty());
}

TEST_F(UartTest, InterruptsForEachCharacterThatItSentAndReadingTheCauseAcknowledges) {
  uart.write(1, 2);
  EXPECT_THAT(levels, ElementsAre(true)) << "it is empty as it is enabled";
  EXPECT_EQ(uart.read(2) & 0x0F, 0x02);
  EXPECT_EQ(uart.read(2) & 0x0F, 0x01);
  uart.write(0, 'x');
  uart.write(0, 'y');
  EXPECT_THAT(levels, ElementsAre(true, false, true, false, true)) << "an edge for each";
}

TEST_F(UartTest, InterruptsWhileACharacterWaits) {
  uart.write(1, 1);
  EXPECT_TRUE(uart.receive('a'));
  EXPECT_TRUE(uart.receive('b'));
  EXPECT_EQ(uart.read(2) & 0x0F, 0x04);
  EXPECT_EQ(uart.read(5) & 1, 1);
  EXPECT_EQ(uart.read(0), 'a');
  EXPECT_THAT(levels, ElementsAre(true));
  EXPECT_EQ(uart.read(0), 'b');
  EXPECT_THAT(levels, ElementsAre(true, false));
  EXPECT_EQ(uart.read(5) & 1, 0);
}

TEST_F(UartTest, TakesNoMoreThanItsQueue) {
  for (std::size_t n = 0; n < Uart::queue; ++n) EXPECT_TRUE(uart.receive('x'));
  EXPECT_FALSE(uart.receive('x'));
}

TEST_F(UartTest, LoopbackIsWhatADriverProbesFor) {
  uart.write(4, 0x1A);
  EXPECT_EQ(uart.read(6) & 0xF0, 0x90);
  uart.write(0, 'q');
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(uart.read(0), 'q');
}

std::unique_ptr<abi::Cpuid> shaped(const char* profile, std::uint32_t apic_id = 0, std::uint32_t cpus = 1) {
  auto cpuid = std::make_unique<abi::Cpuid>();
  const auto add = [&](std::uint32_t leaf, std::uint32_t eax, std::uint32_t ecx) {
    cpuid->entries[cpuid->count++] = {
        .function = leaf, .index = 0, .flags = 0, .eax = eax, .ebx = 0, .ecx = ecx, .edx = 0, .padding = {}};
  };
  add(0, 0xD, 0);
  add(1, 0x00800F12, 1U << 5);
  add(0xB, 0, 0);
  add(0x80000000, 0x80000008, 0);
  add(0x80000001, 0, 1U << 2);
  add(0x8000000A, 1, 0);
  EXPECT_TRUE(shape_cpuid(
      *cpuid, {.profile = find_profile(profile)->profile, .apic_id = apic_id, .cpus = cpus, .tsc_khz = 2000}));
  return cpuid;
}

const kvm_cpuid_entry2& leaf_of(const abi::Cpuid& cpuid, std::uint32_t leaf) {
  static const kvm_cpuid_entry2 none{};
  for (std::uint32_t n = 0; n < cpuid.count; ++n) {
    if (cpuid.entries[n].function == leaf) return cpuid.entries[n];
  }
  return none;
}

TEST(GuestCpuid, ShowsTheProfilesVendorAndPmuOnAnyHost) {
  const auto intel = shaped("intel-v4");
  EXPECT_EQ(leaf_of(*intel, 0).ebx, 0x756E6547U) << "Genu";
  EXPECT_GE(leaf_of(*intel, 0).eax, 0xAU);
  EXPECT_EQ(leaf_of(*intel, 0xA).eax & 0xFFFF, 0x0804U);
  EXPECT_EQ(leaf_of(*intel, 0x80000022).eax, 0U);
  const auto amd = shaped("amd-v2");
  EXPECT_EQ(leaf_of(*amd, 0).ebx, 0x68747541U) << "Auth";
  EXPECT_EQ(leaf_of(*amd, 0xA).eax, 0U);
  EXPECT_EQ(leaf_of(*amd, 0x80000022).ebx & 0xF, 6U);
  EXPECT_GE(leaf_of(*amd, 0x80000000).eax, 0x80000022U);
}

TEST(GuestCpuid, OffersNoVirtualizationAndStatesTheTsc) {
  const auto cpuid = shaped("amd-core");
  EXPECT_EQ(leaf_of(*cpuid, 0x80000001).ecx & 1U << 2, 0U);
  EXPECT_EQ(leaf_of(*cpuid, 1).ecx & 1U << 5, 0U);
  EXPECT_EQ(leaf_of(*cpuid, 0x8000000A).eax, 0U);
  EXPECT_EQ(leaf_of(*cpuid, 0x40000010).eax, 2000U);
}

TEST(GuestCpuid, GivesEachVcpuItsApicId) {
  const auto cpuid = shaped("amd-v2", 3, 4);
  EXPECT_EQ(leaf_of(*cpuid, 1).ebx >> 24, 3U);
  EXPECT_EQ(leaf_of(*cpuid, 0xB).edx, 3U);
}

TEST(GuestCpuid, SaysWhenThereIsNoRoom) {
  abi::Cpuid cpuid;
  cpuid.count = abi::Cpuid::most;
  for (std::uint32_t n = 0; n < cpuid.count; ++n) cpuid.entries[n].function = 0x1000 + n;
  EXPECT_FALSE(shape_cpuid(cpuid, {.profile = find_profile("intel-v2")->profile}));
}

TEST(ProfileOn, TheClockHasCyclesAloneAndIntelIsTold) {
  const Profile v2 = profile_on(find_profile("intel-v2")->profile, HostKind::clock);
  EXPECT_EQ(v2.events_unavailable, 0x7AU);
  EXPECT_EQ(v2.fixed_mask, 0);
  const Profile v5 = profile_on(find_profile("intel-v5")->profile, HostKind::clock);
  EXPECT_EQ(v5.fixed_mask, 0b110);
  for (const NamedProfile& named : named_profiles()) {
    EXPECT_EQ(check(profile_on(named.profile, HostKind::clock)), nullptr) << named.name;
    EXPECT_EQ(profile_on(named.profile, HostKind::perf), named.profile) << named.name;
    if (!named.profile.is_intel()) {
      EXPECT_EQ(profile_on(named.profile, HostKind::clock), named.profile) << named.name;
    }
  }
}

}  // namespace
}  // namespace vpmu::kvm
