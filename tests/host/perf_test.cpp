// Host events on the modelled hardware.
#include <gtest/gtest.h>

#include "host/model/perf.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

HostEventSpec code(std::uint64_t select, std::uint32_t counter = 0, Vendor vendor = Vendor::intel) {
  return {.select = select, .vendor = vendor, .user = true, .kernel = true, .counter = CounterId::gp(counter)};
}
HostEventSpec fixed(std::uint32_t n) {
  return {.select = 0, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::fixed(n)};
}

Activity instructions(std::uint64_t n) {
  Activity a;
  a[Event::instructions] = n;
  return a;
}

struct Host {
  explicit Host(const char* name = "intel-v2", PerfOptions options = {})
      : Host{svm_host(find_profile(name)->profile), options} {}
  explicit Host(const Profile& profile, PerfOptions options = {}) : pmu{profile}, perf{pmu, options} {}

  HostEvent start(const HostEventSpec& spec, std::uint64_t period = 1ULL << 62) {
    const HostEvent event = perf.open(spec, period).value();
    EXPECT_TRUE(perf.enable(event).ok());
    return event;
  }
  std::uint64_t count(HostEvent event) { return perf.read(event).value(); }

  HardwarePmu pmu;
  PerfModel perf;
};

TEST(PerfModel, AnEventCountsFromEnableToDisable) {
  Host host;
  const HostEvent event = host.perf.open(code(0xC4), 1000).value();
  Activity a;
  a[Event::branches] = 3;
  (void)host.perf.advance(a, Ring::user);
  EXPECT_EQ(host.count(event), 0U);
  ASSERT_TRUE(host.perf.enable(event).ok());
  (void)host.perf.advance(a, Ring::user);
  EXPECT_EQ(host.count(event), 3U);
  ASSERT_TRUE(host.perf.disable(event).ok());
  (void)host.perf.advance(a, Ring::user);
  EXPECT_EQ(host.count(event), 3U);
}

TEST(PerfModel, GuestModeAloneCounts) {
  for (const char* name : {"intel-v1", "intel-v2", "amd-core", "amd-v2"}) {
    Host host{name};
    const HostEvent event = host.start(code(0xC0, 0, host.pmu.profile().vendor));
    (void)host.perf.advance(instructions(5), Ring::kernel, Mode::host);
    EXPECT_EQ(host.count(event), 0U) << name;
    (void)host.perf.advance(instructions(5), Ring::kernel, Mode::guest);
    EXPECT_EQ(host.count(event), 5U) << name;
  }
}

TEST(PerfModel, AnEventTakesItsFixedCounterFirstAndThenAGeneralPurposeOne) {
  Host host;
  (void)host.start(code(0xC0, 0));
  EXPECT_EQ(host.pmu.inspect(Msr::ia32_fixed_ctr_ctrl), 0xBU);
  (void)host.start(fixed(0));
  EXPECT_EQ(host.pmu.inspect(ia32_perfevtsel[0]),
            0xC0U | evtsel::user | evtsel::kernel | evtsel::interrupt | evtsel::enable);
}

TEST(PerfModel, FlagsKeepAnEventOffTheFixedCounters) {
  Host host;
  (void)host.start(code(0xC0 | evtsel::edge | 1U << 24));
  EXPECT_EQ(host.pmu.inspect(Msr::ia32_fixed_ctr_ctrl), 0U);
  EXPECT_NE(host.pmu.inspect(ia32_perfevtsel[0]) & evtsel::edge, 0U);
}

TEST(PerfModel, SaysNoCounterWhenNoneIsFreeAndGetsItBackByClosing) {
  Host host;
  HostEvent last{};
  for (std::uint32_t i = 0; i < 9; ++i) last = host.perf.open(code(0xC0, i), 1).value();
  EXPECT_EQ(host.perf.open(code(0xC0, 9), 1).error(), HostError::no_counter);
  EXPECT_EQ(host.perf.open(code(0xC4, 9), 1).error(), HostError::no_counter);
  EXPECT_TRUE(host.perf.open(fixed(1), 1).ok()) << "the cycles' own is free";
  host.perf.close(last);
  EXPECT_TRUE(host.perf.open(code(0xC4, 9), 1).ok());
  EXPECT_EQ(host.perf.open_events(), 10U);
}

