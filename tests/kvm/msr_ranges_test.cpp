#include <gtest/gtest.h>
#include <linux/kvm.h>

#include "pmu/world.hpp"
#include "vpmu/kvm.hpp"

namespace vpmu::kvm {
namespace {

bool covered(Vendor vendor, std::uint32_t index) {
  for (const MsrRange& range : msr_ranges(vendor)) {
    if (range.contains(index)) return true;
  }
  return false;
}

template <class Visit>
void for_each_index(Visit&& visit) {
  for (std::uint32_t index = 0; index < 0x2000; ++index) visit(index);
  for (std::uint32_t index = 0xC0000000; index < 0xC0002000; ++index) visit(index);
  for (std::uint32_t index = 0xC0010000; index < 0xC0012000; ++index) visit(index);
}

TEST(MsrRanges, CoverEveryRegisterThatANamedProfileEnumerates) {
  for (const NamedProfile& named : named_profiles()) {
    const test::World world{named.profile};
    for_each_index([&](std::uint32_t index) {
      if (world.pmu.enumerates(static_cast<Msr>(index))) {
        EXPECT_TRUE(covered(named.profile.vendor, index)) << named.name << " " << std::hex << index;
      }
    });
  }
}

TEST(MsrRanges, HoldNothingButThePmusRegistersAndTheIndicesOfRdpmc) {
  const test::World intel{"intel-v4"};
  const test::World amd{"amd-v2"};
  for (const Vendor vendor : {Vendor::intel, Vendor::amd}) {
    for_each_index([&](std::uint32_t index) {
      if (index < 16 || !covered(vendor, index)) return;
      const auto msr = static_cast<Msr>(index);
      EXPECT_TRUE(intel.pmu.owns(msr) || amd.pmu.owns(msr)) << std::hex << index;
    });
  }
}

TEST(MsrRanges, FitKvmsFilterAndDoNotOverlap) {
  for (const Vendor vendor : {Vendor::intel, Vendor::amd}) {
    const auto ranges = msr_ranges(vendor);
    EXPECT_LE(ranges.size(), std::size_t{KVM_MSR_FILTER_MAX_RANGES});
    for (std::size_t a = 0; a < ranges.size(); ++a) {
      EXPECT_LE(ranges[a].count, 16U) << "the bitmap of route_msrs()";
      for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(ranges[a].contains(ranges[b].first)) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace vpmu::kvm
