// Calls to a host, by kind.
#pragma once

#include <cstdint>

namespace vpmu {

/// What a HostEvents object was asked for. One struct for all hosts, so that what a policy costs reads alike
/// everywhere.
struct HostCallCounts {
  std::uint64_t open = 0;
  std::uint64_t close = 0;
  std::uint64_t set_period = 0;
  std::uint64_t enable = 0;
  std::uint64_t disable = 0;
  std::uint64_t read = 0;
  std::uint64_t peek = 0;     // answered ones; no system call
  std::uint64_t signals = 0;  // hints that came as a signal

  /// Of the above: on an event that was enabled, which costs more.
  std::uint64_t live_set_period = 0;
  std::uint64_t live_read = 0;

  [[nodiscard]] std::uint64_t system_calls() const { return open + close + set_period + enable + disable + read; }
  friend bool operator==(const HostCallCounts&, const HostCallCounts&) = default;
  HostCallCounts& operator+=(const HostCallCounts& more) {
    open += more.open;
    close += more.close;
    set_period += more.set_period;
    enable += more.enable;
    disable += more.disable;
    read += more.read;
    peek += more.peek;
    signals += more.signals;
    live_set_period += more.live_set_period;
    live_read += more.live_read;
    return *this;
  }
};

}  // namespace vpmu
