#include "vpmu/host/clock_system.hpp"

#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>

namespace vpmu {
namespace {

constexpr std::uint64_t ns_per_second = 1000000000;

timespec split(std::uint64_t ns) {
  return {.tv_sec = static_cast<time_t>(ns / ns_per_second), .tv_nsec = static_cast<long>(ns % ns_per_second)};
}

std::uint64_t now(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * ns_per_second + static_cast<std::uint64_t>(time.tv_nsec);
}

/// Both at one moment, or nearly: the closest of a few tries.
struct Moment {
  std::uint64_t tsc = 0;
  std::uint64_t ns = 0;
};

Moment this_moment() {
  Moment best;
  std::uint64_t closest = ~std::uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t before = __rdtsc();
    const std::uint64_t ns = now(CLOCK_MONOTONIC_RAW);
    const std::uint64_t took = __rdtsc() - before;
    if (took >= closest) continue;
    closest = took;
    best = {before + took / 2, ns};
  }
  return best;
}

// The library's timer_create() hides the kernel's number in a pointer, and may start a thread.
class LinuxClockSystem final : public ClockSystem {
 public:
  std::uint64_t tsc() override { return __rdtsc(); }
  std::uint64_t thread_cpu_ns() override { return now(CLOCK_THREAD_CPUTIME_ID); }
  int create_timer(int signal, pid_t thread, int value) override {
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = signal;
    event.sigev_value.sival_int = value;
    event._sigev_un._tid = thread;
    int timer = 0;
    return ::syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &timer) == 0 ? timer : -errno;
  }
  int set_timer(int timer, std::uint64_t first, std::uint64_t every) override {
    const itimerspec times{.it_interval = split(first == 0 ? 0 : every), .it_value = split(first)};
    return ::syscall(SYS_timer_settime, timer, 0, &times, nullptr) == 0 ? 0 : -errno;
  }
  int delete_timer(int timer) override { return ::syscall(SYS_timer_delete, timer) == 0 ? 0 : -errno; }
  std::uint64_t measure_tsc_hz() override {
    constexpr std::uint64_t long_enough = 20000000;
    const Moment start = this_moment();
    Moment end = start;
    while (end.ns - start.ns < long_enough) end = this_moment();
    return (end.tsc - start.tsc) * ns_per_second / (end.ns - start.ns);
  }
};

}  // namespace

ClockSystem& linux_clock_system() {
  static LinuxClockSystem system;
  return system;
}

}  // namespace vpmu
