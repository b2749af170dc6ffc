#include "host/probe.hpp"

#include <cpuid.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <bit>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>

#include "vpmu/host/clock.hpp"
#include "vpmu/host/linux_perf.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t cycles_code = 0x3C;
constexpr std::uint64_t probe_period = 100000;  // ns
constexpr std::uint64_t probe_time = 2000000;   // ns

constexpr HostEventSpec cycles{
    .select = cycles_code, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::gp(0)};

class Probe {
 public:
  explicit Probe(const ProbeOptions& options)
      : options_{options},
        perf_{options.perf != nullptr ? *options.perf : linux_perf_system()},
        clock_{options.clock != nullptr ? *options.clock : linux_clock_system()} {}

 protected:
  void find(std::string name, Verdict verdict, std::string fact, std::string change = {}) {
    probe_.findings.push_back({std::move(name), verdict, std::move(fact), std::move(change)});
  }
  [[nodiscard]] bool exists(const char* path) const { return std::filesystem::exists(options_.root + path); }
  [[nodiscard]] std::optional<long> number(const char* path) const {
    std::ifstream file{options_.root + path};
    long value = 0;
    if (file >> value) return value;
    return std::nullopt;
  }
  void keep_busy(std::uint64_t ns) {
    if (options_.keep_busy) return options_.keep_busy(ns);
    const std::uint64_t end = clock_.thread_cpu_ns() + ns;
    while (clock_.thread_cpu_ns() < end) {
    }
  }
  void signal_queue() {
    constexpr rlim_t enough = 1024;
    rlimit limit{};
    ::getrlimit(RLIMIT_SIGPENDING, &limit);
    find("signal queue", limit.rlim_cur >= enough ? Verdict::works : Verdict::limited,
         limit.rlim_cur == RLIM_INFINITY ? "no limit" : fmt::format("{} signals and timers", limit.rlim_cur),
         limit.rlim_cur >= enough ? ""
                                  : "raise `ulimit -i`: beyond it, hints come as plain SIGIO and timers are refused");
  }

  const ProbeOptions& options_;
  PerfSystem& perf_;
  ClockSystem& clock_;
  HostProbe probe_;
};

// --- linux_perf ---

class PerfProbe : Probe {
 public:
  using Probe::Probe;

  HostProbe run() {
    if (!perf_event()) return probe_;
    const bool hardware = hardware_events();
    software_events();
    periods();
    overflow_signals();
    signal_queue();
    descriptors();
    throttling();
    hybrid();
    if (hardware) watchdog();
    mediated_guests();
    return probe_;
  }

 private:
  static constexpr const char* paranoid_path = "/proc/sys/kernel/perf_event_paranoid";

  static perf_event_attr software(std::uint64_t period) {
    perf_event_attr attr{};
    attr.size = sizeof attr;
    attr.type = PERF_TYPE_SOFTWARE;
    attr.config = PERF_COUNT_SW_TASK_CLOCK;
    attr.sample_period = period;
    attr.disabled = 1;
    return attr;
  }

  bool perf_event() {
    const auto paranoid = number(paranoid_path);
    if (!paranoid) {
      probe_.why_not = "the kernel has no perf events: use one with CONFIG_PERF_EVENTS";
      find("perf events", Verdict::missing, "no " + std::string{paranoid_path}, "use a kernel with CONFIG_PERF_EVENTS");
      return false;
    }
    // An unprivileged user above level 1 gets no event that counts the kernel, and a guest's kernel is one.
    perf_event_attr attr = software(probe_period);
    const int fd = perf_.perf_event_open(attr, 0, -1);
    if (fd >= 0) perf_.close(fd);
    const bool allowed = fd >= 0;
    const std::string fact = fmt::format("kernel.perf_event_paranoid is {}", *paranoid);
    const std::string change = "`sysctl kernel.perf_event_paranoid=1`, or give the process CAP_PERFMON";
    if (allowed) {
      find("perf events", Verdict::works, fact);
    } else {
      find("perf events", Verdict::missing, fmt::format("{}: {}", fact, std::strerror(-fd)), change);
      probe_.why_not = fmt::format("{}, and events are refused ({}): {}", fact, std::strerror(-fd), change);
    }
    return allowed;
  }

