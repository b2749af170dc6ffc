// The fake of the HostEvents port keeps the port's contract, and fails as told.
#include "fakes/fake_host.hpp"

#include <gtest/gtest.h>

namespace vpmu::fakes {
namespace {

HostEventSpec instructions(std::uint32_t counter = 0) {
  return {.select = 0xC0, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::gp(counter)};
}

TEST(FakeHost, CountsWhatHappensWhileEnabled) {
  FakeHost host;
  const HostEvent event = host.open(instructions(), 100).value();
  host.happen(event, 5);
  EXPECT_EQ(host.read(event).value(), 0U);
  ASSERT_TRUE(host.enable(event).ok());
  host.happen(event, 7);
  ASSERT_TRUE(host.disable(event).ok());
  host.happen(event, 9);
  EXPECT_EQ(host.read(event).value(), 7U);
}

TEST(FakeHost, HintsWhenThePeriodPassedAndStartsTheSameOneAgain) {
  FakeHost host;
  const HostEvent event = host.open(instructions(3), 100).value();
  ASSERT_TRUE(host.enable(event).ok());
  host.happen(event, 99);
  EXPECT_EQ(host.hints().load(), 0U);
  host.happen(event, 1);
  EXPECT_EQ(host.take_hints(), 8U);
  host.happen(event, 250);
  EXPECT_EQ(host.take_hints(), 8U);
  EXPECT_EQ(host.distance(event), 50U);
  ASSERT_TRUE(host.set_period(event, 10).ok());
  EXPECT_EQ(host.distance(event), 10U);
}

TEST(FakeHost, EventsAreMatchedByCodeFixedNumberPrivilegeAndCounter) {
  FakeHost host;
  auto kernel_only = instructions(1);
  kernel_only.user = false;
  HostEventSpec fixed{
      .select = 0, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::fixed(0)};
  const HostEvent a = host.open(instructions(0), 1000).value();
  const HostEvent b = host.open(kernel_only, 1000).value();
  const HostEvent c = host.open(fixed, 1000).value();
  for (auto event : {a, b, c}) ASSERT_TRUE(host.enable(event).ok());
  host.happen_code(0xC0, 3, 1);
  host.happen_code(0xC0, 0, 10);
  host.happen_code(0xC4, 0, 100);
  host.happen_fixed(0, 3, 1000);
  host.happen_on(CounterId::gp(1), 500);
  EXPECT_EQ(host.count(a), 11U);
  EXPECT_EQ(host.count(b), 510U);
  EXPECT_EQ(host.count(c), 1000U);
}

TEST(FakeHost, ACallFailsTheNthTimeOrAlways) {
  FakeHost host;
  host.fail_nth(HostCall::open, 2, HostError::no_counter);
  const HostEvent event = host.open(instructions(), 1).value();
  EXPECT_EQ(host.open(instructions(1), 1).error(), HostError::no_counter);
  EXPECT_TRUE(host.open(instructions(1), 1).ok());
  host.fail_always(HostCall::enable, HostError::not_permitted);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(host.enable(event).error(), HostError::not_permitted);
  host.fail_never(HostCall::enable);
  EXPECT_TRUE(host.enable(event).ok());
  for (auto call : {HostCall::set_period, HostCall::disable, HostCall::read, HostCall::peek}) {
    host.fail_nth(call, 1, HostError::lost);
  }
  EXPECT_FALSE(host.set_period(event, 1).ok());
  EXPECT_FALSE(host.disable(event).ok());
  EXPECT_FALSE(host.read(event).ok());
  EXPECT_FALSE(host.peek(event).ok());
}

TEST(FakeHost, ALostEventCountsNoMoreAndSaysSo) {
  FakeHost host;
  const HostEvent event = host.open(instructions(), 100).value();
  ASSERT_TRUE(host.enable(event).ok());
  host.happen(event, 4);
  host.lose(event);
  host.happen(event, 4);
  EXPECT_EQ(host.count(event), 4U);
  EXPECT_EQ(host.read(event).error(), HostError::lost);
  EXPECT_EQ(host.enable(event).error(), HostError::lost);
  host.close(event);
  EXPECT_EQ(host.open_events(), 0U);
}

TEST(FakeHost, HintsCanBeHeldMergedAndLost) {
  FakeHost host;
  const HostEvent a = host.open(instructions(0), 10).value();
  const HostEvent b = host.open(instructions(1), 10).value();
  ASSERT_TRUE(host.enable(a).ok());
  ASSERT_TRUE(host.enable(b).ok());
  host.hold_hints(true);
  host.happen(a, 10);
  host.happen(a, 10);
  host.happen(b, 10);
  EXPECT_EQ(host.hints().load(), 0U);
  EXPECT_EQ(host.held_hints(), 3U);
  host.deliver_hints();
  EXPECT_EQ(host.take_hints(), 3U);
  host.hold_hints(false);
  host.lose_hints(1);
  host.happen(a, 10);
  EXPECT_EQ(host.hints().load(), 0U);
  host.happen(a, 10);
  EXPECT_EQ(host.take_hints(), 1U);
}

TEST(FakeHost, PeekIsUnavailableWithoutFreeReads) {
  FakeHost host{false};
  const HostEvent event = host.open(instructions(), 1).value();
  EXPECT_EQ(host.peek(event).error(), HostError::unavailable);
  EXPECT_EQ(host.calls().peek, 0U);
  host.set_free_reads(true);
  EXPECT_EQ(host.peek(event).value(), 0U);
  EXPECT_EQ(host.calls().peek, 1U);
}

TEST(FakeHost, CountsItsCallsAndLogsThemInOrder) {
  FakeHost host;
  const HostEvent event = host.open(instructions(), 50).value();
  ASSERT_TRUE(host.set_period(event, 60).ok());
  ASSERT_TRUE(host.enable(event).ok());
  ASSERT_TRUE(host.set_period(event, 70).ok());
  host.happen(event, 5);
  EXPECT_EQ(host.read(event).value(), 5U);
  host.close(event);
  EXPECT_EQ(host.calls(),
            (HostCallCounts{
                .open = 1, .close = 1, .set_period = 2, .enable = 1, .read = 1, .live_set_period = 1, .live_read = 1}));
  ASSERT_EQ(host.log_length(), 6U);
  EXPECT_EQ(host.log(0).call, HostCall::open);
  EXPECT_EQ(host.log(0).value, 50U);
  EXPECT_EQ(host.log(3).value, 70U);
  EXPECT_EQ(host.log(4).call, HostCall::read);
  EXPECT_EQ(host.log(5).call, HostCall::close);
}

TEST(FakeHost, TheLogKeepsTheLastCalls) {
  FakeHost host;
  const HostEvent event = host.open(instructions(), 1).value();
  for (std::uint64_t i = 1; i <= FakeHost::log_size + 10; ++i) ASSERT_TRUE(host.set_period(event, i).ok());
  EXPECT_EQ(host.log_length(), FakeHost::log_size);
  EXPECT_EQ(host.log(0).value, 11U);
  EXPECT_EQ(host.log(FakeHost::log_size - 1).value, FakeHost::log_size + 10);
}

TEST(FakeHost, RunsOutOfCounters) {
  FakeHost host;
  host.set_counters(2);
  const HostEvent event = host.open(instructions(0), 1).value();
  ASSERT_TRUE(host.open(instructions(1), 1).ok());
  EXPECT_EQ(host.open(instructions(2), 1).error(), HostError::no_counter);
  host.close(event);
  EXPECT_TRUE(host.open(instructions(2), 1).ok());
}

}  // namespace
}  // namespace vpmu::fakes
