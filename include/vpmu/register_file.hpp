// The registers of one virtual PMU, and the arithmetic of counting. What a backing sees of a PMU.
#pragma once

#include <array>
#include <cstdint>

#include "vpmu/counter.hpp"
#include "vpmu/event_filter.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/host_events.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"
#include "vpmu/register_rules.hpp"

namespace vpmu {

/// Instructions that a VMM completes for its guest count as these events.
enum class EmulatedEvent : std::uint8_t { instruction, branch };
inline constexpr std::size_t emulated_event_count = 2;

/// Register values and what follows from them. Host-independent; all times and hosts meet in add() and overflow.
class RegisterFile {
 public:
  RegisterFile(const Profile& profile, const Policy& policy);

  [[nodiscard]] const Profile& profile() const { return profile_; }
  [[nodiscard]] const Policy& policy() const { return policy_; }

  // --- What a backing asks ---

  /// Counters that count now: enabled here and globally, at some privilege level, let through by the filter, not
  /// frozen.
  [[nodiscard]] CounterSet active() const { return active_; }
  /// Counters that their own control enables at some privilege level, and the filter lets through.
  [[nodiscard]] CounterSet locally_enabled() const { return armed_; }
  /// The guest's value, without what the host has counted since the last fold.
  [[nodiscard]] std::uint64_t value(CounterId counter) const { return counters_[counter.slot()].value; }
  /// Events from this value to the overflow, 1 to 2^width.
  [[nodiscard]] std::uint64_t distance(CounterId counter) const {
    return mask_of(counter) - counters_[counter.slot()].value + 1;
  }
  /// The host event that counts what this counter's selector says.
  [[nodiscard]] HostEventSpec host_event(CounterId counter) const;
  /// The selector as the guest wrote it, general-purpose counters only.
  [[nodiscard]] std::uint64_t selector(CounterId counter) const { return counters_[counter.slot()].selector; }
  [[nodiscard]] std::uint64_t fixed_ctrl() const { return fixed_ctrl_; }
  [[nodiscard]] std::uint64_t global_ctrl() const { return global_ctrl_; }
  [[nodiscard]] std::uint64_t global_status() const { return global_status_; }
  [[nodiscard]] std::uint64_t debugctl() const { return debugctl_; }
  /// Counters whose event the filter lets through, whether enabled or not.
  [[nodiscard]] CounterSet let_through() const { return let_through_; }
  /// Counters whose overflow interrupts.
  [[nodiscard]] CounterSet interrupting() const { return interrupt_; }
  /// Another number after any change that a backing did not make itself.
  [[nodiscard]] std::uint32_t revision() const { return revision_; }

  // --- What a backing tells ---

  /// `events` more events happened in this counter. Each wrap overflows.
  void add(CounterId counter, std::uint64_t events);
  /// The counter's host event is armed at its distance: nothing counted by emulation is outstanding.
  void armed(CounterId counter) { counters_[counter.slot()].outstanding = 0; }
  /// Events by emulation since the host event was armed: by so much its hint comes late.
  [[nodiscard]] std::uint64_t outstanding(CounterId counter) const { return counters_[counter.slot()].outstanding; }
  /// How many may be outstanding (S4's T).
  [[nodiscard]] std::uint64_t tolerance(CounterId counter) const { return counters_[counter.slot()].tolerance; }
  // What the guest's own hardware registers hold, as mediated mode finds them.
  /// The counter's value. Whether it overflowed is for the status to say.
  void take_value(CounterId counter, std::uint64_t value) {
    counters_[counter.slot()].value = value & mask_of(counter);
  }
  void take_status(std::uint64_t status);
  void take_global_ctrl(std::uint64_t value);
  /// An overflow that interrupts was seen: the next entry reports a PMI.
  void raise_pmi() { pmi_pending_ = true; }

  /// Asks for Backing::enter() before the next VM entry, though no counter changed.
  void request_entry() { requested_ |= entry_request; }
  /// Asks for Backing::enter() with these counters before the next VM entry.
  void request(CounterSet counters) { requested_ |= counters; }

 private:
  friend class VirtualPmu;

  static constexpr CounterSet entry_request = CounterSet{1} << 63;  // no counter's bit

  struct Counter {
    std::uint64_t value = 0;
    std::uint64_t selector = 0;
    std::uint64_t outstanding = 0;
    std::uint64_t tolerance = 0;
  };
  /// Counters in which an emulated event counts, by the privilege level of the instruction.
  struct Matches {
    CounterSet user = 0;
    CounterSet kernel = 0;
  };

  [[nodiscard]] std::uint64_t mask_of(CounterId counter) const { return counter.is_fixed() ? fixed_mask_ : gp_mask_; }
  [[nodiscard]] CounterSet globally_enabled() const;
  void reset();
  /// A counter's own controls or the filter changed.
  void local_change(CounterId counter);
  /// Anything that decides what counts changed: works out active counters and matches, and requests those that change.
  void refresh();
  void overflow(CounterId counter);
  /// The counters in which an emulated event counts, found by looking at each of them.
  [[nodiscard]] CounterSet walk_matches(EmulatedEvent event, bool user) const;
  // Inline, and without the overflows, for its one caller: an emulated instruction is a matter of a few ns.
  void count_emulated(CounterSet counters) {
    ++revision_;
    CounterSet overflowed = 0;
    CounterSet due = 0;
    for_each_counter(counters, [&](CounterId counter) {
      Counter& state = counters_[counter.slot()];
      state.value = (state.value + 1) & mask_of(counter);
      ++state.outstanding;
      if (state.value == 0) [[unlikely]] {
        overflowed |= counter.mask();
      } else if (state.outstanding > state.tolerance) {
        due |= counter.mask();
      }
    });
    requested_ |= due;
    if (overflowed != 0) [[unlikely]]
      overflow_by_emulation(overflowed);
  }
  void overflow_by_emulation(CounterSet counters);
  void write_counter(CounterId counter, std::uint64_t value);
  void new_period(CounterId counter);

  // What the inline paths test comes first.
  std::array<Matches, emulated_event_count> retire_{};
  CounterSet requested_ = 0;
  bool pmi_pending_ = false;
  std::uint32_t revision_ = 0;

  CounterSet active_ = 0;
  CounterSet armed_ = 0;  // locally enabled and not filtered
  CounterSet user_ = 0;
  CounterSet kernel_ = 0;
  CounterSet interrupt_ = 0;
  CounterSet let_through_ = 0;
  std::array<CounterSet, emulated_event_count> matching_{};

  std::uint64_t global_ctrl_ = 0;
  std::uint64_t global_status_ = 0;
  std::uint64_t fixed_ctrl_ = 0;
  std::uint64_t debugctl_ = 0;
  std::uint64_t pebs_enable_ = 0;
  std::uint64_t pebs_data_cfg_ = 0;
  std::uint64_t ds_area_ = 0;
  std::uint64_t gp_mask_ = 0;
  std::uint64_t fixed_mask_ = 0;
  const EventFilter* filter_ = nullptr;
  Profile profile_;
  Policy policy_;
  arch::RegisterRules rules_;
  std::array<Counter, max_counters> counters_{};
};

}  // namespace vpmu