  bool hardware_events() {
    LinuxPerf host{{.source = LinuxPerf::Source::hardware, .system = &perf_}};
    constexpr HostEventSpec cycles_of_any_vendor{
        .select = 0, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::fixed(1)};
    const auto event = host.open(cycles_of_any_vendor, LinuxPerf::longest_period);
    if (event.ok()) {
      find("hardware events", Verdict::works, "guest-only, pinned");
      free_reads(host, *event);
      return true;
    }
    std::string change;
    switch (event.error()) {
      case HostError::no_counter:
        change = "stop other users of the counters (perf, kernel.nmi_watchdog), or VMs with a mediated PMU";
        break;
      case HostError::not_permitted:
        change = "`sysctl kernel.perf_event_paranoid=1`, or give the process CAP_PERFMON";
        break;
      default:
        change = "in a VM, have its host give it a PMU; meanwhile use the host `clock`";
    }
    probe_.why_not = fmt::format("no guest-only hardware events, {}: {}", describe(event.error()), change);
    find("hardware events", Verdict::missing, describe(event.error()), change);
    return false;
  }

  void free_reads(LinuxPerf& host, HostEvent event) {
    // Paused, as it must be outside a guest, the user page alone answers: RDPMC is allowed or it does not.
    const bool free = host.peek(event).ok();
    find("free reads", free ? Verdict::works : Verdict::limited,
         free ? "RDPMC through the user page" : "RDPMC is not allowed: each read is a system call",
         free ? "" : "`echo 1 > /sys/bus/event_source/devices/cpu/rdpmc`");
  }

  void software_events() {
    perf_event_attr attr = software(LinuxPerf::longest_period);
    attr.exclude_host = 1;
    const int fd = perf_.perf_event_open(attr, 0, -1);
    if (fd < 0) {
      find("software clocks", Verdict::missing, std::strerror(-fd));
      return;
    }
    perf_.ioctl(fd, PERF_EVENT_IOC_ENABLE, nullptr);
    keep_busy(probe_time / 4);
    std::uint64_t count = 0;
    perf_.read(fd, &count, sizeof count);
    perf_.close(fd);
    find("software clocks", Verdict::limited,
         count > 0 ? "exclude_host is accepted and ignored: for tests and benchmarks, no guest's backing"
                   : "exclude_host is respected");
  }

  /// The periods that LinuxPerf relies on.
  void periods() {
    const auto takes = [this](std::uint64_t at_open, std::uint64_t later) {
      perf_event_attr attr = software(at_open);
      const int fd = perf_.perf_event_open(attr, 0, -1);
      if (fd < 0) return false;
      const bool taken = later == 0 || perf_.ioctl(fd, PERF_EVENT_IOC_PERIOD, &later) >= 0;
      perf_.close(fd);
      return taken;
    };
    if (!takes(LinuxPerf::longest_period, probe_period)) {
      find("periods", Verdict::missing, "an event with the longest period takes no other");
      return;
    }
    find("periods", Verdict::works,
         fmt::format("up to 2^62; an event opened with none {} one later; software clocks are clamped at {} us",
                     takes(0, probe_period) ? "takes" : "never takes", LinuxPerf::shortest_clock_period / 1000));
  }

  void overflow_signals() {
    LinuxPerf host{{.source = LinuxPerf::Source::task_clock, .system = &perf_}};
    const auto event = host.open(cycles, probe_period);
    if (!event.ok() || !host.enable(*event).ok()) {
      find("overflow signals", Verdict::missing, event.ok() ? "the event can't be enabled" : describe(event.error()));
      return;
    }
    keep_busy(probe_time);
    const std::uint64_t count = host.read(*event).value_or(0);
    static_cast<void>(host.disable(*event));
    const std::uint64_t signals = host.calls().signals;
    find("overflow signals", signals > 0 ? Verdict::works : Verdict::missing,
         fmt::format("signal {}: {} for {} periods", signal_hints::default_signal(), signals, count / probe_period),
         signals > 0 ? "" : "the thread blocks this signal, or another handler took it");
  }

