// What LinuxPerf asks of the kernel, and what it makes of the answers.
#include "vpmu/host/linux_perf.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "host/fake_perf_kernel.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::test {
namespace {

using Source = LinuxPerf::Source;
using Reads = LinuxPerf::Reads;

constexpr HostEventSpec intel_event(std::uint64_t select, std::uint32_t counter = 0) {
  return {.select = select, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::gp(counter)};
}
constexpr HostEventSpec fixed_event(std::uint32_t number) {
  return {.select = 0, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::fixed(number)};
}

struct Host {
  explicit Host(Source source = Source::hardware, Reads reads = Reads::each, Vendor vendor = Vendor::intel)
      : perf{{.source = source, .reads = reads, .host_vendor = vendor, .system = &kernel}} {}
  HostEvent open(const HostEventSpec& spec = intel_event(0xC0), std::uint64_t period = 1000000) {
    return perf.open(spec, period).value();
  }
  FakePerfKernel::Event& only() { return kernel.events.begin()->second; }

  FakePerfKernel kernel;
  LinuxPerf perf;
};

TEST(LinuxPerf, AsksForPinnedGuestOnlyEventsOfThisThread) {
  Host host;
  host.open(intel_event(0x412E));
  const perf_event_attr& attr = host.only().attr;
  EXPECT_EQ(attr.type, PERF_TYPE_RAW);
  EXPECT_EQ(attr.config, 0x412EU);
  EXPECT_EQ(attr.sample_period, 1000000U);
  EXPECT_TRUE(attr.pinned && attr.disabled && attr.exclude_host && !attr.exclude_guest);
  EXPECT_EQ(host.only().owner.type, F_OWNER_TID);
  EXPECT_EQ(host.only().owner.pid, gettid());
  EXPECT_EQ(host.only().signal, signal_hints::default_signal());
  EXPECT_TRUE(host.only().asynchronous);
}

TEST(LinuxPerf, CountsOnlyTheRingsThatAreAskedFor) {
  for (const auto& [user, kernel] : {std::pair{true, false}, std::pair{false, true}, std::pair{true, true}}) {
    Host host;
    HostEventSpec spec = intel_event(0xC0);
    spec.user = user;
    spec.kernel = kernel;
    host.open(spec);
    EXPECT_EQ(host.only().attr.exclude_user, user ? 0U : 1U);
    EXPECT_EQ(host.only().attr.exclude_kernel, kernel ? 0U : 1U);
  }
}

TEST(LinuxPerf, RawCodesKeepEdgeInvertMaskAndTransactionsAndDropRecords) {
  constexpr std::uint64_t taken = 0xC0 | evtsel::edge | evtsel::invert | 3ULL << 24 | evtsel::in_tx | evtsel::in_tx_cp;
  Host intel;
  intel.open(intel_event(taken | evtsel::adaptive_record));
  EXPECT_EQ(intel.only().attr.config, taken);

  Host amd{Source::hardware, Reads::each, Vendor::amd};
  HostEventSpec spec = intel_event(0x1'0000'00C0);
  spec.vendor = Vendor::amd;
  amd.open(spec);
  EXPECT_EQ(amd.only().attr.config, 0x1'0000'00C0U);
}

TEST(LinuxPerf, EventsOfTheOtherVendorAreAskedForByTheirGenericName) {
  Host host{Source::hardware, Reads::each, Vendor::amd};
  host.open(intel_event(0x00C4));
  EXPECT_EQ(host.only().attr.type, PERF_TYPE_HARDWARE);
  EXPECT_EQ(host.only().attr.config, PERF_COUNT_HW_BRANCH_INSTRUCTIONS);
  EXPECT_EQ(host.perf.open(intel_event(0x01D1), 1000).error(), HostError::unsupported) << "it has no generic name";
  EXPECT_EQ(host.perf.open(intel_event(0xC0 | evtsel::edge), 1000).error(), HostError::unsupported);
}

TEST(LinuxPerf, FixedCountersAreGenericEvents) {
  for (const auto& [number, config] :
       {std::pair{0U, PERF_COUNT_HW_INSTRUCTIONS}, std::pair{1U, PERF_COUNT_HW_CPU_CYCLES},
        std::pair{2U, PERF_COUNT_HW_REF_CPU_CYCLES}}) {
    Host host;
    host.open(fixed_event(number));
    EXPECT_EQ(host.only().attr.type, PERF_TYPE_HARDWARE);
    EXPECT_EQ(host.only().attr.config, static_cast<std::uint64_t>(config));
  }
  EXPECT_EQ(Host{}.perf.open(fixed_event(3), 1000).error(), HostError::unsupported);
}

TEST(LinuxPerf, SoftwareClocksExcludeNothing) {
  for (const Source source : {Source::task_clock, Source::cpu_clock}) {
    Host host{source};
    HostEventSpec spec = intel_event(0x3C);
    spec.kernel = false;
    host.open(spec);
    EXPECT_EQ(host.only().attr.type, PERF_TYPE_SOFTWARE);
    EXPECT_EQ(host.only().attr.exclude_kernel, 0U) << "it would stop the signals while in KVM_RUN";
    EXPECT_EQ(host.only().attr.exclude_host, 0U);
  }
}

TEST(LinuxPerf, PeriodsStayWithinWhatPerfTakes) {
  Host host;
  EXPECT_FALSE(host.perf.open(intel_event(0xC0), 0).ok());
  const HostEvent event = host.open(intel_event(0xC0), 1ULL << 63);
  EXPECT_EQ(host.only().attr.sample_period, LinuxPerf::longest_period);
  ASSERT_TRUE(host.perf.set_period(event, ~0ULL).ok());
  EXPECT_EQ(host.only().attr.sample_period, LinuxPerf::longest_period);
  EXPECT_FALSE(host.perf.set_period(event, 0).ok());
  ASSERT_TRUE(host.perf.set_period(event, 1).ok());
  EXPECT_EQ(host.only().attr.sample_period, 1U) << "a hardware event may be short";
  EXPECT_EQ(host.perf.clamped(), 0U);
  EXPECT_EQ(host.kernel.mistakes, 0);
}

TEST(LinuxPerf, ShortPeriodsOfAClockAreClampedAndItSaysSo) {
  Host host{Source::task_clock};
  const HostEvent event = host.open(intel_event(0x3C, 3), 100);
  EXPECT_EQ(host.only().attr.sample_period, LinuxPerf::shortest_clock_period);
  EXPECT_EQ(host.perf.clamped(), CounterId::gp(3).mask());
  ASSERT_TRUE(host.perf.set_period(event, 60000).ok());
  EXPECT_EQ(host.only().attr.sample_period, 60000U);
  EXPECT_EQ(host.perf.clamped(), 0U);
  ASSERT_TRUE(host.perf.set_period(event, 49999).ok());
  EXPECT_EQ(host.perf.clamped(), CounterId::gp(3).mask());
  host.perf.close(event);
  EXPECT_EQ(host.perf.clamped(), 0U);
}

// --- Free reads ---

TEST(LinuxPerf, PeekAddsTheCounterToTheUserPagesOffset) {
  Host host;
  host.kernel.set_rdpmc(true);
  const HostEvent event = host.open();
  ASSERT_TRUE(host.perf.enable(event).ok());
  perf_event_mmap_page& page = host.only().page;
  page.index = 3;
  page.offset = 1000;
  host.kernel.hardware[2] = 0xFFFFFFFFFFF6;  // -10 in 48 bits
  EXPECT_EQ(host.perf.peek(event).value(), 990U);
  host.kernel.hardware[2] = 25;
  EXPECT_EQ(host.perf.peek(event).value(), 1025U);
  EXPECT_EQ(host.perf.calls().peek, 2U);
  EXPECT_EQ(host.perf.calls().read, 0U);
}

TEST(LinuxPerf, PeekReadsAgainIfThePageChangedMeanwhile) {
  Host host;
  host.kernel.set_rdpmc(true);
  const HostEvent event = host.open();
  ASSERT_TRUE(host.perf.enable(event).ok());
  host.only().page.index = 1;
  host.only().page.offset = 5;
  host.kernel.on_rdpmc = [](FakePerfKernel& kernel) {
    if (kernel.rdpmcs != 1) return;
    perf_event_mmap_page& page = kernel.events.begin()->second.page;
    page.lock += 2;
    page.offset = 700;
  };
  EXPECT_EQ(host.perf.peek(event).value(), 700U);
  EXPECT_EQ(host.kernel.rdpmcs, 2);
}

TEST(LinuxPerf, PeekOfAPausedEventNeedsNoCounter) {
  Host host;
  host.kernel.set_rdpmc(true);
  const HostEvent event = host.open();
  host.only().page.offset = 77;
  EXPECT_EQ(host.perf.peek(event).value(), 77U);
  ASSERT_TRUE(host.perf.enable(event).ok());
  EXPECT_EQ(host.perf.peek(event).error(), HostError::unavailable) << "enabled, and on no counter";
}

TEST(LinuxPerf, PeekIsUnavailableWithoutRdpmcOrUserPage) {
  Host host;
  EXPECT_EQ(host.perf.peek(host.open()).error(), HostError::unavailable);
  Host unmapped;
  unmapped.kernel.fail(PerfCall::map, ENOMEM);
  EXPECT_EQ(unmapped.perf.peek(unmapped.open()).error(), HostError::unavailable);
  Host clock{Source::task_clock};
  EXPECT_EQ(clock.perf.peek(clock.open()).error(), HostError::unavailable);
}

TEST(LinuxPerf, AGroupIsReadOnceAnExit) {
  Host host{Source::task_clock, Reads::group};
  const HostEvent a = host.open(intel_event(0x3C, 0));
  const HostEvent b = host.open(intel_event(0x3C, 1));
  ASSERT_TRUE(host.perf.enable(a).ok());
  host.kernel.happen(10);
  ASSERT_TRUE(host.perf.enable(b).ok());
  host.kernel.happen(5);
  host.perf.reset_calls();
  EXPECT_EQ(host.perf.peek(a).value(), 15U);
  EXPECT_EQ(host.perf.peek(b).value(), 5U);
  EXPECT_EQ(host.perf.system_calls(), 1U);
  host.kernel.happen(1);
  EXPECT_EQ(host.perf.peek(a).value(), 15U) << "the same exit";
  host.perf.guest_left();
  EXPECT_EQ(host.perf.peek(b).value(), 6U);
  EXPECT_EQ(host.perf.peek(a).value(), 16U);
  EXPECT_EQ(host.perf.system_calls(), 2U);
}

TEST(LinuxPerf, AGroupThatLostItsCountersIsLost) {
  Host host{Source::hardware, Reads::group};
  const HostEvent event = host.open();
  host.kernel.take_away();
  EXPECT_EQ(host.perf.peek(event).error(), HostError::lost);
  EXPECT_EQ(host.perf.read(event).error(), HostError::lost);
}

TEST(LinuxPerf, WithoutALeaderNothingOpens) {
  FakePerfKernel kernel;
  kernel.fail(PerfCall::open, EACCES);
  LinuxPerf perf{{.reads = Reads::group, .system = &kernel}};
  EXPECT_EQ(perf.open(intel_event(0xC0), 1000).error(), HostError::not_permitted);
}

// --- Failures ---

TEST(LinuxPerf, EveryErrorNumberHasItsReason) {
  constexpr std::pair<int, HostError> reasons[] = {
      {EBUSY, HostError::no_counter},    {ENOSPC, HostError::no_counter},   {EMFILE, HostError::no_resources},
      {ENFILE, HostError::no_resources}, {ENOMEM, HostError::no_resources}, {EACCES, HostError::not_permitted},
      {EPERM, HostError::not_permitted}, {ENOENT, HostError::unsupported},  {EOPNOTSUPP, HostError::unsupported},
      {EINVAL, HostError::unsupported},  {ENODEV, HostError::unsupported},  {EIO, HostError::failed}};
  for (const auto& [number, reason] : reasons) {
    Host host;
    const HostEvent event = host.open();
    host.kernel.fail(PerfCall::open, number);
    EXPECT_EQ(host.perf.open(intel_event(0x3C), 1000).error(), reason) << strerror(number);
    host.kernel.fail(PerfCall::enable, number);
    EXPECT_EQ(host.perf.enable(event).error(), reason);
    host.kernel.fail(PerfCall::disable, number);
    EXPECT_EQ(host.perf.disable(event).error(), reason);
    host.kernel.fail(PerfCall::period, number);
    EXPECT_EQ(host.perf.set_period(event, 1000).error(), reason);
    host.kernel.fail(PerfCall::read, number);
    EXPECT_EQ(host.perf.read(event).error(), reason);
  }
}

TEST(LinuxPerf, ACallThatASignalInterruptsIsMadeAgain) {
  Host host;
  for (const PerfCall call : {PerfCall::open, PerfCall::set_owner, PerfCall::set_signal, PerfCall::set_flags,
                              PerfCall::enable, PerfCall::disable, PerfCall::period, PerfCall::read}) {
    host.kernel.fail(call, EINTR, 3);
  }
  const HostEvent event = host.open();
  EXPECT_TRUE(host.perf.enable(event).ok());
  EXPECT_TRUE(host.perf.set_period(event, 5000).ok());
  EXPECT_TRUE(host.perf.disable(event).ok());
  EXPECT_TRUE(host.perf.read(event).ok());
}

TEST(LinuxPerf, AnInterruptedCloseIsNotMadeAgain) {
  Host host;
  const HostEvent event = host.open();
  host.kernel.fail(PerfCall::close, EINTR, 3);
  host.perf.close(event);
  EXPECT_TRUE(host.kernel.events.empty());
  EXPECT_EQ(host.kernel.mistakes, 0) << "the number may be another file's by now";
}

TEST(LinuxPerf, AnEventThatReadsNothingIsLost) {
  Host host;
  const HostEvent event = host.open();
  host.kernel.take_away();
  EXPECT_EQ(host.perf.read(event).error(), HostError::lost);
}

TEST(LinuxPerf, WhatFailsHalfWayLeavesNothingOpen) {
  for (const PerfCall call : {PerfCall::set_owner, PerfCall::set_signal, PerfCall::set_flags, PerfCall::id}) {
    for (const Reads reads : {Reads::each, Reads::group}) {
      if (call == PerfCall::id && reads == Reads::each) continue;
      Host host{Source::task_clock, reads};
      const std::size_t before = host.kernel.events.size();
      host.kernel.fail(call, EPERM);
      EXPECT_EQ(host.perf.open(intel_event(0x3C), 100000).error(), HostError::not_permitted);
      EXPECT_EQ(host.kernel.events.size(), before);
      EXPECT_TRUE(host.perf.open(intel_event(0x3C), 100000).ok());
    }
  }
}

TEST(LinuxPerf, HoldsAsManyEventsAsThereAreCountersAndGivesAllBack) {
  FakePerfKernel kernel;
  {
    LinuxPerf perf{{.system = &kernel}};
    HostEvent first{};
    for (std::uint32_t n = 0; n < max_counters; ++n) {
      const auto opened = perf.open(intel_event(0xC0), 1000);
      ASSERT_TRUE(opened.ok());
      if (n == 0) first = *opened;
    }
    EXPECT_EQ(perf.open(intel_event(0xC0), 1000).error(), HostError::no_resources);
    perf.close(first);
    EXPECT_TRUE(perf.open(intel_event(0xC0), 1000).ok());
  }
  EXPECT_TRUE(kernel.events.empty());
  EXPECT_EQ(kernel.maps, 0);
  EXPECT_EQ(kernel.mistakes, 0);
}

TEST(LinuxPerf, CallsOnNoEventFail) {
  Host host;
  const HostEvent event = host.open();
  host.perf.close(event);
  host.perf.close(event);
  for (const HostEvent gone : {event, HostEvent::none, static_cast<HostEvent>(1000)}) {
    EXPECT_FALSE(host.perf.enable(gone).ok());
    EXPECT_FALSE(host.perf.disable(gone).ok());
    EXPECT_FALSE(host.perf.set_period(gone, 5).ok());
    EXPECT_FALSE(host.perf.read(gone).ok());
    EXPECT_FALSE(host.perf.peek(gone).ok());
  }
  EXPECT_EQ(host.kernel.mistakes, 0);
}

// --- Signals ---

TEST(LinuxPerf, ASignalHintsTheCounterOfItsDescriptorAndKicksTheVcpu) {
  FakePerfKernel kernel;
  std::uint8_t kick = 0;
  LinuxPerf perf{{.kick = &kick, .host_vendor = Vendor::intel, .system = &kernel}};
  const HostEvent a = *perf.open(intel_event(0xC0, 2), 100);
  const HostEvent b = *perf.open(intel_event(0xC0, 5), 1000);
  ASSERT_TRUE(perf.enable(a).ok() && perf.enable(b).ok());
  kernel.happen(99);
  EXPECT_EQ(perf.hints().load(), 0U);
  EXPECT_EQ(kick, 0);
  kernel.happen(1);
  EXPECT_EQ(perf.take_hints(), CounterId::gp(2).mask());
  EXPECT_EQ(kick, 1);
  EXPECT_EQ(perf.calls().signals, 1U);
}

TEST(LinuxPerf, PlainSigioHintsAllOfThem) {
  Host host;
  const HostEvent a = host.open(intel_event(0xC0, 0), 100);
  host.open(intel_event(0xC0, 7), 1000000);
  ASSERT_TRUE(host.perf.enable(a).ok());
  host.kernel.set_signals(FakePerfKernel::Signals::overflowing);
  host.kernel.happen(100);
  EXPECT_EQ(host.perf.take_hints(), CounterId::gp(0).mask() | CounterId::gp(7).mask());
}

TEST(LinuxPerf, ASignalOfAClosedEventIsNobodys) {
  Host host;
  const HostEvent event = host.open();
  const int fd = host.kernel.events.begin()->first;
  host.perf.close(event);
  FakePerfKernel::send(fd, 0);
  FakePerfKernel::send(-1, 0);
  FakePerfKernel::send(signal_hints::max_descriptors, 0);
  EXPECT_EQ(host.perf.hints().load(), 0U);
}

int passed_on = 0;

TEST(LinuxPerf, AHandlerThatWasThereGetsWhatIsNotOurs) {
  const int signal = SIGRTMIN + 9;
  struct sigaction action{};
  action.sa_handler = [](int) { ++passed_on; };
  sigaction(signal, &action, nullptr);
  FakePerfKernel kernel;
  LinuxPerf perf{{.signal = signal, .host_vendor = Vendor::intel, .system = &kernel}};
  const HostEvent event = *perf.open(intel_event(0xC0, 0), 100);
  ASSERT_TRUE(perf.enable(event).ok());
  kernel.happen(100);
  EXPECT_EQ(perf.take_hints(), 1U);
  EXPECT_EQ(passed_on, 0);
  raise(signal);
  EXPECT_EQ(passed_on, 1);
}

TEST(LinuxPerf, RefusesSignalsThatCantWork) {
  for (const int signal : {SIGKILL, SIGIO, -1, 1000}) {
    FakePerfKernel kernel;
    LinuxPerf perf{{.signal = signal, .system = &kernel}};
    EXPECT_NE(perf.signal_error(), 0);
    EXPECT_EQ(perf.open(intel_event(0xC0), 1000).error(), HostError::failed);
  }
}

}  // namespace
}  // namespace vpmu::test
