// Whatever a host call answers and whatever becomes of a signal, the guest's registers stay coherent, the VMM lives,
// and health says why.
#include <gtest/gtest.h>

#include "host/fake_perf_kernel.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/host/linux_perf.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::test {
namespace {

using Signals = FakePerfKernel::Signals;

constexpr std::uint64_t sampling = 0xC0 | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;
constexpr std::uint64_t width48 = (1ULL << 48) - 1;
constexpr std::uint64_t period = 1000;

/// A guest that samples with counter 0 and has counter 1 resident.
struct Guest {
  explicit Guest(LinuxPerf::Reads reads = LinuxPerf::Reads::each, const char* policy = "best")
      : perf{{.reads = reads, .host_vendor = Vendor::intel, .system = &kernel}},
        backing{perf},
        pmu{find_profile("intel-v2")->profile, backing, find_policy(policy)->policy} {}

  void start() {
    write(ia32_perfevtsel[0], sampling);
    write(ia32_perfevtsel[1], sampling);
    reload();
  }
  void reload() { write(ia32_pmc[0], static_cast<std::uint32_t>(-period)); }
  void write(Msr msr, std::uint64_t value) { EXPECT_TRUE(pmu.write_msr(msr, value).ok()); }
  std::uint64_t read(Msr msr) { return pmu.read_msr(msr).value(); }
  void enter() { pmis += pmu.enter() == EntryAction::inject_pmi ? 1 : 0; }
  void leave() {
    perf.guest_left();
    pmu.leave();
  }
  void run(std::uint64_t events) {
    enter();
    kernel.happen(events);
    leave();
  }
  void handle() {
    write(Msr::ia32_perf_global_ctrl, 0);
    run(0);
    const std::uint64_t status = read(Msr::ia32_perf_global_status);
    write(Msr::ia32_perf_global_ovf_ctrl, status);
    EXPECT_EQ(read(Msr::ia32_perf_global_status), 0U);
    reload();
    write(Msr::ia32_perf_global_ctrl, 0xFF);
    enter();
  }
  /// What a guest can rely on, whatever the host does.
  void expect_coherent() {
    EXPECT_EQ(read(ia32_perfevtsel[0]), sampling);
    EXPECT_EQ(read(Msr::ia32_perf_global_ctrl), 0xFFU);
    EXPECT_EQ(read(Msr::ia32_perf_global_status) & ~3ULL, 0U);
    EXPECT_LE(read(ia32_pmc[0]), width48);
    write(ia32_pmc[3], 123);
    EXPECT_EQ(read(ia32_pmc[3]), 123U);
    EXPECT_EQ(kernel.mistakes, 0);
  }
  Health health(std::uint32_t counter = 0) { return pmu.health(CounterId::gp(counter)); }

