// Port: the host's event counters, as emulated mode needs them.
#pragma once

#include <atomic>
#include <cstdint>

#include "vpmu/counter.hpp"
#include "vpmu/profile.hpp"
#include "vpmu/result.hpp"

namespace vpmu {

/// What a host event is to count, in the guest's own terms.
struct HostEventSpec {
  /// Event select, unit mask, edge, invert, counter mask and bits 35:32 as in the guest's selector; all else 0.
  std::uint64_t select = 0;
  Vendor vendor = Vendor::intel;
  bool user = false;    // count at CPL 1 to 3
  bool kernel = false;  // count at CPL 0
  /// The guest counter it serves. A fixed one: its number says the event, select is 0.
  CounterId counter = CounterId::gp(0);
  friend constexpr bool operator==(const HostEventSpec&, const HostEventSpec&) = default;
};

/// Why the host refused.
enum class HostError : std::uint8_t {
  no_counter,           // none free now (EBUSY, ENOSPC)
  no_resources,         // descriptors or memory (EMFILE, ENOMEM)
  not_permitted,        // EACCES, EPERM
  unsupported,          // this host can't count this event (ENOENT, EOPNOTSUPP)
  no_privilege_filter,  // this host can't tell user from kernel, and only one of them is to count
  lost,                 // the host took the event away: it does not count any more
  unavailable,          // no free read of this event: use read()
  failed,               // anything else
};

/// One line for a person, without a full stop.
const char* describe(HostError error);

/// One host event of a HostEvents object.
enum class HostEvent : std::int32_t { none = -1 };

/// The host's event counters for one vCPU. Events count only while the guest runs.
///
/// A count is the number of events since open(); it never goes back. A period is a distance in events; when it has
/// passed, the host gives a hint and starts the same period again. All calls come from the vCPU's thread.
class HostEvents {
 public:
  /// Opens an event that does not count yet. `period`: events to the first hint, at least 1.
  virtual Result<HostEvent, HostError> open(const HostEventSpec& spec, std::uint64_t period) = 0;
  virtual void close(HostEvent event) = 0;
  /// Restarts the distance to the next hint: `period` events from now.
  virtual Status<HostError> set_period(HostEvent event, std::uint64_t period) = 0;
  virtual Status<HostError> enable(HostEvent event) = 0;
  virtual Status<HostError> disable(HostEvent event) = 0;
  /// Its count, whatever that costs (a system call).
  virtual Result<std::uint64_t, HostError> read(HostEvent event) = 0;
  /// Its count where that costs no call, else HostError::unavailable.
  virtual Result<std::uint64_t, HostError> peek(HostEvent event) = 0;

  /// Says that events of these counters may have overflowed. Safe in a signal handler and on any thread.
  void hint(CounterSet counters) { hints_.fetch_or(counters, std::memory_order_release); }
  [[nodiscard]] const std::atomic<CounterSet>& hints() const { return hints_; }
  CounterSet take_hints() { return hints_.exchange(0, std::memory_order_acquire); }

  /// Counters whose period is shorter than this host can keep: they count right, and their hints come late.
  [[nodiscard]] CounterSet clamped() const { return clamped_; }

 protected:
  HostEvents() = default;
  ~HostEvents() = default;
  HostEvents(const HostEvents&) = delete;
  HostEvents& operator=(const HostEvents&) = delete;

  void set_clamped(CounterSet counters) { clamped_ = counters; }

 private:
  std::atomic<CounterSet> hints_{0};
  CounterSet clamped_ = 0;
};

}  // namespace vpmu
