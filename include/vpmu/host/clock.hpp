// Host events without a PMU: the vCPU thread's own time in the guest, as cycles.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>

#include "vpmu/counter.hpp"
#include "vpmu/host/clock_system.hpp"
#include "vpmu/host/host_calls.hpp"
#include "vpmu/host/signal_hints.hpp"
#include "vpmu/host_events.hpp"

namespace vpmu {

/// Core and reference cycles at the TSC's rate; user and kernel can't be told apart. Every other event is unsupported.
///
/// A cycle counts while the thread runs between guest_entered() and guest_left(). The time-stamp counter measures that
/// without a system call, but goes on while the thread does not run: it is halted or was preempted. So each interval
/// that was long enough to hide that, in the guest or out of it, is ended by one look at the thread's CPU time
/// (CLOCK_THREAD_CPUTIME_ID), and what the thread did not run is taken off. Shorter ones are believed: a preemption
/// shorter than `Options::trusted_ns` counts as guest time until the next such look. Reads are always free: outside the
/// guest the count stands still.
///
/// Each event has a timer, one system call to set. It runs in real time, which passes at least as fast as the guest's:
/// it comes early by what the guest did not run, and is then set for the rest. guest_left() also sees without it what
/// has become due. All calls, and construction, on the vCPU's thread, which must not block the signal, and outside the
/// guest.
class ClockHost final : public HostEvents, private SignalReceiver {
 public:
  struct Options {
    /// Rate of the time-stamp counter; 0: measured, which takes 20 ms.
    std::uint64_t tsc_hz = 0;
    /// Intervals up to this length are taken to be without a break. 0: none is, which costs a system call at each entry
    /// and each exit.
    std::uint64_t trusted_ns = 20000;
    /// A real-time signal; 0: signal_hints::default_signal().
    int signal = 0;
    /// Set to 1 by the signal handler, if given: kvm_run::immediate_exit.
    std::uint8_t* kick = nullptr;
    ClockSystem* system = nullptr;  // null: this Linux
  };

  /// No timer is set for less: a signal every few microseconds would leave no time for the guest.
  static constexpr std::uint64_t shortest_timer_ns = 50000;
  /// After its first signal a timer repeats no faster than this. A halted guest is woken no more often.
  static constexpr std::uint64_t backstop_ns = 10000000;

  explicit ClockHost(const Options& options);
  ClockHost() : ClockHost{Options{}} {}
  ~ClockHost();

  /// Just before the guest runs.
  void guest_entered() {
    if (open_ != 0) enter_guest();
  }
  /// Just after it stopped, before VirtualPmu::leave().
  void guest_left() {
    if (in_guest_) leave_guest();
  }

  Result<HostEvent, HostError> open(const HostEventSpec& spec, std::uint64_t period) override;
  void close(HostEvent event) override;
  Status<HostError> set_period(HostEvent event, std::uint64_t period) override;
  Status<HostError> enable(HostEvent event) override;
  Status<HostError> disable(HostEvent event) override;
  Result<std::uint64_t, HostError> read(HostEvent event) override { return peek(event); }
  Result<std::uint64_t, HostError> peek(HostEvent event) override;

  /// Calls of the port; system_calls() has those of the kernel.
  [[nodiscard]] HostCallCounts calls() const;
  [[nodiscard]] std::uint64_t system_calls() const { return system_calls_; }
  void reset_calls();
  [[nodiscard]] std::uint64_t tsc_hz() const { return tsc_hz_; }

 private:
  using SlotSet = std::uint32_t;
  static_assert(max_counters <= signal_hints::timers_per_host);

  struct Slot {
    CounterSet counter = 0;
    int timer = 0;
    bool armed = false;        // the timer will signal, at the due time or earlier
    std::uint64_t period = 0;  // cycles
    std::uint64_t count = 0;   // enabled: guest_ minus this is the count
    std::uint64_t due = 0;     // enabled: value of guest_ at the next hint; else cycles to it
    std::uint64_t set_at = 0;  // value of guest_ when the timer was set
    std::uint64_t set_tsc = 0;
  };

  void on_signal(int number) override;
  void enter_guest();
  void leave_guest();
  std::uint64_t take_stolen(std::uint64_t now);
  void look(SlotSet fired);
  void on_timer(Slot& slot, bool enabled);
  void pass_period(Slot& slot);
  Status<HostError> arm(Slot& slot, std::uint64_t cycles, std::uint64_t shortest_ns = shortest_timer_ns);
  int set_timer(const Slot& slot, std::uint64_t first, std::uint64_t every);
  void find_next_due();
  Slot* find(HostEvent event);
  [[nodiscard]] SlotSet mask_of(const Slot& slot) const {
    return SlotSet{1} << static_cast<unsigned>(&slot - slots_.data());
  }
  [[nodiscard]] std::uint64_t cycles_of(std::uint64_t ns) const;
  [[nodiscard]] std::uint64_t ns_of(std::uint64_t cycles) const;

  // What entries and exits test comes first.
  SlotSet open_ = 0;
  SlotSet enabled_ = 0;
  bool in_guest_ = false;
  std::uint64_t guest_ = 0;     // cycles in the guest so far
  std::uint64_t next_due_ = 0;  // the least `due` of an enabled event
  std::uint64_t mark_ = 0;      // TSC at the last entry or exit
  std::uint64_t trusted_ = 0;   // cycles
  std::atomic<SlotSet> fired_{0};

  std::uint64_t known_tsc_ = 0;  // TSC and CPU time as last compared
  std::uint64_t known_cpu_ = 0;  // ns
  std::uint64_t stretch_ = one;  // real time for each guest cycle, in 1/one
  static constexpr std::uint64_t one = 1024;

  Options options_;
  ClockSystem& system_;
  pid_t thread_ = 0;
  int host_number_ = -1;
  int signal_error_ = 0;
  std::uint64_t tsc_hz_ = 0;
  HostCallCounts calls_{};
  std::uint64_t system_calls_ = 0;
  std::atomic<std::uint64_t> signals_{0};
  std::array<Slot, max_counters> slots_{};
};

}  // namespace vpmu
