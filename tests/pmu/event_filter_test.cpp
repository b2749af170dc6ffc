// The event filter against a plain reading of its rules.
#include "vpmu/event_filter.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "pmu/world.hpp"
#include "seeds.hpp"

namespace vpmu::test {
namespace {

/// The rules as docs/vpmu.md states them, entry by entry and without any order.
bool reference_allows(Vendor vendor, const FilterRequest& request, std::uint64_t selector) {
  const std::uint64_t select_bits = vendor == Vendor::amd ? 0xF000000FFULL : 0xFFULL;
  const bool masked = request.flags == FilterRequest::masked_events;
  bool included = false;
  bool excluded = false;
  for (std::size_t i = 0; i < request.event_count; ++i) {
    const std::uint64_t entry = request.events[i];
    if (masked) {
      if ((entry & select_bits) != (selector & select_bits)) continue;
      if ((selector >> 8 & 0xFF & entry >> 56) != (entry >> 8 & 0xFF)) continue;
      ((entry >> 55 & 1) != 0 ? excluded : included) = true;
    } else {
      included |= entry == (selector & (select_bits | 0xFF00));
    }
  }
  const bool listed = included && !excluded;
  return request.action == FilterRequest::allow ? listed : !listed;
}

TEST(EventFilter, DecidesAsThePlainRulesDoForTenThousandRandomFilters) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int round = 0; round < 2500; ++round) {
      const Vendor vendor = random.chance(2) ? Vendor::amd : Vendor::intel;
      const bool masked = random.chance(2);
      std::vector<std::uint64_t> events(random.below(round % 10 == 0 ? max_filter_events + 1 : 12));
      const auto few = [&] { return static_cast<std::uint32_t>(0xC0 + random.below(4)); };
      for (std::uint64_t& event : events) {
        const std::uint32_t high = vendor == Vendor::amd ? static_cast<std::uint32_t>(random.below(2)) << 8 : 0;
        if (masked) {
          const auto mask = static_cast<std::uint8_t>(random.chance(3) ? 0xFF : random.any());
          const auto match = static_cast<std::uint8_t>(random.chance(4) ? random.any() : random.any() & mask & 3);
          event = masked_entry(few() | high, mask, match, random.chance(3));
        } else {
          event = few() | random.below(4) << 8 | std::uint64_t{high} << 24;
          if (random.chance(10)) event |= 1ULL << (16 + random.below(48));
        }
      }
      const FilterRequest request{.action = static_cast<std::uint32_t>(random.below(2)),
                                  .flags = masked ? FilterRequest::masked_events : 0,
                                  .fixed_bitmap = static_cast<std::uint32_t>(random.any()),
                                  .events = events.data(),
                                  .event_count = events.size()};
      EventFilter filter;
      ASSERT_TRUE(filter.load(vendor, request).ok()) << again(seed);
      for (int probe = 0; probe < 40; ++probe) {
        std::uint64_t selector = few() | random.below(4) << 8 | (random.any() & 0xFFFF0000);
        if (vendor == Vendor::amd) selector |= random.below(2) << 32;
        ASSERT_EQ(filter.allows(selector), reference_allows(vendor, request, selector))
            << again(seed) << std::hex << " selector " << selector;
      }
      for (std::uint32_t n = 0; n < max_fixed_counters; ++n) {
        const bool listed = (request.fixed_bitmap >> n & 1) != 0;
        ASSERT_EQ(filter.allows_fixed(n), listed == (request.action == FilterRequest::allow));
      }
    }
  }
}

TEST(EventFilter, ANewOneLetsEverythingThrough) {
  const EventFilter filter;
  EXPECT_TRUE(filter.allows(instructions));
  EXPECT_TRUE(filter.allows_fixed(0));
}

TEST(EventFilter, AMalformedRequestIsRefusedAndTheOldFilterStays) {
  EventFilter filter;
  const std::uint64_t instructions_only = instructions_code;
  ASSERT_TRUE(
      filter.load(Vendor::intel, {.action = FilterRequest::allow, .events = &instructions_only, .event_count = 1})
          .ok());
  const auto expect_refused = [&](const FilterRequest& request, FilterError error) {
    const auto result = filter.load(Vendor::intel, request);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error(), error);
    EXPECT_TRUE(filter.allows(instructions));
    EXPECT_FALSE(filter.allows(cycles));
  };
  const std::vector<std::uint64_t> many(max_filter_events + 1);
  expect_refused({.events = many.data(), .event_count = many.size()}, FilterError::too_many_events);
  expect_refused({.action = 2}, FilterError::bad_action);
  expect_refused({.flags = 2}, FilterError::bad_flags);

  const std::uint64_t entries[] = {masked_entry(0xC0, 0xFF, 0, false), 1ULL << 16};
  std::size_t bad = 0;
  const auto result =
      filter.load(Vendor::intel, {.flags = FilterRequest::masked_events, .events = entries, .event_count = 2}, &bad);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error(), FilterError::stray_bit);
  EXPECT_EQ(bad, 1U);
  EXPECT_TRUE(filter.allows(instructions));
  EXPECT_FALSE(filter.allows(cycles));
}

TEST(EventFilter, ReplacedUnderARunningGuestDecidesFromTheNextEntry) {
  World world{"intel-v2"};
  world.write(ia32_perfevtsel[0], instructions);
  world.run(10);
  const std::uint64_t denied = instructions_code;
  EventFilter filter;
  ASSERT_TRUE(filter.load(Vendor::intel, {.action = FilterRequest::deny, .events = &denied, .event_count = 1}).ok());
  world.pmu.set_filter(&filter);
  world.run(10);
  world.emulate(5);
  EXPECT_EQ(world.read(ia32_pmc[0]), 10U);
  EventFilter other;
  world.pmu.set_filter(&other);
  world.run(10);
  EXPECT_EQ(world.read(ia32_pmc[0]), 20U);
}

}  // namespace
}  // namespace vpmu::test
