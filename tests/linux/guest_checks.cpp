// Runs in a Linux guest of the kvm machine and checks its PMU through perf_event_open(2): counting, sampling,
// multiplexing. Prints a line for each check, and "checks: N passed, N failed, N disturbed". Needs no library at run
// time.
#include <asm/unistd.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <string>
#include <thread>
#include <vector>

/// Two functions of the same cost a turn. C linkage: perf report shows their names.
extern "C" {
[[gnu::noinline]] void work_a(std::uint64_t turns) {
  for (std::uint64_t i = 0; i < turns; ++i) asm volatile("" : : : "memory");
}
[[gnu::noinline]] void work_b(std::uint64_t turns) {
  for (std::uint64_t i = 0; i < turns; ++i) asm volatile("nop" : : : "memory");
}
}

namespace {

int passed = 0;
int failed = 0;
int disturbed = 0;

/// How often a check is tried whose run was disturbed: this guest's processor is emulated, and was itself without one.
constexpr int tries = 20;

[[gnu::format(printf, 3, 4)]] void check(bool holds, const char* what, const char* format, ...) {
  std::array<char, 256> detail{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(detail.data(), detail.size(), format, arguments);
  va_end(arguments);
  ++(holds ? passed : failed);
  std::printf("%s %s: %s\n", holds ? "pass" : "FAIL", what, detail.data());
  std::fflush(stdout);
}

/// Something measured that no bound is known for.
[[gnu::format(printf, 2, 3)]] void figure(const char* what, const char* format, ...) {
  std::array<char, 256> detail{};
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(detail.data(), detail.size(), format, arguments);
  va_end(arguments);
  std::printf("figure %s: %s\n", what, detail.data());
}

constexpr double ns_per_second = 1e9;

double seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / ns_per_second;
}

double thread_seconds() { return seconds(CLOCK_THREAD_CPUTIME_ID); }

double measure_tsc_hz() {
  const double began = seconds(CLOCK_MONOTONIC);
  const std::uint64_t tsc = __rdtsc();
  while (seconds(CLOCK_MONOTONIC) - began < 0.3) {
  }
  const double passed_ticks = static_cast<double>(__rdtsc() - tsc);
  return passed_ticks / (seconds(CLOCK_MONOTONIC) - began);
}

// --- Work ---

/// The longest time in TSC ticks that a stretch of work took of which each should take less than half a millisecond:
/// longer, and someone else had the processor.
std::uint64_t work_for(double cpu_seconds) {
  constexpr std::uint64_t turns = 20000;
  std::uint64_t longest = 0;
  const double end = thread_seconds() + cpu_seconds;
  while (thread_seconds() < end) {
    for (int i = 0; i < 10; ++i) {
      const std::uint64_t began = __rdtsc();
      work_a(4 * turns);
      work_b(turns);
      longest = std::max<std::uint64_t>(longest, __rdtsc() - began);
    }
  }
  return longest;
}

// --- Events ---

perf_event_attr event(std::uint32_t type, std::uint64_t config) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = type;
  attr.config = config;
  attr.disabled = 1;
  attr.exclude_hv = 1;
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  return attr;
}

perf_event_attr cycles() { return event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES); }

struct Reading {
  std::uint64_t count = 0;
  std::uint64_t enabled = 0;
  std::uint64_t running = 0;
};

