#include "lab/conform_host.hpp"

#include <gtest/gtest.h>

#include "vpmu/event_select.hpp"

namespace vpmu::lab {
namespace {

constexpr Batch batch(std::uint8_t cpl) {
  Batch all;
  all.counts = {1000, 2000, 300, 40, 1500, 60, 7};
  all.cpl = cpl;
  return all;
}

HostEventSpec gp(std::uint64_t select, Vendor vendor = Vendor::intel) {
  return {.select = select, .vendor = vendor, .user = true, .kernel = true, .counter = CounterId::gp(2)};
}

HostEventSpec fixed(std::uint32_t n) { return {.user = true, .kernel = true, .counter = CounterId::fixed(n)}; }

/// What an event of this kind counts in batch().
std::uint64_t counted(const HostEventSpec& spec, std::uint8_t cpl = 0) {
  VectorHost host;
  const auto event = host.open(spec, 1U << 20);
  EXPECT_TRUE(host.enable(*event).ok());
  host.run(batch(cpl));
  return *host.read(*event);
}

TEST(VectorHost, counts_intels_events_by_their_codes) {
  EXPECT_EQ(counted(gp(0xC0)), 1000);
  EXPECT_EQ(counted(gp(0x3C)), 2000);
  EXPECT_EQ(counted(gp(0xC4)), 300);
  EXPECT_EQ(counted(gp(0xC5)), 40);
  EXPECT_EQ(counted(gp(0x013C)), 1500);
  EXPECT_EQ(counted(gp(0x0300)), 1500);
  EXPECT_EQ(counted(gp(0x4F2E)), 60);
  EXPECT_EQ(counted(gp(0x412E)), 7);
  EXPECT_EQ(counted(gp(0x01C0)), 0);
}

TEST(VectorHost, counts_amds_events_by_their_12_bit_codes) {
  EXPECT_EQ(counted(gp(0xC0, Vendor::amd)), 1000);
  EXPECT_EQ(counted(gp(0x76, Vendor::amd)), 2000);
  EXPECT_EQ(counted(gp(0xC2, Vendor::amd)), 300);
  EXPECT_EQ(counted(gp(0xC3, Vendor::amd)), 40);
  EXPECT_EQ(counted(gp(0x1000000C0, Vendor::amd)), 0);
  EXPECT_EQ(counted(gp(0x01C0, Vendor::amd)), 0);
  EXPECT_EQ(counted(gp(0xC4, Vendor::amd)), 0);
}

TEST(VectorHost, fixed_counters_count_instructions_cycles_and_reference_cycles) {
  EXPECT_EQ(counted(fixed(0)), 1000);
  EXPECT_EQ(counted(fixed(1)), 2000);
  EXPECT_EQ(counted(fixed(2)), 1500);
  EXPECT_EQ(counted(fixed(3)), 0);
}

TEST(VectorHost, edge_invert_counter_mask_and_transactions_count_0) {
  EXPECT_EQ(counted(gp(0xC0 | evtsel::edge)), 0);
  EXPECT_EQ(counted(gp(0xC0 | evtsel::invert)), 0);
  EXPECT_EQ(counted(gp(0xC0 | 1U << 24)), 0);
  EXPECT_EQ(counted(gp(0xC0 | evtsel::in_tx)), 0);
  EXPECT_EQ(counted(gp(0xC0 | evtsel::in_tx | evtsel::in_tx_cp)), 0);
  EXPECT_EQ(counted(gp(0xC0 | evtsel::in_tx_cp)), 1000);
}

TEST(VectorHost, cpl_0_is_kernel_and_1_to_3_are_user) {
  HostEventSpec user = gp(0xC0);
  user.kernel = false;
  HostEventSpec kernel = gp(0xC0);
  kernel.user = false;
  EXPECT_EQ(counted(user, 0), 0);
  EXPECT_EQ(counted(user, 1), 1000);
  EXPECT_EQ(counted(user, 3), 1000);
  EXPECT_EQ(counted(kernel, 0), 1000);
  EXPECT_EQ(counted(kernel, 1), 0);
}

TEST(VectorHost, hints_when_the_period_has_passed_and_starts_the_same_one_again) {
  VectorHost host;
  const auto event = host.open(gp(0xC0), 1500);
  ASSERT_TRUE(host.enable(*event).ok());
  host.run(batch(0));
  EXPECT_EQ(host.take_hints(), 0);
  host.run(batch(0));
  EXPECT_EQ(host.take_hints(), CounterId::gp(2).mask());
  host.run(batch(0));  // 3,000 is the second time 1,500
  EXPECT_EQ(host.take_hints(), CounterId::gp(2).mask());
  host.run(batch(0));
  EXPECT_EQ(host.take_hints(), 0);
}

TEST(VectorHost, a_new_period_starts_from_that_moment) {
  VectorHost host;
  const auto event = host.open(gp(0xC0), 1500);
  ASSERT_TRUE(host.enable(*event).ok());
  host.run(batch(0));
  ASSERT_TRUE(host.set_period(*event, 1001).ok());
  host.run(batch(0));
  EXPECT_EQ(host.take_hints(), 0);
  host.run(batch(0));
  EXPECT_EQ(host.take_hints(), CounterId::gp(2).mask());
}

TEST(VectorHost, a_checkpointed_event_never_hints) {
  VectorHost host;
  const auto event = host.open(gp(0xC0 | evtsel::in_tx_cp), 10);
  ASSERT_TRUE(host.enable(*event).ok());
  host.run(batch(0));
  EXPECT_EQ(host.take_hints(), 0);
}

TEST(VectorHost, a_disabled_or_closed_event_does_not_count) {
  VectorHost host;
  const auto event = host.open(gp(0xC0), 10);
  host.run(batch(0));
  EXPECT_EQ(*host.read(*event), 0);
  ASSERT_TRUE(host.enable(*event).ok());
  ASSERT_TRUE(host.disable(*event).ok());
  host.run(batch(0));
  EXPECT_EQ(*host.read(*event), 0);
  host.close(*event);
  EXPECT_FALSE(host.read(*event).ok());
  EXPECT_EQ(host.hints(), 0);
}

TEST(VectorHost, the_next_opens_fail_as_told) {
  VectorHost host;
  host.fail_opens(2);
  EXPECT_FALSE(host.open(gp(0xC0), 10).ok());
  EXPECT_FALSE(host.open(gp(0xC0), 10).ok());
  EXPECT_TRUE(host.open(gp(0xC0), 10).ok());
}

TEST(VectorHost, has_events_without_limit) {
  VectorHost host;
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(host.open(gp(0xC0), 10).ok());
}

}  // namespace
}  // namespace vpmu::lab
