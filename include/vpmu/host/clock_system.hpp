// The clocks and timers of ClockHost, so that tests can put time of their own in their place.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace vpmu {

/// System calls answer the negative error number where that sets errno.
class ClockSystem {
 public:
  /// The time-stamp counter, in cycles. No system call.
  virtual std::uint64_t tsc() = 0;
  /// CPU time of the calling thread in ns (CLOCK_THREAD_CPUTIME_ID). A system call: the vDSO does not know it.
  virtual std::uint64_t thread_cpu_ns() = 0;
  /// Its id. It sends `signal` with `value` to that thread.
  virtual int create_timer(int signal, pid_t thread, int value) = 0;
  /// First signal after `first` ns, then one each `every` ns, of CLOCK_MONOTONIC. first = 0 stops it.
  virtual int set_timer(int timer, std::uint64_t first, std::uint64_t every) = 0;
  virtual int delete_timer(int timer) = 0;
  /// Cycles of tsc() a second. May take some 10 ms.
  virtual std::uint64_t measure_tsc_hz() = 0;

 protected:
  ClockSystem() = default;
  ~ClockSystem() = default;
  ClockSystem(const ClockSystem&) = delete;
  ClockSystem& operator=(const ClockSystem&) = delete;
};

/// This Linux.
ClockSystem& linux_clock_system();

}  // namespace vpmu
