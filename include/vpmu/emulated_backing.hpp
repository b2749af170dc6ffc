// Emulated mode: each guest counter that counts has a host event.
#pragma once

#include <array>
#include <cstdint>

#include "vpmu/backing.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/health.hpp"
#include "vpmu/host_events.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/register_file.hpp"

namespace vpmu {

/// Backs the counters of one vCPU with events of the host. Whether a counter overflowed is decided from its count; the
/// host's hint only says when to look.
class EmulatedBacking final : public Backing {
 public:
  explicit EmulatedBacking(HostEvents& host);
  ~EmulatedBacking();

  void enter(RegisterFile& registers, CounterSet changed) override;
  void leave(RegisterFile& registers) override;
  void fold(RegisterFile& registers, CounterSet counters) override;
  void sched_out(RegisterFile& registers) override;
  void release() override;
  void set_policy(const Policy& policy) override { policy_ = policy; }
  [[nodiscard]] Health health(CounterId counter) const override { return health_[counter.slot()]; }

 private:
  struct Event {
    HostEvent handle = HostEvent::none;
    std::uint64_t counted = 0;    // the host's count at the last fold
    std::uint64_t period = 0;     // as last given to the host
    std::uint64_t remaining = 0;  // events to the host's next hint, as of the last fold; 0: not known
    std::uint64_t select = 0;     // HostEventSpec::select that it was opened with
  };

  [[nodiscard]] Event& event(CounterId counter) { return events_[counter.slot()]; }
  void turn_on(RegisterFile& registers, CounterId counter);
  void turn_off(CounterId counter);
  void open(RegisterFile& registers, CounterId counter);
  void close(CounterId counter);
  void arm(RegisterFile& registers, CounterId counter);
  void reprogram(RegisterFile& registers, CounterId counter);
  bool matches_spec(const RegisterFile& registers, CounterId counter) const;
  void fail(CounterId counter, HostError error);

  HostEvents& host_;
  Policy policy_;
  CounterSet open_ = 0;     // has a host event
  CounterSet running_ = 0;  // its host event is enabled
  CounterSet stale_ = 0;    // ran since its count was last folded
  CounterSet used_ = 0;     // counted during this time slice
  CounterSet user_ = 0;     // opened with HostEventSpec::user
  CounterSet kernel_ = 0;
  std::array<Health, max_counters> health_{};
  std::array<Event, max_counters> events_{};
};

}  // namespace vpmu