TEST(PerfModel, CountersThatOthersKeepAreNotUsed) {
  Host host{"intel-v2", {.taken = 0x7'0000'00FE}};
  EXPECT_TRUE(host.perf.open(code(0x3C), 1).ok());
  EXPECT_EQ(host.perf.open(code(0xC0), 1).error(), HostError::no_counter);
}

TEST(PerfModel, SaysUnsupportedForWhatTheHostCannotCount) {
  Host intel;
  EXPECT_EQ(intel.perf.open(code(0x01B7), 1).error(), HostError::unsupported);
  EXPECT_EQ(intel.perf.open(fixed(3), 1).error(), HostError::unsupported);
  EXPECT_EQ(intel.perf.open(code(0xC0 | evtsel::in_tx), 1).error(), HostError::unsupported);
  Host amd{"amd-v2"};
  EXPECT_EQ(amd.perf.open(code(0x4F2E), 1).error(), HostError::unsupported) << "no core counter counts the L3";
  EXPECT_EQ(amd.perf.open(code(0x1'0000'00C0, 0, Vendor::amd), 1).error(), HostError::unsupported);
  auto profile = find_profile("intel-v2")->profile;
  profile.events_unavailable = 1U << 6;
  Host without{profile};
  EXPECT_EQ(without.perf.open(code(0xC5), 1).error(), HostError::unsupported);
}

TEST(PerfModel, CountsAGuestOfTheOtherVendorByTheEventsMeaning) {
  Host amd{"amd-v2"};
  const HostEvent branches = amd.start(code(0xC4, 0, Vendor::intel));
  Activity a;
  a[Event::branches] = 11;
  (void)amd.perf.advance(a, Ring::user);
  EXPECT_EQ(amd.count(branches), 11U);
}

TEST(PerfModel, LinuxPseudoCodeForReferenceCyclesIsFixedCounter2sEvent) {
  Host host;
  const HostEvent a = host.start(code(0x0300, 0));
  const HostEvent b = host.start(code(0x0300, 1));
  Activity activity;
  activity[Event::ref_cycles] = 9;
  (void)host.perf.advance(activity, Ring::user);
  EXPECT_EQ(host.count(a), 9U);
  EXPECT_EQ(host.count(b), 9U);
}

TEST(PerfModel, HintsExactlyWhenThePeriodHasPassedAndStartsItAgain) {
  for (const char* name : {"intel-v1", "intel-v2", "intel-v4", "amd-k7", "amd-core", "amd-v2"}) {
    SCOPED_TRACE(name);
    Host host{name};
    const HostEvent event = host.start(code(0xC0, 5, host.pmu.profile().vendor), 100);
    EXPECT_EQ(host.perf.advance(instructions(99), Ring::user), 0U);
    EXPECT_EQ(host.perf.hints().load(), 0U);
    EXPECT_EQ(host.perf.headroom(Ring::user).instructions, 0U);
    EXPECT_EQ(host.perf.advance(instructions(1), Ring::user), 1U << 5);
    EXPECT_EQ(host.perf.take_hints(), 1U << 5);
    EXPECT_EQ(host.perf.headroom(Ring::user).instructions, 99U);
    EXPECT_EQ(host.perf.advance(instructions(100), Ring::user), 1U << 5);
    EXPECT_EQ(host.count(event), 200U);
    EXPECT_EQ(host.perf.calls().signals, 2U);
  }
}

TEST(PerfModel, ABatchOverManyPeriodsHintsOnceAndKeepsThePhase) {
  Host host;
  const HostEvent event = host.start(code(0xC0), 100);
  (void)host.perf.advance(instructions(1'234'567), Ring::user);
  EXPECT_EQ(host.count(event), 1'234'567U);
  EXPECT_EQ(host.perf.calls().signals, 1U);
  EXPECT_EQ(host.perf.headroom(Ring::user).instructions, 32U) << "the next hint is due at 1,234,600";
}

