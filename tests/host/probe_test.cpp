// The start-up probe: each finding, its reason, and what to change.
#include "host/probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "host/fake_clock.hpp"
#include "host/fake_perf_kernel.hpp"

namespace vpmu::test {
namespace {

using ::testing::HasSubstr;

/// A system of files and fakes.
struct System {
  System() {
    root = std::filesystem::path{::testing::TempDir()} / ("probe-" + std::to_string(getpid()));
    set("/proc/sys/kernel/perf_event_paranoid", "2");
    set("/proc/sys/kernel/perf_event_max_sample_rate", "100000");
  }
  ~System() { std::filesystem::remove_all(root); }
  System(const System&) = delete;
  System& operator=(const System&) = delete;

  void set(const std::string& path, const std::string& text) const {
    const std::filesystem::path file{root.string() + path};
    std::filesystem::create_directories(file.parent_path());
    std::ofstream{file} << text << "\n";
  }
  HostProbe perf() {
    return probe_linux_perf(
        {.perf = &kernel, .clock = &time, .root = root.string(), .keep_busy = [this](std::uint64_t ns) {
           kernel.happen(ns);
         }});
  }
  HostProbe clock() {
    return probe_clock({.perf = &kernel, .clock = &time, .root = root.string(), .keep_busy = [this](std::uint64_t ns) {
                          time.run(ns);
                        }});
  }

  std::filesystem::path root;
  FakePerfKernel kernel;
  FakeClock time;
};

Finding finding(const HostProbe& probe, const std::string& name) {
  for (const Finding& one : probe.findings) {
    if (one.name == name) return one;
  }
  ADD_FAILURE() << "no finding " << name;
  return {};
}

TEST(Probe, AHostWithAPmuIsSupported) {
  System system;
  system.kernel.set_rdpmc(true);
  const HostProbe probe = system.perf();
  EXPECT_EQ(probe.why_not, "");
  EXPECT_EQ(finding(probe, "hardware events").verdict, Verdict::works);
  EXPECT_EQ(finding(probe, "free reads").verdict, Verdict::works);
  EXPECT_EQ(finding(probe, "overflow signals").verdict, Verdict::works);
  EXPECT_THAT(finding(probe, "overflow signals").fact, HasSubstr("for 20 periods"));
  EXPECT_THAT(finding(probe, "periods").fact, HasSubstr("never takes one later"));
  EXPECT_TRUE(system.kernel.events.empty()) << "it leaves nothing open";
  EXPECT_EQ(system.kernel.maps, 0);
}

TEST(Probe, WithoutRdpmcReadsAreNotFree) {
  System system;
  const Finding reads = finding(system.perf(), "free reads");
  EXPECT_EQ(reads.verdict, Verdict::limited);
  EXPECT_THAT(reads.change, HasSubstr("/devices/cpu/rdpmc"));
}

TEST(Probe, WithoutPerfEventsNothingElseIsTried) {
  System system;
  std::filesystem::remove_all(system.root);
  const HostProbe probe = system.perf();
  EXPECT_EQ(probe.findings.size(), 1U);
  EXPECT_THAT(probe.why_not, HasSubstr("CONFIG_PERF_EVENTS"));
}

TEST(Probe, AParanoidKernelIsNamedWithTheSettingToChange) {
  System system;
  system.kernel.fail(PerfCall::open, EACCES, 1000);
  const HostProbe probe = system.perf();
  EXPECT_THAT(probe.why_not, HasSubstr("kernel.perf_event_paranoid is 2"));
  EXPECT_THAT(probe.why_not, HasSubstr("sysctl kernel.perf_event_paranoid=1"));
}

TEST(Probe, AHostWithoutAPmuSaysWhatServesInstead) {
  System system;
  struct NoPmu final : PerfSystem {
    explicit NoPmu(FakePerfKernel& kernel) : real{kernel} {}
    int perf_event_open(perf_event_attr& attr, pid_t thread, int leader) override {
      return attr.type == PERF_TYPE_SOFTWARE ? real.perf_event_open(attr, thread, leader) : -error;
    }
    int close(int fd) override { return real.close(fd); }
    int ioctl(int fd, unsigned long request, std::uint64_t* argument) override {
      return real.ioctl(fd, request, argument);
    }
    int fcntl(int fd, int command, std::uintptr_t argument) override { return real.fcntl(fd, command, argument); }
    ssize_t read(int fd, void* buffer, std::size_t size) override { return real.read(fd, buffer, size); }
    const volatile perf_event_mmap_page* map(int fd) override { return real.map(fd); }
    void unmap(const volatile perf_event_mmap_page* page) override { real.unmap(page); }
    std::uint64_t rdpmc(std::uint32_t index) override { return real.rdpmc(index); }
    FakePerfKernel& real;
    int error = ENOENT;
  } kernel{system.kernel};
  ProbeOptions options{
      .perf = &kernel, .clock = &system.time, .root = system.root.string(), .keep_busy = [&](std::uint64_t ns) {
        system.kernel.happen(ns);
      }};
  HostProbe probe = probe_linux_perf(options);
  EXPECT_THAT(probe.why_not, HasSubstr("use the host `clock`"));
  EXPECT_THAT(finding(probe, "software clocks").fact, HasSubstr("exclude_host is accepted and ignored"));
  kernel.error = EBUSY;
  probe = probe_linux_perf(options);
  EXPECT_THAT(probe.why_not, HasSubstr("no host counter is free"));
}

TEST(Probe, LostSignalsAreNoticed) {
  System system;
  system.kernel.set_signals(FakePerfKernel::Signals::lost);
  EXPECT_EQ(finding(system.perf(), "overflow signals").verdict, Verdict::missing);
}

TEST(Probe, HybridProcessorsWatchdogsAndThrottlingAreNamed) {
  System system;
  system.set("/sys/devices/cpu_core/type", "4");
  system.set("/sys/devices/cpu_atom/type", "8");
  system.set("/proc/sys/kernel/nmi_watchdog", "1");
  system.set("/proc/sys/kernel/perf_event_max_sample_rate", "1000");
  const HostProbe probe = system.perf();
  EXPECT_THAT(finding(probe, "hybrid processor").change, HasSubstr("pin each vCPU thread"));
  EXPECT_THAT(finding(probe, "NMI watchdog").change, HasSubstr("nmi_watchdog=0"));
  EXPECT_EQ(finding(probe, "sample rate").verdict, Verdict::limited);
}

TEST(Probe, TheClockNeedsTimersThatSignal) {
  System system;
  EXPECT_EQ(system.clock().why_not, "");
  system.time.lose_signals(true);
  EXPECT_THAT(system.clock().why_not, HasSubstr("no signal came"));
  system.time.fail_create(EAGAIN);
  EXPECT_THAT(system.clock().why_not, HasSubstr("ulimit -i"));
  EXPECT_TRUE(system.time.timers.empty());
}

TEST(Probe, RunsOnThisSystem) {
  for (const HostProbe& probe : {probe_linux_perf(), probe_clock()}) {
    EXPECT_FALSE(probe.findings.empty());
    for (const Finding& one : probe.findings) {
      EXPECT_FALSE(one.name.empty() || one.fact.empty());
      EXPECT_TRUE(one.verdict == Verdict::works || !one.change.empty() || one.name == "privilege levels" ||
                  one.name == "software clocks")
          << one.name << " says what to change";
    }
  }
}

}  // namespace
}  // namespace vpmu::test