  void descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    constexpr rlim_t enough = 1024;
    find("descriptors", limit.rlim_cur >= enough ? Verdict::works : Verdict::limited,
         fmt::format("{} in this process, one for each counter of each vCPU", limit.rlim_cur),
         limit.rlim_cur >= enough ? "" : "raise `ulimit -n`");
  }

  void throttling() {
    const auto rate = number("/proc/sys/kernel/perf_event_max_sample_rate");
    if (!rate) return;
    constexpr long usual = 100000;
    find("sample rate", *rate >= usual ? Verdict::works : Verdict::limited,
         fmt::format("at most {} overflows a second before events are throttled", *rate),
         *rate >= usual ? "" : "`sysctl kernel.perf_cpu_time_max_percent=0 kernel.perf_event_max_sample_rate=100000`");
  }

  void hybrid() {
    if (!exists("/sys/devices/cpu_core") || !exists("/sys/devices/cpu_atom")) return;
    find("hybrid processor", Verdict::limited, "an event counts on one type of core alone",
         "pin each vCPU thread to cores of one type");
  }

  void mediated_guests() {
    std::ifstream parameter{options_.root + "/sys/module/kvm/parameters/enable_mediated_pmu"};
    char enabled = 'N';
    if (!(parameter >> enabled) || enabled != 'Y') return;
    find("mediated guests", Verdict::limited,
         "KVM gives guests the hardware's counters: while such a VM lives, other events are refused, and while our "
         "events are open, such a VM cannot be created",
         "run one kind at a time, or load kvm with enable_mediated_pmu=0");
  }

  void watchdog() {
    if (number("/proc/sys/kernel/nmi_watchdog").value_or(0) == 0) return;
    find("NMI watchdog", Verdict::limited, "it holds one counter of each CPU", "`sysctl kernel.nmi_watchdog=0`");
  }
};

// --- clock ---

class ClockProbe : Probe {
 public:
  using Probe::Probe;

  HostProbe run() {
    time_stamp_counter();
    thread_cpu_time();
    timer_signals();
    signal_queue();
    find("privilege levels", Verdict::limited,
         "user and kernel can't be told apart: a counter of one of them does not count, and its health says so");
    return probe_;
  }

 private:
  void time_stamp_counter() {
    // SDM volume 3 and APM volume 2: CPUID.80000007H:EDX[8], a rate that no power state changes.
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned power_leaf = 0x80000007;
    constexpr unsigned invariant_bit = 1U << 8;
    __get_cpuid(power_leaf, &eax, &ebx, &ecx, &edx);
    const bool invariant = (edx & invariant_bit) != 0;
    find("time-stamp counter", invariant ? Verdict::works : Verdict::limited,
         fmt::format(
             "{:.0f} MHz, {}", static_cast<double>(clock_.measure_tsc_hz()) / 1e6,
             invariant ? "invariant" : "not said to be invariant: cycles may be wrong after a change of frequency"),
         invariant ? "" : "in a VM, expose CPUID.80000007H:EDX[8]");
  }

  void thread_cpu_time() {
    timespec resolution{};
    const bool known = ::clock_getres(CLOCK_THREAD_CPUTIME_ID, &resolution) == 0;
    constexpr long coarse = 1000;
    const bool fine = known && resolution.tv_sec == 0 && resolution.tv_nsec <= coarse;
    find("thread CPU time", fine ? Verdict::works : Verdict::missing,
         known ? fmt::format("resolution {} ns", resolution.tv_nsec) : "not known",
         fine ? "" : "use a kernel with high-resolution timers");
    if (!fine) probe_.why_not = "the thread's CPU time is too coarse: use a kernel with high-resolution timers";
  }

  void timer_signals() {
    std::uint8_t kick = 0;
    ClockHost host{{.tsc_hz = 1000000000, .kick = &kick, .system = &clock_}};
    const auto event = host.open(cycles, probe_period);
    const char* trouble = nullptr;
    if (!event.ok()) {
      trouble = describe(event.error());
    } else if (const auto enabled = host.enable(*event); !enabled) {
      trouble = describe(enabled.error());
    } else {
      keep_busy(probe_time);
      if (std::atomic_ref{kick}.load() == 0) trouble = "no signal came";
    }
    find("timers", trouble == nullptr ? Verdict::works : Verdict::missing,
         trouble == nullptr ? fmt::format("signal {}; clamped at {} us", signal_hints::default_signal(),
                                          ClockHost::shortest_timer_ns / 1000)
                            : trouble,
         trouble == nullptr ? "" : "raise `ulimit -i`; unblock the signal");
    if (trouble != nullptr) {
      probe_.why_not = fmt::format("timers don't work, {}: raise `ulimit -i`, unblock the signal", trouble);
    }
  }
};

}  // namespace

const char* describe(Verdict verdict) {
  switch (verdict) {
    case Verdict::works:
      return "works";
    case Verdict::limited:
      return "limited";
    case Verdict::missing:
      return "missing";
  }
  return "unknown";
}

HostProbe probe_linux_perf(const ProbeOptions& options) { return PerfProbe{options}.run(); }
HostProbe probe_clock(const ProbeOptions& options) { return ClockProbe{options}.run(); }

}  // namespace vpmu