  FakePerfKernel kernel;
  LinuxPerf perf;
  EmulatedBacking backing;
  VirtualPmu pmu;
  std::uint64_t pmis = 0;
};

constexpr std::pair<int, Health> refusals[] = {
    {EBUSY, Health::no_counter},    {ENOSPC, Health::no_counter},      {EMFILE, Health::no_resources},
    {ENOMEM, Health::no_resources}, {EACCES, Health::not_permitted},   {EPERM, Health::not_permitted},
    {ENOENT, Health::unsupported},  {EOPNOTSUPP, Health::unsupported}, {EINVAL, Health::unsupported}};

constexpr const char* all_policies[] = {"before-s0", "before-s1", "before-s2", "before-s4", "best"};
constexpr LinuxPerf::Reads all_reads[] = {LinuxPerf::Reads::each, LinuxPerf::Reads::group};

template <class Test>
void with_every_policy(Test&& test) {
  for (const char* policy : all_policies) {
    for (const LinuxPerf::Reads reads : all_reads) {
      SCOPED_TRACE(policy);
      Guest guest{reads, policy};
      test(guest);
      guest.expect_coherent();
    }
  }
}

TEST(HostFaults, ARefusedOpenShowsInHealthAndEndsWithTheNextSliceThatHasRoom) {
  for (const auto& [error, health] : refusals) {
    with_every_policy([&](Guest& guest) {
      guest.kernel.fail(PerfCall::open, error, 1000);
      guest.start();
      guest.run(10);
      EXPECT_EQ(guest.health(), health) << strerror(error);
      EXPECT_EQ(guest.health(1), health);
      guest.expect_coherent();
      guest.kernel.fail(PerfCall::open, 0, 0);
      guest.pmu.sched_out();
      guest.run(10);
      EXPECT_EQ(guest.health(), Health::counting);
      EXPECT_EQ(guest.read(ia32_pmc[1]), 10U) << "what happened before was not counted";
    });
  }
}

TEST(HostFaults, ARefusalOfAnyOtherCallCostsTheEventAndNotTheGuest) {
  for (const PerfCall call : {PerfCall::enable, PerfCall::disable, PerfCall::period, PerfCall::read,
                              PerfCall::set_owner, PerfCall::set_signal, PerfCall::set_flags}) {
    for (const auto& [error, health] : refusals) {
      with_every_policy([&](Guest& guest) {
        guest.start();
        guest.run(10);
        const std::uint64_t before = guest.read(ia32_pmc[1]);
        guest.kernel.fail(call, error, 1000);
        guest.run(period);
        guest.enter();
        guest.handle();
        EXPECT_GE(guest.read(ia32_pmc[1]), before) << "a count never goes back";
        EXPECT_TRUE(guest.health() == Health::counting || guest.health() == health) << describe(guest.health());
        guest.expect_coherent();
        guest.kernel.fail(call, 0, 0);
        guest.pmu.sched_out();
        guest.run(10);
        EXPECT_EQ(guest.health(), Health::counting);
        EXPECT_EQ(guest.health(1), Health::counting);
        guest.reload();
        const std::uint64_t pmis = guest.pmis;
        guest.run(period);
        guest.enter();
        EXPECT_EQ(guest.pmis, pmis + 1) << "it samples again";
      });
    }
  }
}

TEST(HostFaults, InterruptedCallsGoUnnoticed) {
  for (const PerfCall call : {PerfCall::open, PerfCall::enable, PerfCall::disable, PerfCall::period, PerfCall::read,
                              PerfCall::set_owner, PerfCall::set_signal, PerfCall::set_flags}) {
    with_every_policy([&](Guest& guest) {
      guest.kernel.fail(call, EINTR, 5);
      guest.start();
      for (int n = 0; n < 3; ++n) {
        guest.run(period);
        guest.enter();
        guest.handle();
        guest.kernel.fail(call, EINTR, 5);
      }
      EXPECT_EQ(guest.pmis, 3U);
      EXPECT_EQ(guest.read(ia32_pmc[1]), 3 * period);
      EXPECT_EQ(guest.health(), Health::counting);
    });
  }
}

TEST(HostFaults, AnEventThatTheHostTakesAwayIsLostAndComesBack) {
  with_every_policy([&](Guest& guest) {
    guest.start();
    guest.run(10);
    EXPECT_EQ(guest.read(ia32_pmc[1]), 10U);
    guest.enter();
    guest.kernel.take_away();
    guest.leave();
    EXPECT_EQ(guest.read(ia32_pmc[1]), 10U) << "what was counted stays";
    EXPECT_EQ(guest.health(1), Health::lost);
    guest.expect_coherent();
    for (auto& [fd, event] : guest.kernel.events) event.in_error = false;
    guest.pmu.sched_out();
    guest.run(10);
    EXPECT_EQ(guest.health(1), Health::counting);
    EXPECT_EQ(guest.read(ia32_pmc[1]), 20U);
  });
}

TEST(HostFaults, ALateSignalMakesTheInterruptLateAndNothingElse) {
  with_every_policy([&](Guest& guest) {
    guest.start();
    guest.kernel.set_signals(Signals::held);
    guest.run(period + 5);
    guest.enter();
    EXPECT_EQ(guest.pmis, 0U);
    guest.kernel.send_held();
    guest.run(0);
    guest.enter();
    EXPECT_EQ(guest.pmis, 1U);
    EXPECT_EQ(guest.read(ia32_pmc[0]), 5U);
    EXPECT_EQ(guest.read(Msr::ia32_perf_global_status), 1U);
  });
}

TEST(HostFaults, MergedSignalsAreOneInterruptWithBothStatusBits) {
  with_every_policy([&](Guest& guest) {
    guest.start();
    guest.write(ia32_pmc[1], static_cast<std::uint32_t>(-period));
    guest.kernel.set_signals(Signals::held);
    guest.run(2 * period);
    guest.kernel.send_held();
    guest.run(0);
    guest.enter();
    EXPECT_EQ(guest.pmis, 1U);
    EXPECT_EQ(guest.read(Msr::ia32_perf_global_status), 3U);
    EXPECT_EQ(guest.read(ia32_pmc[0]), period);
    EXPECT_EQ(guest.read(ia32_pmc[1]), period);
  });
}

TEST(HostFaults, ALostSignalIsMadeUpForByTheNextRead) {
  with_every_policy([&](Guest& guest) {
    guest.start();
    guest.kernel.set_signals(Signals::lost);
    guest.run(period + 7);
    EXPECT_EQ(guest.read(ia32_pmc[0]), 7U);
    EXPECT_EQ(guest.read(Msr::ia32_perf_global_status), 1U);
    guest.enter();
    EXPECT_EQ(guest.pmis, 1U);
  });
}

TEST(HostFaults, AFullSignalQueueSendsPlainSigioAndNoOverflowIsLost) {
  with_every_policy([&](Guest& guest) {
    guest.start();
    guest.kernel.set_signals(Signals::overflowing);
    for (int n = 0; n < 3; ++n) {
      guest.run(period);
      guest.enter();
      guest.handle();
    }
    EXPECT_EQ(guest.pmis, 3U);
    EXPECT_EQ(guest.read(ia32_pmc[1]), 3 * period);
  });
}

TEST(HostFaults, SignalsWithoutAnyReasonCostALookAndNothingElse) {
  with_every_policy([&](Guest& guest) {
    guest.start();
    guest.run(10);
    for (int n = 0; n < 10; ++n) {
      for (const auto& [fd, event] : guest.kernel.events) FakePerfKernel::send(fd, event.signal);
      guest.run(1);
    }
    EXPECT_EQ(guest.pmis, 0U);
    EXPECT_EQ(guest.read(ia32_pmc[1]), 20U);
  });
}

TEST(HostFaults, AResetGivesEverythingBack) {
  with_every_policy([&](Guest& guest) {
    guest.start();
    guest.run(10);
    guest.pmu.reset();
    std::size_t open = 0;
    for (const auto& [fd, event] : guest.kernel.events) open += event.attr.config == PERF_COUNT_SW_DUMMY ? 0 : 1;
    EXPECT_EQ(open, 0U);
    EXPECT_EQ(guest.kernel.maps, 0);
    guest.start();
  });
}

}  // namespace
}  // namespace vpmu::test