TEST(PerfModel, APeriodLongerThanTheCounterIsCountedInChunksAndHintedOnce) {
  auto profile = find_profile("intel-v2")->profile;
  profile.gp_width = 32;
  Host host{profile};
  constexpr std::uint64_t period = 10'000'000'000;
  const HostEvent event = host.start(code(0xC4), period);
  Activity step;
  step[Event::branches] = 999'999'999;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(host.perf.advance(step, Ring::user), 0U);
  step[Event::branches] = 9;
  EXPECT_EQ(host.perf.advance(step, Ring::user), 0U);
  step[Event::branches] = 1;
  EXPECT_EQ(host.perf.advance(step, Ring::user), 1U);
  EXPECT_EQ(host.count(event), period);
  EXPECT_EQ(host.perf.calls().signals, 1U);
  EXPECT_GT(host.pmu.pmis(), 1U);
}

TEST(PerfModel, AStretchLongerThanTheCounterIsStillExact) {
  auto profile = find_profile("intel-v2")->profile;
  profile.gp_width = 32;
  profile.perf_capabilities = 0;  // and without full-width writes
  Host host{profile};
  const HostEvent event = host.start(code(0xC4), 5'000'000'000);
  Activity step;
  step[Event::branches] = 23'456'789'012;
  EXPECT_EQ(host.perf.advance(step, Ring::user), 1U);
  EXPECT_EQ(host.count(event), 23'456'789'012U);
  EXPECT_EQ(host.perf.headroom(Ring::user).branches, 25'000'000'000 - 23'456'789'012U - 1);
}

TEST(PerfModel, SetPeriodRestartsTheDistanceAlsoOfAnEventThatRuns) {
  Host host;
  const HostEvent event = host.start(code(0xC0), 100);
  (void)host.perf.advance(instructions(60), Ring::user);
  ASSERT_TRUE(host.perf.set_period(event, 50).ok());
  EXPECT_EQ(host.perf.advance(instructions(49), Ring::user), 0U);
  EXPECT_EQ(host.perf.advance(instructions(1), Ring::user), 1U);
  EXPECT_EQ(host.count(event), 110U);
  EXPECT_EQ(host.perf.set_period(event, 0).error(), HostError::failed);
}

TEST(PerfModel, DisableAndEnableKeepTheRestOfThePeriod) {
  Host host;
  const HostEvent event = host.start(code(0xC0), 100);
  (void)host.perf.advance(instructions(60), Ring::user);
  ASSERT_TRUE(host.perf.disable(event).ok());
  ASSERT_TRUE(host.perf.enable(event).ok());
  EXPECT_EQ(host.perf.advance(instructions(39), Ring::user), 0U);
  EXPECT_EQ(host.perf.advance(instructions(1), Ring::user), 1U);
}

TEST(PerfModel, AHintIsNotLostWhileItsInterruptIsOnTheWay) {
  for (const char* name : {"intel-v1", "intel-v2", "amd-v2"}) {
    for (const bool stop : {false, true}) {
      Host host{name};
      const HostEvent event = host.start(code(0xC0, 0, host.pmu.profile().vendor), 100);
      (void)host.pmu.advance(instructions(130), Ring::user, Mode::guest);  // skid: the PMI comes later
      EXPECT_EQ(host.count(event), 130U);
      EXPECT_EQ(host.perf.take_hints(), 1U) << "the read finds the period passed";
      if (stop) {
        ASSERT_TRUE(host.perf.disable(event).ok());
      }
      (void)host.pmu.advance(instructions(5), Ring::user, Mode::guest);
      ASSERT_TRUE(host.pmu.take_pmi());
      EXPECT_EQ(host.perf.on_hardware_pmi(), 0U);
      EXPECT_EQ(host.perf.take_hints(), 0U) << "and only once";
      EXPECT_EQ(host.count(event), stop ? 130U : 135U);
      if (!stop) {
        EXPECT_EQ(host.perf.headroom(Ring::user).instructions, 64U);
      }
    }
  }
}

TEST(PerfModel, PeekIsFreeOrUnavailable) {
  Host host;
  const HostEvent event = host.start(code(0xC0));
  (void)host.perf.advance(instructions(42), Ring::user);
  const AccessCounts before = host.perf.accesses();
  EXPECT_EQ(host.perf.peek(event).value(), 42U);
  EXPECT_EQ(host.perf.accesses(), before);
  EXPECT_EQ(host.perf.calls().peek, 1U);
  ASSERT_TRUE(host.perf.disable(event).ok());
  EXPECT_EQ(host.perf.peek(event).value(), 42U);

  Host without{"intel-v2", {.free_reads = false}};
  const HostEvent other = without.start(code(0xC0));
  EXPECT_EQ(without.perf.peek(other).error(), HostError::unavailable);
}

TEST(PerfModel, AHandleOfAClosedEventIsRefusedAlsoWhenItsCounterServesAnother) {
  Host host;
  const HostEvent old = host.start(code(0xC0));
  host.perf.close(old);
  const HostEvent next = host.start(code(0xC0));
  EXPECT_NE(old, next);
  EXPECT_EQ(host.perf.read(old).error(), HostError::failed);
  EXPECT_EQ(host.perf.enable(old).error(), HostError::failed);
  host.perf.close(old);
  EXPECT_TRUE(host.perf.read(next).ok());
  EXPECT_EQ(host.perf.read(HostEvent::none).error(), HostError::failed);
  EXPECT_EQ(host.perf.read(static_cast<HostEvent>(31)).error(), HostError::failed);
}

TEST(PerfModel, CountsItsCallsAndTheRegisterAccessesBehindThem) {
  Host host;
  auto spent = [&, last = AccessCounts{}]() mutable {
    const AccessCounts now = host.perf.accesses();
    const AccessCounts diff{now.rdmsr - last.rdmsr, now.wrmsr - last.wrmsr, now.rdpmc - last.rdpmc};
    last = now;
    return diff;
  };
  const HostEvent event = host.perf.open(code(0xC4), 100).value();
  EXPECT_EQ(spent(), AccessCounts{});
  ASSERT_TRUE(host.perf.set_period(event, 200).ok());
  EXPECT_EQ(spent(), AccessCounts{}) << "of an event that is off";
  ASSERT_TRUE(host.perf.enable(event).ok());
  EXPECT_EQ(spent(), (AccessCounts{.wrmsr = 4})) << "all off, counter, selector, all on";
  ASSERT_TRUE(host.perf.enable(event).ok());
  EXPECT_EQ(spent(), AccessCounts{}) << "it is on already";
  ASSERT_TRUE(host.perf.set_period(event, 300).ok());
  EXPECT_EQ(spent(), (AccessCounts{.wrmsr = 5, .rdpmc = 1}));
  (void)host.perf.read(event);
  EXPECT_EQ(spent(), (AccessCounts{.rdpmc = 1}));
  ASSERT_TRUE(host.perf.disable(event).ok());
  EXPECT_EQ(spent(), (AccessCounts{.wrmsr = 3, .rdpmc = 1}));
  (void)host.perf.read(event);
  host.perf.close(event);
  EXPECT_EQ(spent(), AccessCounts{});
  EXPECT_EQ(host.perf.calls(), (HostCallCounts{.open = 1,
                                               .close = 1,
                                               .set_period = 2,
                                               .enable = 2,
                                               .disable = 1,
                                               .read = 2,
                                               .live_set_period = 1,
                                               .live_read = 1}));
  EXPECT_EQ(host.perf.cost_picoseconds(),
            host.perf.prices().picoseconds(host.perf.calls()) + host.perf.prices().picoseconds(host.perf.accesses()));
  EXPECT_GT(host.perf.cost_picoseconds(), 10'000'000U);
}

}  // namespace
}  // namespace vpmu::model