class Event {
 public:
  explicit Event(perf_event_attr attr, pid_t thread = 0, int cpu = -1)
      : fd_{static_cast<int>(::syscall(__NR_perf_event_open, &attr, thread, cpu, -1, 0))},
        error_{fd_ < 0 ? errno : 0} {}
  ~Event() {
    if (ring_ != nullptr) ::munmap(ring_, (1 + pages) * page);
    if (fd_ >= 0) ::close(fd_);
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  [[nodiscard]] int error() const { return error_; }
  void enable() const { ::ioctl(fd_, PERF_EVENT_IOC_ENABLE, 0); }
  void disable() const { ::ioctl(fd_, PERF_EVENT_IOC_DISABLE, 0); }
  [[nodiscard]] Reading read() const {
    Reading reading;
    if (::read(fd_, &reading, sizeof reading) != sizeof reading) reading = {};
    return reading;
  }
  bool map() {
    void* ring = ::mmap(nullptr, (1 + pages) * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    ring_ = ring == MAP_FAILED ? nullptr : static_cast<perf_event_mmap_page*>(ring);
    return ring_ != nullptr;
  }

  struct Samples {
    std::vector<std::uint64_t> addresses;
    std::uint64_t lost = 0;
    std::uint64_t throttles = 0;
  };
  /// Takes what is in the ring: samples are of PERF_SAMPLE_IP.
  [[nodiscard]] Samples samples() const {
    Samples result;
    const auto* data = reinterpret_cast<const std::uint8_t*>(ring_) + page;
    const std::uint64_t head = std::atomic_ref{ring_->data_head}.load(std::memory_order_acquire);
    const auto take = [&](std::uint64_t at, void* to, std::size_t length) {
      for (std::size_t n = 0; n < length; ++n) static_cast<std::uint8_t*>(to)[n] = data[(at + n) % (pages * page)];
    };
    for (std::uint64_t at = ring_->data_tail; at < head;) {
      perf_event_header header{};
      take(at, &header, sizeof header);
      if (header.type == PERF_RECORD_SAMPLE) {
        std::uint64_t address = 0;
        take(at + sizeof header, &address, sizeof address);
        result.addresses.push_back(address);
      } else if (header.type == PERF_RECORD_LOST) {
        std::uint64_t lost = 0;
        take(at + sizeof header + 8, &lost, sizeof lost);
        result.lost += lost;
      } else if (header.type == PERF_RECORD_THROTTLE) {
        ++result.throttles;
      }
      at += header.size;
    }
    std::atomic_ref{ring_->data_tail}.store(head, std::memory_order_release);
    return result;
  }

 private:
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t pages = 64;
  int fd_;
  int error_;
  perf_event_mmap_page* ring_ = nullptr;
};

// --- Checks ---

/// A stretch of work takes a tenth of it, and a tick half: if one takes longer, the emulator was itself without a
/// processor, and no check of time means anything.
constexpr double disturbing_seconds = 0.003;

void check_time(bool holds, std::uint64_t longest_gap, double tsc_hz, const char* what, double percent) {
  const double gap = static_cast<double>(longest_gap) / tsc_hz;
  if (holds || gap < disturbing_seconds) return check(holds, what, "%.2f %%, longest gap %.1f ms", percent, 1e3 * gap);
  ++disturbed;
  figure("disturbed", "%s: %.2f %%, the processor was away for %.1f ms", what, percent, 1e3 * gap);
}

/// Of the one CPU, which this thread keeps busy: an event of a thread is saved and restored at each switch, and on an
/// emulated host those accesses take as long as a tick.
void counts_cycles(double tsc_hz) {
  struct Outcome {
    double percent = 0;
    std::uint64_t longest_gap = 0;
  };
  const auto measure = [tsc_hz](pid_t thread, int cpu) {
    Event counter{cycles(), thread, cpu};
    if (counter.error() != 0) return Outcome{};
    counter.enable();
    const double began = thread_seconds();
    const std::uint64_t longest_gap = work_for(1.0);
    const double took = thread_seconds() - began;
    counter.disable();
    return Outcome{100 * static_cast<double>(counter.read().count) / (took * tsc_hz), longest_gap};
  };
  const auto holds = [](const Outcome& outcome) { return outcome.percent > 95 && outcome.percent < 105; };
  Outcome outcome;
  for (int n = 0; n < tries / 4 && !holds(outcome); ++n) outcome = measure(-1, 0);
  check_time(holds(outcome), outcome.longest_gap, tsc_hz, "cycles within 5 % of thread CPU time at the TSC's rate",
             outcome.percent);
  figure("cycles of a thread's own event", "%.2f %% of its CPU time at the TSC's rate", measure(0, -1).percent);
}

void idles(double tsc_hz) {
  Event counter{cycles(), -1, 0};
  if (counter.error() != 0) return check(false, "cycles of a CPU", "%s", std::strerror(counter.error()));
  counter.enable();
  const double began = seconds(CLOCK_MONOTONIC);
  ::sleep(2);
  const double took = seconds(CLOCK_MONOTONIC) - began;
  counter.disable();
  const double share = static_cast<double>(counter.read().count) / (took * tsc_hz);
  check_time(share < 0.05, work_for(0.3), tsc_hz, "an idle CPU's cycles are a few percent of wall", 100 * share);
}

/// A PMI that comes later than the next overflow stands for both: the emulated processor of this guest may itself have
/// been without a processor for so long. Such a run says nothing, and is done again.
void samples_at(std::uint64_t period, double cpu_seconds) {
  for (int n = 1;; ++n) {
    perf_event_attr attr = cycles();
    attr.sample_period = period;
    attr.sample_type = PERF_SAMPLE_IP;
    Event counter{attr};
    if (counter.error() != 0 || !counter.map()) return check(false, "sampling", "%s", std::strerror(counter.error()));
    counter.enable();
    const std::uint64_t longest = work_for(cpu_seconds);
    counter.disable();
    const std::uint64_t count = counter.read().count;
    const auto samples = counter.samples();
    const bool exact = samples.addresses.size() == count / period && samples.lost == 0 && samples.throttles == 0;
    if (!exact && longest > period) {
      if (n < tries) continue;
      ++disturbed;
      return figure("disturbed", "period %" PRIu64 ", the processor was away for %" PRIu64 " ticks", period, longest);
    }
    return check(exact, "samples = floor(count / period)",
                 "period %" PRIu64 ": %zu samples, %" PRIu64 " expected, %" PRIu64
                 " lost; try %d, longest gap %" PRIu64,
                 period, samples.addresses.size(), count / period, samples.lost, n, longest);
  }
}

void samples_by_frequency(std::uint64_t hz, double tsc_hz) {
  perf_event_attr attr = cycles();
  attr.freq = 1;
  attr.sample_freq = hz;
  attr.sample_type = PERF_SAMPLE_IP;
  Event counter{attr};
  if (counter.error() != 0 || !counter.map()) return check(false, "frequency", "%s", std::strerror(counter.error()));
  counter.enable();
  // The kernel starts at a period of 1 and doubles its way up.
  work_for(0.3);
  static_cast<void>(counter.samples());
  const std::uint64_t before = counter.read().count;
  const double began = thread_seconds();
  work_for(1.5);
  const double busy = thread_seconds() - began;
  counter.disable();
  const double counted = static_cast<double>(counter.read().count - before) / tsc_hz;
  const auto samples = counter.samples();
  const double got = static_cast<double>(samples.addresses.size());
  const double expected = static_cast<double>(hz) * busy;
  // An emulated host spends most of a tick on the accesses by which Linux adapts the period.
  figure("frequency", "%" PRIu64 " Hz: %.0f samples in %.2f s busy, %.2f s by cycles, %.0f expected", hz, got, busy,
         counted, expected);
  // Where it was: 4 to 1.
  std::uint64_t in_a = 0;
  std::uint64_t in_b = 0;
  constexpr std::uint64_t function_bytes = 64;
  for (const std::uint64_t address : samples.addresses) {
    in_a += address - reinterpret_cast<std::uintptr_t>(&work_a) < function_bytes ? 1 : 0;
    in_b += address - reinterpret_cast<std::uintptr_t>(&work_b) < function_bytes ? 1 : 0;
  }
  const double share = 100.0 * static_cast<double>(in_a) / static_cast<double>(std::max<std::uint64_t>(1, in_a + in_b));
  // 10 points, or what so few samples may be off by chance.
  const double sampled = static_cast<double>(std::max<std::uint64_t>(1, in_a + in_b));
  const double bound = std::max(10.0, 350 * std::sqrt(0.8 * 0.2 / sampled));
  check(std::abs(share - 80) < bound, "functions of 4 to 1 share the samples so", "%.1f to %.1f, of %zu", share,
        100 - share, samples.addresses.size());
}

/// What the host cannot count. Intel's CPUID says so, and Linux does not open it; AMD's cannot.
void refuses_the_unavailable(bool intel) {
  for (const auto& [config, name] : {std::pair{PERF_COUNT_HW_INSTRUCTIONS, "instructions"},
                                     std::pair{PERF_COUNT_HW_BRANCH_MISSES, "branch-misses"}}) {
    Event counter{event(PERF_TYPE_HARDWARE, config)};
    if (intel) {
      check(counter.error() == ENOENT || counter.error() == EOPNOTSUPP, "an unavailable event is not opened", "%s: %s",
            name, std::strerror(counter.error()));
      continue;
    }
    counter.enable();
    work_for(0.05);
    counter.disable();
    check(counter.error() == 0 && counter.read().count < 100, "an event that AMD cannot call unavailable stands still",
          "%s: %" PRIu64, name, counter.read().count);
  }
}

void stands_still_by_ring() {
  // As another user, who may count user mode alone; in a child, since there is no way back.
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    constexpr uid_t nobody = 65534;
    if (::setuid(nobody) != 0) ::_exit(2);
    perf_event_attr attr = cycles();
    attr.exclude_kernel = 1;
    Event counter{attr};
    if (counter.error() != 0) ::_exit(3);
    counter.enable();
    work_for(0.1);
    counter.disable();
    ::_exit(counter.read().count == 0 ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "cycles:u of another user does not count on this host",
        "status %d", WEXITSTATUS(status));
}

void multiplexes(int count, double run_seconds, double tsc_hz) {
  std::vector<std::unique_ptr<Event>> events;
  for (int n = 0; n < count; ++n) events.push_back(std::make_unique<Event>(cycles()));
  for (const auto& one : events) one->enable();
  const double began = thread_seconds();
  work_for(run_seconds);
  const double took = thread_seconds() - began;
  std::string shares;
  std::uint64_t least = ~std::uint64_t{0};
  double low = 1e9;
  double high = 0;
  for (const auto& one : events) {
    one->disable();
    const Reading reading = one->read();
    const std::uint64_t share = reading.running * 100 / std::max<std::uint64_t>(1, reading.enabled);
    least = std::min(least, share);
    const double scaled = static_cast<double>(reading.count) * static_cast<double>(reading.enabled) /
                          static_cast<double>(std::max<std::uint64_t>(1, reading.running)) / (took * tsc_hz);
    low = std::min(low, scaled);
    high = std::max(high, scaled);
    shares += ' ' + std::to_string(share) + '%';
  }
  check(least >= 25 && high < 1.3 * low, "more events than counters take turns, and scaled they agree",
        "%.2f to %.2f of thread CPU time; ran%s", low, high, shares.c_str());
}

/// Each CPU counts its own: a busy one and an idle one at a time; and two threads sampled under a storm of IPIs.
void counts_each_cpu(double tsc_hz) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  ::sched_setaffinity(0, sizeof set, &set);
  Event busy{cycles(), -1, 0};
  Event idle{cycles(), -1, 1};
  if (busy.error() != 0 || idle.error() != 0) return check(false, "cycles of two CPUs", "cannot be opened");
  busy.enable();
  idle.enable();
  const double began = seconds(CLOCK_MONOTONIC);
  work_for(1.0);
  const double took = seconds(CLOCK_MONOTONIC) - began;
  busy.disable();
  idle.disable();
  const double mine = static_cast<double>(busy.read().count) / (took * tsc_hz);
  const double other = static_cast<double>(idle.read().count) / (took * tsc_hz);
  check(mine > 0.3 && other < 0.1, "each vCPU counts its own", "busy %.1f %%, idle %.1f %% of wall", 100 * mine,
        100 * other);
}

void samples_in_an_ipi_storm() {
  std::array<std::uint64_t, 2> samples{};
  std::array<std::uint64_t, 2> expected{};
  std::atomic<bool> over{false};
  // Each change of a mapping that both use is an IPI to the other CPU.
  std::thread storm{[&] {
    while (!over) {
      void* map = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      *static_cast<volatile char*>(map) = 1;
      ::munmap(map, 4096);
      std::this_thread::sleep_for(std::chrono::microseconds{500});
    }
  }};
  std::vector<std::thread> threads;
  for (std::size_t n = 0; n < 2; ++n) {
    threads.emplace_back([&, n] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(n, &set);
      ::sched_setaffinity(0, sizeof set, &set);
      constexpr std::uint64_t period = 50000000;
      perf_event_attr attr = cycles();
      attr.sample_period = period;
      attr.sample_type = PERF_SAMPLE_IP;
      Event counter{attr};
      if (counter.error() != 0 || !counter.map()) return;
      counter.enable();
      work_for(1.0);
      counter.disable();
      expected[n] = counter.read().count / period;
      samples[n] = counter.samples().addresses.size();
    });
  }
  for (std::thread& thread : threads) thread.join();
  over = true;
  storm.join();
  check(expected[0] > 0 && expected[1] > 0 && samples == expected, "an IPI storm loses no sample",
        "%" PRIu64 " of %" PRIu64 ", %" PRIu64 " of %" PRIu64, samples[0], expected[0], samples[1], expected[1]);
}

