// Host events of this Linux system: perf_event_open(2).
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

#include "vpmu/counter.hpp"
#include "vpmu/host/host_calls.hpp"
#include "vpmu/host/linux_perf_system.hpp"
#include "vpmu/host/signal_hints.hpp"
#include "vpmu/host_events.hpp"

namespace vpmu {

/// perf events of one thread, the vCPU's. The hint is a signal to that thread, which must not block it.
///
/// Hardware events are pinned and count the guest alone, at the privilege levels that are asked for. Reads are free
/// where RDPMC works through the event's user page. The software clocks count whatever is asked for as nanoseconds that
/// the thread ran, in or out of a guest, at all levels: real system calls and signals for tests and benchmarks, not a
/// guest's backing. They never set exclude_kernel, which would stop the signals while in KVM_RUN.
///
/// Where RDPMC is not to be had, Reads::group makes one system call do for all events and a whole VM exit: the first
/// peek() reads the group, later ones of the same exit answer from that. It needs guest_left() at each exit.
///
/// Nothing is allocated after construction: at most max_counters events at a time.
class LinuxPerf final : public HostEvents, private SignalReceiver {
 public:
  enum class Source : std::uint8_t {
    hardware,
    task_clock,  // PERF_COUNT_SW_TASK_CLOCK
    cpu_clock,   // PERF_COUNT_SW_CPU_CLOCK
  };

  enum class Reads : std::uint8_t {
    each,   // one by one
    group,  // all in one call. The events are one perf group: the host must have a counter for each at the same time
  };

  struct Options {
    Source source = Source::hardware;
    Reads reads = Reads::each;
    /// Thread id of the vCPU; 0: the thread that constructs this.
    pid_t thread = 0;
    /// A real-time signal; 0: signal_hints::default_signal().
    int signal = 0;
    /// Set to 1 by the signal handler, if given: kvm_run::immediate_exit, so that a signal just before KVM_RUN is not
    /// slept through.
    std::uint8_t* kick = nullptr;
    /// Whose event codes PERF_TYPE_RAW takes; unset: this processor's.
    std::optional<Vendor> host_vendor = std::nullopt;
    PerfSystem* system = nullptr;  // null: this Linux
  };

  /// Longest distance that perf takes: it refuses 2^63, and never takes a period on an event opened with 0.
  static constexpr std::uint64_t longest_period = std::uint64_t{1} << 62;
  /// Shortest period of a software clock in ns. The kernel itself stops at 10,000, where a loaded thread makes no
  /// progress any more.
  static constexpr std::uint64_t shortest_clock_period = 50000;

  explicit LinuxPerf(const Options& options);
  LinuxPerf() : LinuxPerf{Options{}} {}
  ~LinuxPerf();

  /// The guest stopped: what it counted since the last exit is not known yet. Before VirtualPmu::leave().
  void guest_left() { group_is_read_ = false; }

  Result<HostEvent, HostError> open(const HostEventSpec& spec, std::uint64_t period) override;
  void close(HostEvent event) override;
  Status<HostError> set_period(HostEvent event, std::uint64_t period) override;
  Status<HostError> enable(HostEvent event) override;
  Status<HostError> disable(HostEvent event) override;
  Result<std::uint64_t, HostError> read(HostEvent event) override;
  Result<std::uint64_t, HostError> peek(HostEvent event) override;

  /// Calls of the port. One open() is five system calls (six with a user page): system_calls() has them all.
  [[nodiscard]] HostCallCounts calls() const;
  [[nodiscard]] std::uint64_t system_calls() const { return system_calls_; }
  void reset_calls();
  /// Why signals can't come (an error number of sigaction(2)), or 0.
  [[nodiscard]] int signal_error() const { return signal_error_; }

 private:
  static constexpr int no_fd = -1;

  struct Slot {
    std::atomic<int> fd{no_fd};          // read by the signal handler
    std::atomic<CounterSet> counter{0};  // read by the signal handler
    const volatile perf_event_mmap_page* page = nullptr;
    bool enabled = false;
    std::uint64_t id = 0;     // of the group's read
    std::uint64_t count = 0;  // as the group was last read
  };

  void on_signal(int fd) override;
  Slot* find(HostEvent event);
  int open_leader();
  [[nodiscard]] std::uint64_t clock_code() const;
  Status<HostError> read_group();
  Result<std::uint64_t, HostError> peek_page(const Slot& slot);
  bool describe_event(const HostEventSpec& spec, perf_event_attr& attr) const;
  bool describe_hardware(const HostEventSpec& spec, perf_event_attr& attr) const;
  int request_signals(int fd);
  int call_ioctl(int fd, unsigned long request, std::uint64_t* argument);
  [[nodiscard]] std::uint64_t usable_period(std::uint64_t period, CounterId counter);

  Options options_;
  PerfSystem& system_;
  Vendor host_vendor_;
  int signal_error_ = 0;
  int leader_ = no_fd;
  int leader_error_ = 0;
  bool group_is_read_ = false;
  HostCallCounts calls_{};
  std::uint64_t system_calls_ = 0;
  std::atomic<std::uint64_t> signals_{0};
  std::array<Slot, max_counters> slots_{};
};

}  // namespace vpmu
