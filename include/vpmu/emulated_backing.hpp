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
/// host's hint only says when to look, and may come early, late, merged or not at all.
class EmulatedBacking final : public Backing {
 public:
  /// The host serves this vCPU alone and outlives the backing.
  explicit EmulatedBacking(HostEvents& host) : Backing{host.hints(), false}, host_{host} {}
  ~EmulatedBacking() { release(); }

  void enter(RegisterFile& registers, CounterSet changed) override;
  void leave(RegisterFile& registers) override;
  void fold(RegisterFile& registers, CounterSet counters) override {
    const CounterSet untracked = policy_.pause == Policy::Pause::untracked ? open_ : 0;
    counters &= (stale_ | untracked) & ~soft_off_;
    if (counters != 0) fold_events(registers, counters);
  }
  void fold_overflows(RegisterFile& registers, CounterSet counters) override;
  void before_pmi(RegisterFile& registers) override;
  void sched_out(RegisterFile& registers) override;
  void release() override;
  void set_policy(const Policy& policy) override { policy_ = policy; }
  [[nodiscard]] Health health(CounterId counter) const override {
    const Health health = health_[counter.slot()];
    return health == Health::counting && (host_.clamped() & counter.mask()) != 0 ? Health::clamped : health;
  }

 private:
  /// The host event of a counter. Its hint is due `remaining` events after the `counted`-th, `early` events before the
  /// guest's overflow.
  struct Event {
    HostEvent handle = HostEvent::none;
    std::uint64_t select = 0;     // HostEventSpec::select that it counts
    std::uint64_t counted = 0;    // the host's count, as last folded
    std::uint64_t period = 0;     // as last set
    std::uint64_t remaining = 0;  // 0: not known
    std::uint64_t early = 0;      // events that ran while the guest's counter was off
    std::uint64_t pause = 0;      // events that a soft pause may last, from those of this time slice
    std::uint64_t resumed = 0;    // the host's count at the end of its last soft pause
    std::uint64_t stretch = 0;    // events from one soft pause to the next, as last seen
  };

  [[nodiscard]] Event& event(CounterId counter) { return events_[counter.slot()]; }
  void turn_on(RegisterFile& registers, CounterId counter);
  void turn_off(RegisterFile& registers, CounterId counter);
  void open(RegisterFile& registers, CounterId counter);
  void close(CounterId counter);
  /// Closes the host events of counters that are off, but these; false if there was none.
  bool close_unused(RegisterFile& registers, CounterSet but);
  void enable(CounterId counter);
  bool disable(CounterId counter);
  void resume_soft(CounterId counter);
  void set_distance(RegisterFile& registers, CounterId counter);
  void reprogram(RegisterFile& registers, CounterId counter);
  [[nodiscard]] bool counts_the_same(const RegisterFile& registers, CounterId counter) const;
  [[nodiscard]] bool hint_is_in_time(const RegisterFile& registers, CounterId counter) const;
  [[nodiscard]] bool early_hint_is_next(CounterId counter) const;
  void fold_events(RegisterFile& registers, CounterSet counters);
  Result<std::uint64_t, HostError> count(CounterId counter);
  void take(RegisterFile& registers, CounterId counter, std::uint64_t now);
  void fail(CounterId counter, HostError error);

  HostEvents& host_;
  Policy policy_;
  CounterSet open_ = 0;      // has a host event
  CounterSet running_ = 0;   // its host event is enabled
  CounterSet stale_ = 0;     // ran for the guest since its count was last folded
  CounterSet soft_off_ = 0;  // its host event runs on though the guest's counter is off
  CounterSet used_ = 0;      // was on during this time slice
  CounterSet failed_ = 0;    // should be on, and is not
  CounterSet user_ = 0;      // its host event counts at user level
  CounterSet kernel_ = 0;    // its host event counts at kernel level
  std::array<Health, max_counters> health_{};
  std::array<Event, max_counters> events_{};
};

}  // namespace vpmu
