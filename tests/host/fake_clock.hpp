// Time for tests: the thread runs when a test says so, and its timers send real signals to it.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <map>

#include "vpmu/host/clock_system.hpp"

namespace vpmu::test {

class FakeClock final : public ClockSystem {
 public:
  explicit FakeClock(std::uint64_t cycles_a_ns = 1) : cycles_a_ns_{cycles_a_ns} {}

  struct Timer {
    int signal = 0;
    int value = 0;
    std::uint64_t at = 0;  // 0: stopped
    std::uint64_t every = 0;
    std::uint64_t first = 0;  // as last set
  };

  /// The thread runs.
  void run(std::uint64_t ns) {
    cpu_ns_ += ns;
    pass(ns);
  }
  /// Time passes, and the thread does not run: halted or preempted.
  void stall(std::uint64_t ns) { pass(ns); }
  void lose_signals(bool on) { losing_ = on; }
  /// Each call of that kind fails with this error number from now on; 0: none.
  void fail_create(int error) { create_error_ = error; }
  void fail_set(int error) { set_error_ = error; }

  std::uint64_t tsc() override { return now_ * cycles_a_ns_; }
  std::uint64_t thread_cpu_ns() override {
    ++cpu_reads;
    return cpu_ns_ - cpu_behind_ns;
  }
  int create_timer(int signal, pid_t, int value) override {
    if (create_error_ != 0) return -create_error_;
    timers[next_] = {.signal = signal, .value = value};
    return next_++;
  }
  int set_timer(int timer, std::uint64_t first, std::uint64_t every) override {
    if (set_error_ != 0) return -set_error_;
    ++sets;
    Timer& it = timers.at(timer);
    it.first = first;
    it.at = first == 0 ? 0 : now_ + first;
    it.every = every;
    return 0;
  }
  int delete_timer(int timer) override {
    timers.erase(timer);
    return 0;
  }
  std::uint64_t measure_tsc_hz() override { return 1000000000 * cycles_a_ns_; }

  [[nodiscard]] const Timer& only() const { return timers.begin()->second; }

  std::map<int, Timer> timers;
  std::uint64_t cpu_behind_ns = 0;  // CPU time is accounted late by so much
  int cpu_reads = 0;
  int sets = 0;

 private:
  void pass(std::uint64_t ns) {
    now_ += ns;
    for (auto& [id, timer] : timers) {
      if (timer.at == 0 || timer.at > now_) continue;
      timer.at = timer.every == 0 ? 0 : timer.at + ((now_ - timer.at) / timer.every + 1) * timer.every;
      if (!losing_) send(timer);
    }
  }
  static void send(const Timer& timer) {
    siginfo_t info{};
    info.si_signo = timer.signal;
    info.si_code = SI_TIMER;
    info.si_value.sival_int = timer.value;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), info.si_signo, &info);
    usleep(0);  // sanitizers hold signals back until a call that they know
  }

  std::uint64_t cycles_a_ns_;
  std::uint64_t now_ = 1000;
  std::uint64_t cpu_ns_ = 77;
  int next_ = 1;
  int create_error_ = 0;
  int set_error_ = 0;
  bool losing_ = false;
};

}  // namespace vpmu::test
