// Host events on top of a modelled PMU, as the perf core of a Linux host provides them.
#pragma once

#include <array>
#include <cstdint>

#include "host/model/cost.hpp"
#include "host/model/hardware.hpp"
#include "host/model/platform.hpp"
#include "vpmu/host/host_calls.hpp"
#include "vpmu/host_events.hpp"

namespace vpmu::model {

struct PerfOptions {
  /// Whether counts can be read by RDPMC with the user page, without a call.
  bool free_reads = true;
  /// Physical counters that others keep, as a watchdog does.
  CounterSet taken = 0;
};

/// The modelled host's events. Each holds a physical counter from open() to close(): the fixed one of its event if that
/// is free, else a general-purpose one. Events count in guest mode alone: on AMD by GuestOnly, on Intel because VM
/// entry and exit switch GLOBAL_CTRL. Exact: never multiplexed, never late by more than the stretch given to advance().
///
/// What the host can count is said in the guest's codes, of either vendor, and Linux's pseudo-code 0x0300 for reference
/// cycles; all else is HostError::unsupported.
class PerfModel final : public HostEvents {
 public:
  /// Takes the hardware over: from now on its registers are this object's. `hardware` outlives it.
  explicit PerfModel(HardwarePmu& hardware, const PerfOptions& options = {},
                     const Platform& platform = platforms().front());

  // --- The port ---
  Result<HostEvent, HostError> open(const HostEventSpec& spec, std::uint64_t period) override;
  void close(HostEvent event) override;
  Status<HostError> set_period(HostEvent event, std::uint64_t period) override;
  Status<HostError> enable(HostEvent event) override;
  Status<HostError> disable(HostEvent event) override;
  Result<std::uint64_t, HostError> read(HostEvent event) override;
  Result<std::uint64_t, HostError> peek(HostEvent event) override;

  // --- Time ---
  /// A stretch of execution happens on the hardware; PMIs that it raises are served at its end. Gives the guest
  /// counters that were hinted at.
  CounterSet advance(const Activity& activity, Ring ring, Mode mode = Mode::guest);
  /// The host's PMI handler: counters that overflowed start their next period, and hint if one passed. advance() calls
  /// it; whoever advances the hardware itself calls it when the PMI line fires. Gives the guest counters hinted at.
  CounterSet on_hardware_pmi();
  [[nodiscard]] const Headroom& headroom(Ring ring) { return hardware_.headroom(ring, Mode::guest); }
  [[nodiscard]] bool uses(Event event) { return hardware_.uses(event, Mode::guest); }
  [[nodiscard]] bool uses_edges() { return hardware_.uses_edges(Mode::guest); }

  // --- Cost ---
  [[nodiscard]] const HostCallCounts& calls() const { return calls_; }
  /// Register accesses behind those calls and the PMI handler.
  [[nodiscard]] const AccessCounts& accesses() const { return accesses_; }
  /// Of all calls, PMIs and free reads so far, on the platform. Grows; take differences.
  [[nodiscard]] std::uint64_t cost_picoseconds() const {
    return prices_.picoseconds(calls_) + prices_.picoseconds(accesses_);
  }
  [[nodiscard]] const Prices& prices() const { return prices_; }

  [[nodiscard]] std::uint32_t open_events() const;

 private:
  struct Slot {
    bool open = false;
    bool enabled = false;
    std::uint32_t generation = 0;  // tells a handle from those of former events in this slot
    CounterId guest_counter = CounterId::gp(0);
    std::uint64_t selector = 0;  // what enables it; fixed: its field of FIXED_CTR_CTRL
    std::uint64_t count = 0;     // up to `last`
    std::uint64_t last = 0;      // the hardware's value when it was last looked at
    std::uint64_t period = 0;
    std::uint64_t left = 0;  // events from `last` to the next hint, 1 to period
  };
  /// What to program for a spec.
  struct Plan {
    CounterSet counters = 0;     // that could count it
    std::uint64_t selector = 0;  // on a general-purpose one
    std::uint64_t fixed = 0;     // FIXED_CTR_CTRL's field
  };

  [[nodiscard]] Plan plan(const HostEventSpec& spec) const;
  Slot* find(HostEvent event);
  static CounterId physical(HostEvent event);
  [[nodiscard]] std::uint64_t mask_of(CounterId counter) const;
  [[nodiscard]] std::uint64_t longest_chunk(CounterId counter) const;

  void write(Msr msr, std::uint64_t value);
  std::uint64_t read_counter(CounterId counter);
  void pause_all();
  void resume_all();
  void program(CounterId counter);
  void start(CounterId counter);
  void stop(CounterId counter);
  bool catch_up(CounterId counter);
  void look(CounterId counter);
  CounterSet serve(CounterId counter);
  void hint_at(CounterId counter);

  HardwarePmu& hardware_;
  PerfOptions options_;
  Prices prices_;
  CounterSet open_ = 0;
  CounterSet enabled_ = 0;
  std::uint64_t fixed_ctrl_ = 0;
  std::uint32_t batch_bits_ = 0;
  HostCallCounts calls_{};
  AccessCounts accesses_{};
  std::array<Slot, max_counters> slots_{};
};

}  // namespace vpmu::model
