// The real hosts on this system: signals, threads, and what is left behind. Skipped where the system lacks one.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>
#include <x86intrin.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/host/clock.hpp"
#include "vpmu/host/linux_perf.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};

/// SIGIOs seen by a handler of the VMM's own that was there before the hosts'.
std::atomic<int> sigios{0};
const bool watching_sigio = std::signal(SIGIO, [](int) { sigios.fetch_add(1); }) != SIG_ERR;
}  // namespace

// Not inlined, or g++ takes one half of a pair for the library's (-Wmismatched-new-delete).
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;  // NOLINT(cppcoreguidelines-no-malloc): counts what new does
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}  // NOLINT(cppcoreguidelines-no-malloc)
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}  // NOLINT(cppcoreguidelines-no-malloc)

namespace vpmu::test {
namespace {

using Reads = LinuxPerf::Reads;
using Source = LinuxPerf::Source;

constexpr std::uint64_t cycles_code = 0x3C;
constexpr std::uint64_t counting = cycles_code | evtsel::user | evtsel::kernel | evtsel::enable;
constexpr std::uint64_t sampling = counting | evtsel::interrupt;
constexpr std::uint32_t period_ns = 1000000;

constexpr HostEventSpec cycles(std::uint32_t counter = 0) {
  return {
      .select = cycles_code, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::gp(counter)};
}

/// Empty, or why this system has no software events.
std::string why_no_perf() {
  LinuxPerf perf{{.source = Source::task_clock}};
  const auto opened = perf.open(cycles(), 1000000);
  return opened.ok() ? "" : std::string{"no software perf events here: "} + describe(opened.error());
}

#define SKIP_WITHOUT_PERF() \
  if (const std::string why = why_no_perf(); !why.empty()) GTEST_SKIP() << why

std::size_t descriptors() {
  const std::filesystem::directory_iterator all{"/proc/self/fd"};
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t timers() {
  std::ifstream file{"/proc/self/timers"};
  std::size_t n = 0;
  for (std::string line; std::getline(file, line);) n += line.starts_with("ID:") ? 1 : 0;
  return n;
}

/// Keeps the thread busy. A signal that a sanitizer holds back comes at a call, so there is one now and then.
template <class Done>
bool busy_until(Done&& done, std::uint64_t most_ms = 2000) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds{most_ms};
  while (!done()) {
    for (int n = 0; n < 200; ++n) _mm_pause();
    ::usleep(0);
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

struct PerfSide {
  explicit PerfSide(Reads reads = Reads::each) : host{{.source = Source::task_clock, .reads = reads, .kick = &kick}} {}
  void entered() {}
  void left() { host.guest_left(); }
  std::uint8_t kick = 0;
  LinuxPerf host;
  std::uint64_t period = period_ns;
};

struct ClockSide {
  ClockSide() : host{{.kick = &kick}} {}
  void entered() { host.guest_entered(); }
  void left() { host.guest_left(); }
  std::uint8_t kick = 0;
  ClockHost host;
  std::uint64_t period = host.tsc_hz() / (1000000000 / period_ns);
};

template <class Side>
struct Guest {
  template <class... Args>
  explicit Guest(const char* policy, Args... args)
      : side{args...},
        backing{side.host},
        pmu{find_profile("intel-v2")->profile, backing, find_policy(policy)->policy} {}

  void write(Msr msr, std::uint64_t value) { EXPECT_TRUE(pmu.write_msr(msr, value).ok()); }
  std::uint64_t read(Msr msr) { return pmu.read_msr(msr).value(); }
  void reload() { write(ia32_pmc[0], static_cast<std::uint32_t>(0 - side.period)); }
  void start(std::uint32_t resident = 3) {
    write(ia32_perfevtsel[0], sampling);
    for (std::uint32_t n = 1; n <= resident; ++n) write(ia32_perfevtsel[n], counting);
    reload();
  }
  bool enter() {
    const bool pmi = pmu.enter() == EntryAction::inject_pmi;
    side.entered();
    return pmi;
  }
  void exit() {
    std::atomic_ref{side.kick}.store(0);
    side.left();
    pmu.leave();
  }
  /// Runs to the next PMI, and handles it as Linux does. False: none came.
  bool one_pmi() {
    for (int tries = 0; tries < 50; ++tries) {
      const bool pmi = enter();
      const bool kicked = pmi || busy_until([this] { return std::atomic_ref{side.kick}.load() != 0; });
      exit();
      if (!kicked) return false;
      if (!pmi) continue;
      write(Msr::ia32_perf_global_ctrl, 0);
      enter();
      exit();
      const std::uint64_t status = read(Msr::ia32_perf_global_status);
      EXPECT_EQ(status & 1, 1U);
      write(Msr::ia32_perf_global_ovf_ctrl, status);
      static_cast<void>(pmu.read_pmc(0));
      reload();
      write(Msr::ia32_perf_global_ctrl, 0xFF);
      return true;
    }
    return false;
  }

  Side side;
  EmulatedBacking backing;
  VirtualPmu pmu;
};

template <class Side, class... Args>
void sample_under_every_policy(Args... args) {
  for (const NamedPolicy& policy : named_policies()) {
    SCOPED_TRACE(policy.name);
    Guest<Side> guest{policy.name, args...};
    guest.start();
    std::uint64_t last = 0;
    for (int n = 0; n < 10; ++n) {
      ASSERT_TRUE(guest.one_pmi());
      const std::uint64_t now = guest.read(ia32_pmc[1]);
      EXPECT_GE(now, last + guest.side.period / 2) << "a resident counter counts on";
      last = now;
    }
    guest.enter();
    guest.exit();
    EXPECT_EQ(guest.pmu.health(CounterId::gp(0)), Health::counting);
    EXPECT_GE(guest.side.host.calls().signals, 5U);
  }
}

TEST(RealPerf, SoftwareEventsSampleUnderEveryPolicy) {
  SKIP_WITHOUT_PERF();
  sample_under_every_policy<PerfSide>(Reads::each);
}

TEST(RealPerf, AGroupSamplesUnderEveryPolicy) {
  SKIP_WITHOUT_PERF();
  sample_under_every_policy<PerfSide>(Reads::group);
}

TEST(RealPerf, LeavesNoDescriptorAndAllocatesNothing) {
  SKIP_WITHOUT_PERF();
  const std::size_t before = descriptors();
  for (const char* policy : {"before-s0", "best"}) {
    for (const Reads reads : {Reads::each, Reads::group}) {
      Guest<PerfSide> guest{policy, reads};
      const std::uint64_t allocated = allocations.load();
      guest.start(7);
      for (int n = 0; n < 5; ++n) ASSERT_TRUE(guest.one_pmi());
      guest.pmu.sched_out();
      guest.pmu.reset();
      EXPECT_EQ(allocations.load(), allocated);
    }
  }
  EXPECT_EQ(descriptors(), before);
}

TEST(RealPerf, ReadsAndPausesAsTheManualSays) {
  SKIP_WITHOUT_PERF();
  LinuxPerf perf{{.source = Source::task_clock}};
  const HostEvent event = *perf.open(cycles(), 1ULL << 63);
  EXPECT_EQ(perf.read(event).value(), 0U);
  ASSERT_TRUE(perf.enable(event).ok());
  const std::uint64_t first = perf.read(event).value();
  busy_until([&] { return perf.read(event).value() > first + 1000000; });
  ASSERT_TRUE(perf.disable(event).ok());
  const std::uint64_t paused = perf.read(event).value();
  EXPECT_GT(paused, 1000000U);
  EXPECT_EQ(perf.read(event).value(), paused);
}

TEST(RealPerf, AnEventOfAGroupCountsFromTheCallThatEnablesIt) {
  SKIP_WITHOUT_PERF();
  for (const Source source : {Source::task_clock, Source::cpu_clock}) {
    LinuxPerf perf{{.source = source, .reads = Reads::group}};
    const HostEvent event = *perf.open(cycles(), 1ULL << 60);
    for (int n = 0; n < 20; ++n) {
      ASSERT_TRUE(perf.enable(event).ok());
      const std::uint64_t before = perf.read(event).value();
      const std::uint64_t start = linux_clock_system().thread_cpu_ns();
      while (linux_clock_system().thread_cpu_ns() < start + 100000) {
      }
      // perf's clock and the thread's differ by some microseconds around a preemption. An event that starts counting
      // at the next switch-in only, as one under a leader of another kind does, has counted next to nothing by now.
      EXPECT_GE(perf.read(event).value(), before + 50000);
      ASSERT_TRUE(perf.disable(event).ok());
    }
  }
}

TEST(RealPerf, ExhaustedDescriptorsAreAReasonAndNotTheEnd) {
  SKIP_WITHOUT_PERF();
  Guest<PerfSide> guest{"best"};
  rlimit old{};
  getrlimit(RLIMIT_NOFILE, &old);
  rlimit none = old;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_NOFILE, &none);
  guest.start();
  guest.enter();
  guest.exit();
  setrlimit(RLIMIT_NOFILE, &old);
  EXPECT_EQ(guest.pmu.health(CounterId::gp(0)), Health::no_resources);
  guest.pmu.sched_out();
  EXPECT_TRUE(guest.one_pmi());
  guest.enter();
  EXPECT_EQ(guest.pmu.health(CounterId::gp(0)), Health::counting);
}

TEST(RealPerf, AFullSignalQueueSendsSigioAndSamplingGoesOn) {
  SKIP_WITHOUT_PERF();
  Guest<PerfSide> guest{"best"};
  guest.start();
  rlimit old{};
  getrlimit(RLIMIT_SIGPENDING, &old);
  rlimit none = old;
  none.rlim_cur = 0;
  setrlimit(RLIMIT_SIGPENDING, &none);
  bool sampled = true;
  for (int n = 0; n < 5; ++n) sampled = sampled && guest.one_pmi();
  setrlimit(RLIMIT_SIGPENDING, &old);
  EXPECT_TRUE(sampled);
  ASSERT_TRUE(watching_sigio);
  EXPECT_GE(sigios.load(), 5) << "signals did not come by the queue";
}

TEST(RealPerf, EachVcpuGetsItsOwnSignals) {
  SKIP_WITHOUT_PERF();
  std::atomic<int> done{0};
  const auto vcpu = [&done] {
    Guest<PerfSide> guest{"best"};
    guest.start(0);
    bool ok = true;
    for (int n = 0; n < 5; ++n) ok = ok && guest.one_pmi();
    EXPECT_TRUE(ok);
    done.fetch_add(1);
  };
  std::thread first{vcpu};
  std::thread second{vcpu};
  first.join();
  second.join();
  EXPECT_EQ(done.load(), 2);
}

TEST(RealPerf, ServesAThreadThatAnotherOneSetsUp) {
  SKIP_WITHOUT_PERF();
  std::atomic<pid_t> thread{0};
  std::atomic<LinuxPerf*> perf{nullptr};
  std::thread vcpu{[&] {
    thread = gettid();
    busy_until([&] { return perf.load() != nullptr; });
    EXPECT_TRUE(busy_until([&] { return perf.load()->hints().load() != 0; }));
  }};
  busy_until([&] { return thread.load() != 0; });
  LinuxPerf host{{.source = Source::task_clock, .thread = thread}};
  const HostEvent event = *host.open(cycles(5), 1000000);
  ASSERT_TRUE(host.enable(event).ok());
  perf = &host;
  vcpu.join();
  EXPECT_EQ(host.take_hints(), CounterId::gp(5).mask());
}

template <class Side>
void post_writes_while_sampling() {
  Guest<Side> guest{"best"};
  guest.start();
  std::atomic<bool> stop{false};
  std::uint64_t posted = 0;
  std::thread vmm{[&] {
    while (!stop.load()) {
      if (guest.pmu.post_write(ia32_pmc[5], posted + 1).ok()) {
        ++posted;
      } else {
        std::this_thread::yield();
      }
    }
  }};
  bool sampled = true;
  std::uint64_t last = 0;
  for (int n = 0; n < 10; ++n) {
    sampled = sampled && guest.one_pmi();
    const std::uint64_t now = guest.read(ia32_pmc[5]);
    EXPECT_GE(now, last);
    last = now;
  }
  stop = true;
  vmm.join();
  for (int n = 0; n < 4; ++n) {
    guest.enter();
    guest.exit();
  }
  EXPECT_TRUE(sampled);
  EXPECT_EQ(guest.read(ia32_pmc[5]), posted);
}

TEST(RealPerf, AnotherThreadPostsWritesWhileTheGuestSamples) {
  SKIP_WITHOUT_PERF();
  post_writes_while_sampling<PerfSide>();
}

TEST(RealClock, SamplesUnderEveryPolicy) { sample_under_every_policy<ClockSide>(); }

TEST(RealClock, AnotherThreadPostsWritesWhileTheGuestSamples) { post_writes_while_sampling<ClockSide>(); }

TEST(RealClock, LeavesNoTimerAndAllocatesNothing) {
  const std::size_t before = timers();
  for (const char* policy : {"before-s0", "best"}) {
    Guest<ClockSide> guest{policy};
    const std::uint64_t allocated = allocations.load();
    guest.start(7);
    for (int n = 0; n < 5; ++n) ASSERT_TRUE(guest.one_pmi());
    guest.pmu.sched_out();
    guest.pmu.reset();
    EXPECT_EQ(allocations.load(), allocated);
  }
  EXPECT_EQ(timers(), before);
}

TEST(RealClock, MeasuresTheTimeStampCountersRate) {
  ClockSystem& system = linux_clock_system();
  const auto first = static_cast<double>(system.measure_tsc_hz());
  const auto second = static_cast<double>(system.measure_tsc_hz());
  EXPECT_NEAR(first / second, 1, 0.001);
}

TEST(RealClock, HaltedTimeDoesNotCountAndRunningTimeDoes) {
  ClockHost clock;
  const HostEvent event = *clock.open(cycles(), 1ULL << 60);
  ASSERT_TRUE(clock.enable(event).ok());
  clock.guest_entered();
  ::usleep(50000);
  clock.guest_left();
  const std::uint64_t halted = clock.peek(event).value();
  EXPECT_LT(halted, clock.tsc_hz() / 100) << "50 ms asleep count as less than 10";

  const std::uint64_t start = linux_clock_system().thread_cpu_ns();
  for (int n = 0; n < 20; ++n) {
    clock.guest_entered();
    busy_until([&, until = __rdtsc() + clock.tsc_hz() / 1000] { return __rdtsc() > until; });
    clock.guest_left();
  }
  const std::uint64_t ran_ns = linux_clock_system().thread_cpu_ns() - start;
  const double counted_ns =
      static_cast<double>(clock.peek(event).value() - halted) * 1e9 / static_cast<double>(clock.tsc_hz());
  EXPECT_NEAR(counted_ns / static_cast<double>(ran_ns), 1, 0.1) << "also when others take the CPU meanwhile";
}

}  // namespace
}  // namespace vpmu::test
