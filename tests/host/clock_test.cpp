// Cycles from the vCPU thread's own time.
#include "vpmu/host/clock.hpp"

#include <gtest/gtest.h>

#include <utility>

#include "host/fake_clock.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::test {
namespace {

constexpr std::uint64_t cycles_code = 0x3C;
constexpr HostEventSpec cycles(std::uint32_t counter = 0) {
  return {
      .select = cycles_code, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::gp(counter)};
}

struct Host {
  explicit Host(std::uint64_t cycles_a_ns = 1) : time{cycles_a_ns}, clock{{.kick = &kick, .system = &time}} {}
  HostEvent start(std::uint64_t period, std::uint32_t counter = 0) {
    const HostEvent event = clock.open(cycles(counter), period).value();
    EXPECT_TRUE(clock.enable(event).ok());
    return event;
  }
  void guest(std::uint64_t ns) {
    clock.guest_entered();
    time.run(ns);
    clock.guest_left();
  }
  std::uint64_t count(HostEvent event) { return clock.peek(event).value(); }

  FakeClock time;
  std::uint8_t kick = 0;
  ClockHost clock;
};

// --- What counts ---

TEST(Clock, CountsCoreAndReferenceCyclesAndNothingElse) {
  Host host;
  for (const std::uint64_t code : {0x003CULL, 0x013CULL}) {
    HostEventSpec spec = cycles();
    spec.select = code;
    EXPECT_TRUE(host.clock.open(spec, 1000).ok());
  }
  for (const std::uint64_t code : {0x00C0ULL, 0x00C4ULL, 0x412EULL, 0x3CULL | evtsel::edge, 0x3CULL | 1ULL << 24}) {
    HostEventSpec spec = cycles();
    spec.select = code;
    EXPECT_EQ(host.clock.open(spec, 1000).error(), HostError::unsupported) << code;
  }
  HostEventSpec amd = cycles();
  amd.vendor = Vendor::amd;
  EXPECT_EQ(host.clock.open(amd, 1000).error(), HostError::unsupported) << "0x3C means nothing there";
  amd.select = 0x76;
  EXPECT_TRUE(host.clock.open(amd, 1000).ok());
  for (const auto& [number, known] : {std::pair{0U, false}, {1U, true}, {2U, true}, {3U, false}}) {
    HostEventSpec fixed = cycles();
    fixed.select = 0;
    fixed.counter = CounterId::fixed(number);
    EXPECT_EQ(host.clock.open(fixed, 1000).ok(), known) << number;
  }
}

TEST(Clock, CantTellUserFromKernel) {
  Host host;
  HostEventSpec spec = cycles();
  spec.kernel = false;
  EXPECT_EQ(host.clock.open(spec, 1000).error(), HostError::no_privilege_filter);
  spec = cycles();
  spec.user = false;
  EXPECT_EQ(host.clock.open(spec, 1000).error(), HostError::no_privilege_filter);
}

TEST(Clock, OnlyTimeInTheGuestCounts) {
  Host host;
  const HostEvent event = host.start(1ULL << 40);
  host.guest(500);
  host.time.run(3000);
  host.guest(700);
  host.time.run(100);
  EXPECT_EQ(host.count(event), 1200U);
}

TEST(Clock, CountsAtTheRateOfTheTimeStampCounter) {
  Host host{3};
  const HostEvent event = host.start(1500000);
  EXPECT_EQ(host.clock.tsc_hz(), 3000000000U);
  EXPECT_EQ(host.time.only().first, 500000U) << "timers are set in ns";
  host.clock.guest_entered();
  host.time.run(100000);
  host.time.stall(200000);
  host.clock.guest_left();
  EXPECT_EQ(host.count(event), 300000U);
}

TEST(Clock, HaltAndPreemptionInTheGuestDoNotCount) {
  Host host;
  const HostEvent event = host.start(1ULL << 40);
  host.clock.guest_entered();
  host.time.run(10000);
  host.time.stall(5000000);
  host.time.run(10000);
  host.clock.guest_left();
  EXPECT_EQ(host.count(event), 20000U);
}

TEST(Clock, PreemptionOutsideTheGuestIsNotTakenOffTheGuestsTime) {
  Host host;
  const HostEvent event = host.start(1ULL << 40);
  host.guest(30000);
  host.time.run(1000);
  host.time.stall(9000000);
  host.time.run(1000);
  host.guest(30000);
  EXPECT_EQ(host.count(event), 60000U);
}

TEST(Clock, ShortPreemptionsAreBelievedAndMadeUpForAtTheNextLook) {
  Host host;
  const HostEvent event = host.start(1ULL << 40);
  host.clock.guest_entered();
  host.time.run(1000);
  host.time.stall(3000);
  host.clock.guest_left();
  EXPECT_EQ(host.count(event), 4000U) << "within Options::trusted_ns";
  host.guest(100000);
  EXPECT_EQ(host.count(event), 101000U);
}

TEST(Clock, CpuTimeThatComesInStepsIsTakenOffTheGuestOnceAndNotAgainAndAgain) {
  Host host;
  const HostEvent event = host.start(1ULL << 40);
  constexpr std::uint64_t step = 8000;
  constexpr std::uint64_t stretch = 100000;
  for (std::uint64_t n = 0; n < 100; ++n) {
    host.time.cpu_behind_ns = n % 2 == 0 ? 0 : step;
    host.guest(stretch);
  }
  EXPECT_LE(host.count(event), 100 * stretch);
  EXPECT_GE(host.count(event), 100 * stretch - step);
}

TEST(Clock, ShortIntervalsCostNoSystemCall) {
  Host host;
  host.start(1ULL << 40);
  host.clock.reset_calls();
  for (int n = 0; n < 1000; ++n) {
    host.guest(5000);
    host.time.run(2000);
  }
  EXPECT_EQ(host.clock.system_calls(), 0U);
}

TEST(Clock, WithNothingTrustedEveryIntervalIsLookedAt) {
  FakeClock time;
  ClockHost clock{{.tsc_hz = 1000000000, .trusted_ns = 0, .system = &time}};
  const HostEvent event = clock.open(cycles(), 1ULL << 40).value();
  ASSERT_TRUE(clock.enable(event).ok());
  clock.guest_entered();
  time.run(100);
  time.stall(50);
  clock.guest_left();
  EXPECT_EQ(clock.peek(event).value(), 100U);
}

TEST(Clock, APausedEventStandsStillAndKeepsItsRemainder) {
  Host host;
  const HostEvent a = host.start(100000, 0);
  const HostEvent b = host.start(1ULL << 40, 1);
  host.guest(60000);
  ASSERT_TRUE(host.clock.disable(a).ok());
  host.guest(500000);
  EXPECT_EQ(host.count(a), 60000U);
  EXPECT_EQ(host.count(b), 560000U);
  ASSERT_TRUE(host.clock.enable(a).ok());
  host.guest(39999);
  EXPECT_EQ(host.clock.take_hints(), 0U);
  host.guest(1);
  EXPECT_EQ(host.clock.take_hints(), 1U);
  EXPECT_EQ(host.count(a), 100000U);
}

TEST(Clock, WithoutAnEventEntriesAndExitsDoNothing) {
  Host host;
  host.guest(1000000);
  EXPECT_EQ(host.time.cpu_reads, 0);
  const HostEvent event = host.start(1000000);
  EXPECT_EQ(host.count(event), 0U);
  host.clock.close(event);
  EXPECT_TRUE(host.time.timers.empty());
}

// --- Hints ---

TEST(Clock, TheTimerIsSetOnceAPeriodAndKicksTheVcpu) {
  Host host;
  const HostEvent event = host.start(200000, 2);
  EXPECT_EQ(host.time.sets, 1);
  EXPECT_EQ(host.time.only().first, 200000U);
  host.clock.guest_entered();
  host.time.run(199999);
  EXPECT_EQ(host.kick, 0);
  host.time.run(2);
  EXPECT_EQ(host.kick, 1);
  host.clock.guest_left();
  EXPECT_EQ(host.clock.take_hints(), CounterId::gp(2).mask());
  ASSERT_TRUE(host.clock.set_period(event, 200000).ok());
  EXPECT_EQ(host.time.sets, 2);
  EXPECT_EQ(host.clock.calls().signals, 1U);
}

TEST(Clock, AnExitSeesWhatIsDueWithoutATimer) {
  Host host;
  host.start(200000);
  host.time.lose_signals(true);
  host.guest(200000);
  EXPECT_EQ(host.clock.take_hints(), 1U);
}

TEST(Clock, ATimerThatComesEarlyIsSetForTheRest) {
  Host host;
  host.start(1000000);
  host.guest(700000);
  host.time.run(300000);  // the VMM's own time: the timer comes now
  EXPECT_EQ(host.kick, 1);
  host.clock.guest_entered();
  EXPECT_EQ(host.clock.take_hints(), 0U);
  EXPECT_EQ(host.time.only().first, 300000U);
  host.time.run(300000);
  host.clock.guest_left();
  EXPECT_EQ(host.clock.take_hints(), 1U);
}

TEST(Clock, AHaltedGuestIsWokenSeldom) {
  Host host;
  host.start(60000);
  host.clock.guest_entered();
  host.time.run(1000);
  int wakes = 0;
  for (int ms = 0; ms < 1000; ++ms) {
    host.time.stall(1000000);
    if (std::exchange(host.kick, 0) == 0) continue;
    ++wakes;
    host.clock.guest_left();
    host.clock.guest_entered();
  }
  EXPECT_LE(wakes, 1000 / 10 + 2);
  host.time.run(60000);
  host.clock.guest_left();
  EXPECT_EQ(host.clock.take_hints(), 1U) << "and it is still sampled";
}

TEST(Clock, NoTimerIsSetForLessThanFiftyMicrosecondsAndItSaysSo) {
  Host host;
  const HostEvent event = host.start(1000, 4);
  EXPECT_EQ(host.time.only().first, ClockHost::shortest_timer_ns);
  EXPECT_EQ(host.clock.clamped(), CounterId::gp(4).mask());
  ASSERT_TRUE(host.clock.set_period(event, 60000).ok());
  EXPECT_EQ(host.clock.clamped(), 0U);
}

TEST(Clock, ThePeriodStartsAgainByItself) {
  Host host;
  host.start(100000);
  std::uint64_t hints = 0;
  for (int n = 0; n < 100; ++n) {
    host.guest(10000);
    hints += host.clock.take_hints() != 0 ? 1 : 0;
  }
  EXPECT_EQ(hints, 10U);
}

TEST(Clock, ATimerOfAPausedEventIsStoppedWhenItComes) {
  Host host;
  const HostEvent a = host.start(100000, 0);
  host.start(1ULL << 40, 1);
  ASSERT_TRUE(host.clock.disable(a).ok());
  const int sets = host.time.sets;
  host.guest(150000);
  EXPECT_EQ(host.time.sets, sets + 1);
  EXPECT_EQ(host.time.only().at, 0U);
  EXPECT_EQ(host.clock.take_hints(), 0U);
}

// --- Failures ---

TEST(Clock, RefusalsHaveTheirReason) {
  constexpr std::pair<int, HostError> reasons[] = {{EAGAIN, HostError::no_resources}, {ENOMEM, HostError::no_resources},
                                                   {EPERM, HostError::not_permitted}, {ENOSYS, HostError::unsupported},
                                                   {EINVAL, HostError::unsupported},  {EIO, HostError::failed}};
  for (const auto& [number, reason] : reasons) {
    Host host;
    const HostEvent event = host.start(1000000);
    host.time.fail_create(number);
    EXPECT_EQ(host.clock.open(cycles(1), 1000).error(), reason);
    host.time.fail_set(number);
    EXPECT_EQ(host.clock.set_period(event, 5000).error(), reason);
  }
}

TEST(Clock, CallsOnNoEventFail) {
  Host host;
  const HostEvent event = host.start(1000);
  EXPECT_FALSE(host.clock.set_period(event, 0).ok());
  EXPECT_FALSE(host.clock.open(cycles(), 0).ok());
  host.clock.close(event);
  host.clock.close(event);
  for (const HostEvent gone : {event, HostEvent::none, static_cast<HostEvent>(1000)}) {
    EXPECT_FALSE(host.clock.enable(gone).ok());
    EXPECT_FALSE(host.clock.disable(gone).ok());
    EXPECT_FALSE(host.clock.set_period(gone, 5).ok());
    EXPECT_FALSE(host.clock.peek(gone).ok());
  }
}

// --- A guest on it ---

struct Guest : Host {
  explicit Guest(const char* policy)
      : backing{clock}, pmu{find_profile("intel-v2")->profile, backing, find_policy(policy)->policy} {}
  void write(Msr msr, std::uint64_t value) { EXPECT_TRUE(pmu.write_msr(msr, value).ok()); }
  void reload(std::uint32_t period) { write(ia32_pmc[0], std::uint32_t{0} - period); }
  std::uint64_t read(Msr msr) { return pmu.read_msr(msr).value(); }
  void run(std::uint64_t ns) {
    enter();
    clock.guest_entered();
    time.run(ns);
    clock.guest_left();
    pmu.leave();
  }
  void enter() { pmis += pmu.enter() == EntryAction::inject_pmi ? 1 : 0; }
  EmulatedBacking backing;
  VirtualPmu pmu;
  std::uint64_t pmis = 0;
};

constexpr std::uint64_t sampling = cycles_code | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;

TEST(ClockGuest, SamplesUnderEveryPolicyWithTheSameCounts) {
  for (const NamedPolicy& policy : named_policies()) {
    SCOPED_TRACE(policy.name);
    Guest guest{policy.name};
    constexpr std::uint32_t period = 1000000;
    guest.write(ia32_perfevtsel[0], sampling);
    guest.write(ia32_perfevtsel[1], sampling);
    guest.reload(period);
    for (int n = 0; n < 10; ++n) {
      guest.run(period);
      guest.run(0);
      guest.write(Msr::ia32_perf_global_ctrl, 0);
      guest.run(3000);
      EXPECT_EQ(guest.read(Msr::ia32_perf_global_status), 1U);
      guest.write(Msr::ia32_perf_global_ovf_ctrl, 1);
      guest.reload(period);
      guest.write(Msr::ia32_perf_global_ctrl, 3);
    }
    guest.enter();
    EXPECT_EQ(guest.pmis, 10U);
    EXPECT_EQ(guest.read(ia32_pmc[1]), 10U * period);
  }
}

TEST(ClockGuest, BestNeedsOneSystemCallAPmiForItsCounterAndOneLookAtTheCpuTime) {
  Guest guest{"best"};
  constexpr std::uint32_t period = 1000000;
  for (std::uint32_t n = 0; n < 8; ++n) guest.write(ia32_perfevtsel[n], sampling);
  guest.reload(period);
  guest.run(10);
  guest.clock.reset_calls();
  for (int n = 0; n < 10; ++n) {
    guest.run(period);
    guest.run(0);
    guest.write(Msr::ia32_perf_global_ctrl, 0);
    guest.run(3000);
    guest.reload(period);
    guest.write(Msr::ia32_perf_global_ctrl, 0xFF);
  }
  EXPECT_LE(guest.clock.system_calls(), 2 * 10U);
}

TEST(ClockGuest, WhatItCantCountShowsInHealth) {
  Guest guest{"best"};
  guest.write(ia32_perfevtsel[0], sampling & ~evtsel::user);
  guest.write(ia32_perfevtsel[1], 0xC0 | evtsel::user | evtsel::kernel | evtsel::enable);
  guest.write(ia32_perfevtsel[2], sampling);
  guest.run(1000);
  EXPECT_EQ(guest.pmu.health(CounterId::gp(0)), Health::no_privilege_filter);
  EXPECT_EQ(guest.pmu.health(CounterId::gp(1)), Health::unsupported);
  EXPECT_EQ(guest.pmu.health(CounterId::gp(2)), Health::counting);
  EXPECT_EQ(guest.read(ia32_pmc[2]), 1000U);
}

TEST(ClockGuest, LivesWithTimersThatFail) {
  for (const int error : {EAGAIN, EPERM, EINVAL}) {
    for (const NamedPolicy& policy : named_policies()) {
      Guest guest{policy.name};
      guest.write(ia32_perfevtsel[0], sampling);
      guest.run(1000);
      guest.time.fail_set(error);
      guest.time.fail_create(error);
      guest.reload(1000000);
      guest.run(1000);
      EXPECT_NE(guest.pmu.health(CounterId::gp(0)), Health::counting) << policy.name;
      EXPECT_EQ(guest.read(ia32_perfevtsel[0]), sampling);
      guest.time.fail_set(0);
      guest.time.fail_create(0);
      guest.pmu.sched_out();
      guest.run(1000);
      EXPECT_EQ(guest.pmu.health(CounterId::gp(0)), Health::counting) << policy.name;
    }
  }
}

}  // namespace
}  // namespace vpmu::test
