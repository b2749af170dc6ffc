// The rows of one virtual PMU in a timeline: what its host did, its PMIs, and each counter.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lab/guest_host.hpp"
#include "lab/recorded_events.hpp"
#include "lab/timeline.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {

/// What the guest's event select, or its fixed counter, counts: "Instruction Retired", "event 0xd1, unit mask 0x2".
std::string event_name(const VirtualPmu& pmu, CounterId counter);

/// A register for a slice's args, with its name if it is a PMU's.
Timeline::Args register_args(std::uint32_t index);
/// A value as people write those of registers.
std::string hex(std::uint64_t value);

class PmuTimeline final : public HostCallLog {
 public:
  /// Places in a process, from the PMU's first one on.
  enum Place : std::uint32_t { exits, host_work, pmis, handler, first_counter };
  static constexpr std::uint32_t places = first_counter + max_counters;

  /// ns; called from attach() on.
  using Clock = std::function<std::uint64_t()>;

  PmuTimeline(Timeline& out, Timeline::Process process, Clock clock, std::uint32_t first_place = 0,
              std::string prefix = {})
      : out_{out}, process_{process}, clock_{std::move(clock)}, first_place_{first_place}, prefix_{std::move(prefix)} {}

  /// Mediated or emulated: the host says. Both outlive all calls but this.
  void attach(const VirtualPmu& pmu, GuestHost& host);

  /// After VirtualPmu::leave(), for a VM exit at this time.
  void exited(std::uint64_t at);
  /// The guest wrote this register, itself or by an exit.
  void wrote(Msr msr);
  /// VirtualPmu::enter() asked for a PMI.
  void pmi(const Timeline::Args& args = {});
  /// After VirtualPmu::enter(), when the guest runs.
  void entered();
  void host_call(const HostCall& call) override;

  /// The row at this place, made when it is first used.
  Timeline::Row row(std::uint32_t place, const char* name);
  [[nodiscard]] std::uint64_t now() const { return clock_(); }

 private:
  struct Counter {
    std::uint64_t value = 0;  // as last looked at
    bool on = false;          // its window is open
    std::uint64_t control = 0;
    Health health = Health::idle;
  };

  Timeline::Row counter_row(CounterId counter);
  /// The time; in the course of a VM exit, that of the exit.
  [[nodiscard]] std::uint64_t time() const { return in_guest_ ? now() : exited_at_; }
  [[nodiscard]] CounterSet counting() const;
  [[nodiscard]] std::uint64_t status() const;
  /// Notes overflows since the last look, but of counters that the guest wrote.
  void look(std::uint64_t at, CounterSet written = 0);
  void close_windows(CounterSet but, std::uint64_t at);
  void open_windows(CounterSet on, std::uint64_t at);
  [[nodiscard]] Health health(CounterId counter) const;
  /// Mediated: what the switch cost since the last time.
  void switched(const char* name);
  /// The host works: from the VM exit on, one thing after the other.
  void work(const char* name, std::uint64_t cost_ps, const Timeline::Args& args);

  Timeline& out_;
  Timeline::Process process_;
  Clock clock_;
  std::uint32_t first_place_;
  std::string prefix_;
  const VirtualPmu* pmu_ = nullptr;
  GuestHost* host_ = nullptr;
  bool in_guest_ = false;
  std::uint64_t exited_at_ = 0;
  std::uint64_t busy_until_ = 0;  // the host works
  std::uint64_t busy_ps_ = 0;     // and part of a ns more
  std::uint64_t status_ = 0;      // as last looked at
  CounterSet unreported_ = 0;     // overflowed in the hardware, and the status does not say so yet
  HostUse used_;
  std::array<Counter, max_counters> counters_{};
};

}  // namespace vpmu::lab