bool has(int argc, char** argv, const char* word) {
  return std::any_of(argv + 1, argv + argc, [word](const char* each) { return std::strcmp(each, word) == 0; });
}

}  // namespace

int main(int argc, char** argv) {
  const double tsc_hz = measure_tsc_hz();
  std::printf("TSC %.0f MHz, %ld CPUs\n", tsc_hz / 1e6, ::sysconf(_SC_NPROCESSORS_ONLN));
  if (has(argc, argv, "work")) {
    work_for(1.0);
    return 0;
  }
  if (has(argc, argv, "cpus")) {
    counts_each_cpu(tsc_hz);
    samples_in_an_ipi_storm();
  } else if (has(argc, argv, "multiplex")) {
    // With the watchdog, one more than the most counters of a profile; AMD has 6.
    multiplexes(has(argc, argv, "intel") ? 9 : 7, 10, tsc_hz);
  } else {
    counts_cycles(tsc_hz);
    idles(tsc_hz);
    samples_at(50000000, 1);
    samples_at(10000000, 0.25);
    samples_by_frequency(100, tsc_hz);
    refuses_the_unavailable(has(argc, argv, "intel"));
    stands_still_by_ring();
  }
  std::printf("checks: %d passed, %d failed, %d disturbed\n", passed, failed, disturbed);
  return failed == 0 ? 0 : 1;
}
