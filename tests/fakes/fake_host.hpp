// A host for tests and benchmarks: exact, free, counting its calls, and failing on demand.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "vpmu/event_select.hpp"
#include "vpmu/host/host_calls.hpp"
#include "vpmu/host_events.hpp"

namespace vpmu::fakes {

enum class HostCall : std::uint8_t { open, close, set_period, enable, disable, read, peek };
inline constexpr std::size_t host_call_count = 7;

/// One call, as the log keeps it.
struct LoggedCall {
  HostCall call = HostCall::open;
  HostEvent event = HostEvent::none;  // open: the new one, none if it failed
  std::uint64_t value = 0;            // open and set_period: the period; read and peek: the count
  bool ok = true;
};

/// Events happen when a test says so, and count in every open, enabled event that it means. Nothing is allocated: up to
/// `max_events` events at a time, and the last `log_size` calls in the log.
class FakeHost final : public HostEvents {
 public:
  static constexpr std::size_t max_events = 64;
  static constexpr std::size_t log_size = 1024;

  explicit FakeHost(bool free_reads = true) : free_reads_{free_reads} {}

  // --- What the host is like ---

  void set_free_reads(bool on) { free_reads_ = on; }
  void set_logging(bool on) { logging_ = on; }
  /// As if the host had that many counters.
  void set_counters(std::size_t counters) { counters_ = counters < max_events ? counters : max_events; }

  /// The nth call of this kind from now on (1: the next) fails; later ones do not. close() cannot fail.
  void fail_nth(HostCall call, std::uint64_t nth, HostError error) { failure(call) = {error, nth, false}; }
  /// Every call of this kind fails from now on.
  void fail_always(HostCall call, HostError error) { failure(call) = {error, 1, true}; }
  void fail_never(HostCall call) { failure(call) = {}; }

  /// As if the host could not keep shorter periods: their hints come when this has passed.
  void set_shortest_period(std::uint64_t period) { shortest_ = period; }
  /// Called within each call that is noted: what happens while the VMM brings the host in line.
  void set_meanwhile(void (*happens)(void*), void* context) {
    meanwhile_ = happens;
    context_ = context;
  }

  // --- What happens ---

  /// `n` events happen in this event, if it counts.
  void happen(HostEvent event, std::uint64_t n) {
    if (Slot* slot = find(event)) count(*slot, n);
  }
  /// `n` events happen in each event of which `matches(spec)` is true.
  template <class Matches>
  void happen_where(Matches&& matches, std::uint64_t n) {
    for (std::size_t i = 0; i < used_; ++i) {
      if (slots_[i].open && matches(static_cast<const HostEventSpec&>(slots_[i].spec))) count(slots_[i], n);
    }
  }
  /// `n` events of this code (event select, unit mask, AMD's bits 35:32; general-purpose counters) happen at this CPL.
  /// Flags are not looked at: a test that sets them knows better what they count.
  void happen_code(std::uint64_t code, std::uint32_t cpl, std::uint64_t n) {
    happen_where(
        [&](const HostEventSpec& spec) {
          return !spec.counter.is_fixed() && (spec.select & evtsel::code) == code && counts_at(spec, cpl);
        },
        n);
  }
  /// The same for fixed counter `number`.
  void happen_fixed(std::uint32_t number, std::uint32_t cpl, std::uint64_t n) {
    happen_where(
        [&](const HostEventSpec& spec) { return spec.counter == CounterId::fixed(number) && counts_at(spec, cpl); }, n);
  }
  /// `n` events happen in whatever serves this guest counter.
  void happen_on(CounterId counter, std::uint64_t n) {
    happen_where([&](const HostEventSpec& spec) { return spec.counter == counter; }, n);
  }

  /// The host takes the event away: it does not count any more, and calls on it answer HostError::lost.
  void lose(HostEvent event) {
    if (Slot* slot = find(event)) slot->lost = true;
  }

  /// Hints wait, and merge, until deliver_hints().
  void hold_hints(bool on) { hold_ = on; }
  void deliver_hints() {
    if (held_ == 0) return;
    ++calls_.signals;
    hint(held_);
    held_ = 0;
  }
  [[nodiscard]] CounterSet held_hints() const { return held_; }
  /// The next `n` hints never come.
  void lose_hints(std::uint64_t n) { losing_ = n; }

  // --- What was asked ---

  [[nodiscard]] const HostCallCounts& calls() const { return calls_; }
  void reset_calls() {
    calls_ = {};
    logged_ = 0;
  }
  /// Calls in the log, at most log_size; 0 is the oldest.
  [[nodiscard]] std::size_t log_length() const { return logged_ < log_size ? logged_ : log_size; }
  [[nodiscard]] const LoggedCall& log(std::size_t n) const { return log_[(logged_ - log_length() + n) % log_size]; }

  // --- What is there ---

  [[nodiscard]] std::size_t open_events() const {
    std::size_t n = 0;
    for (std::size_t i = 0; i < used_; ++i) n += slots_[i].open ? 1 : 0;
    return n;
  }
  /// The open event that serves this guest counter, or none.
  [[nodiscard]] HostEvent event_of(CounterId counter) const {
    for (std::size_t i = 0; i < used_; ++i) {
      if (slots_[i].open && slots_[i].spec.counter == counter) return static_cast<HostEvent>(i);
    }
    return HostEvent::none;
  }
  [[nodiscard]] bool is_open(HostEvent event) const { return find(event) != nullptr; }
  [[nodiscard]] bool is_enabled(HostEvent event) const {
    const Slot* slot = find(event);
    return slot != nullptr && slot->enabled;
  }
  [[nodiscard]] HostEventSpec spec(HostEvent event) const {
    const Slot* slot = find(event);
    return slot == nullptr ? HostEventSpec{} : slot->spec;
  }
  [[nodiscard]] std::uint64_t count(HostEvent event) const {
    const Slot* slot = find(event);
    return slot == nullptr ? 0 : slot->count;
  }
  /// Events to its next hint.
  [[nodiscard]] std::uint64_t distance(HostEvent event) const {
    const Slot* slot = find(event);
    return slot == nullptr ? 0 : slot->left;
  }

  // --- The port ---

  Result<HostEvent, HostError> open(const HostEventSpec& spec, std::uint64_t period) override {
    ++calls_.open;
    HostError error{};
    if (fails(HostCall::open, error)) return refuse(HostCall::open, HostEvent::none, error);
    if (period == 0) return refuse(HostCall::open, HostEvent::none, HostError::failed);
    std::size_t free = 0;
    while (free < counters_ && slots_[free].open) ++free;
    if (free == counters_) return refuse(HostCall::open, HostEvent::none, HostError::no_counter);
    if (free >= used_) used_ = free + 1;
    slots_[free] = {};
    slots_[free].spec = spec;
    start_period(slots_[free], period);
    slots_[free].open = true;
    const auto event = static_cast<HostEvent>(free);
    note(HostCall::open, event, period);
    return event;
  }

  void close(HostEvent event) override {
    ++calls_.close;
    note(HostCall::close, event, 0);
    if (Slot* slot = find(event)) slot->open = slot->enabled = false;
  }

  Status<HostError> set_period(HostEvent event, std::uint64_t period) override {
    ++calls_.set_period;
    HostError error{};
    Slot* slot = reach(HostCall::set_period, event, error);
    if (slot != nullptr && period == 0) error = HostError::failed;
    if (slot == nullptr || period == 0) return refuse(HostCall::set_period, event, error, period);
    if (slot->enabled) ++calls_.live_set_period;
    start_period(*slot, period);
    note(HostCall::set_period, event, period);
    return {};
  }

  Status<HostError> enable(HostEvent event) override {
    ++calls_.enable;
    HostError error{};
    Slot* slot = reach(HostCall::enable, event, error);
    if (slot == nullptr) return refuse(HostCall::enable, event, error);
    slot->enabled = true;
    note(HostCall::enable, event, 0);
    return {};
  }

  Status<HostError> disable(HostEvent event) override {
    ++calls_.disable;
    HostError error{};
    Slot* slot = reach(HostCall::disable, event, error);
    if (slot == nullptr) return refuse(HostCall::disable, event, error);
    slot->enabled = false;
    note(HostCall::disable, event, 0);
    return {};
  }

  Result<std::uint64_t, HostError> read(HostEvent event) override {
    ++calls_.read;
    HostError error{};
    Slot* slot = reach(HostCall::read, event, error);
    if (slot == nullptr) return refuse(HostCall::read, event, error);
    if (slot->enabled) ++calls_.live_read;
    note(HostCall::read, event, slot->count);
    return slot->count;
  }

  Result<std::uint64_t, HostError> peek(HostEvent event) override {
    if (!free_reads_) return HostError::unavailable;
    ++calls_.peek;
    HostError error{};
    Slot* slot = reach(HostCall::peek, event, error);
    if (slot == nullptr) return refuse(HostCall::peek, event, error);
    note(HostCall::peek, event, slot->count);
    return slot->count;
  }

 private:
  struct Slot {
    bool open = false;
    bool enabled = false;
    bool lost = false;
    HostEventSpec spec{};
    std::uint64_t count = 0;
    std::uint64_t period = 0;
    std::uint64_t left = 0;
  };
  struct Failure {
    HostError error = HostError::failed;
    std::uint64_t after = 0;  // calls until it fails; 0: it does not
    bool always = false;
  };

  static bool counts_at(const HostEventSpec& spec, std::uint32_t cpl) { return cpl == 0 ? spec.kernel : spec.user; }

  Failure& failure(HostCall call) {
    any_failure_ = true;
    return failures_[static_cast<std::size_t>(call)];
  }

  bool fails(HostCall call, HostError& error) {
    if (!any_failure_) [[likely]]
      return false;
    Failure& failure = failures_[static_cast<std::size_t>(call)];
    if (failure.after == 0) return false;
    if (!failure.always && --failure.after != 0) return false;
    error = failure.error;
    return true;
  }

  const Slot* find(HostEvent event) const {
    const auto index = static_cast<std::size_t>(static_cast<std::int64_t>(event));
    return index < used_ && slots_[index].open ? &slots_[index] : nullptr;
  }
  Slot* find(HostEvent event) { return const_cast<Slot*>(static_cast<const FakeHost*>(this)->find(event)); }

  /// The event, unless the call is to fail or the event is lost or not there.
  Slot* reach(HostCall call, HostEvent event, HostError& error) {
    if (fails(call, error)) return nullptr;
    Slot* slot = find(event);
    error = HostError::failed;
    if (slot == nullptr || !slot->lost) return slot;
    error = HostError::lost;
    return nullptr;
  }

  HostError refuse(HostCall call, HostEvent event, HostError error, std::uint64_t value = 0) {
    note(call, event, value, false);
    return error;
  }

  void start_period(Slot& slot, std::uint64_t period) {
    const CounterSet counter = slot.spec.counter.mask();
    set_clamped(period < shortest_ ? clamped() | counter : clamped() & ~counter);
    slot.period = slot.left = period < shortest_ ? shortest_ : period;
  }
  void note(HostCall call, HostEvent event, std::uint64_t value, bool ok = true) {
    if (logging_) log_[logged_++ % log_size] = {call, event, value, ok};
    if (meanwhile_ != nullptr) meanwhile_(context_);
  }

  void count(Slot& slot, std::uint64_t n) {
    if (!slot.enabled || slot.lost) return;
    slot.count += n;
    if (n < slot.left) {
      slot.left -= n;
      return;
    }
    slot.left = slot.period - (n - slot.left) % slot.period;
    if (losing_ > 0) {
      --losing_;
    } else if (hold_) {
      held_ |= slot.spec.counter.mask();
    } else {
      ++calls_.signals;
      hint(slot.spec.counter.mask());
    }
  }

  bool free_reads_;
  bool logging_ = true;
  std::uint64_t shortest_ = 0;
  void (*meanwhile_)(void*) = nullptr;
  void* context_ = nullptr;
  bool hold_ = false;
  bool any_failure_ = false;
  std::size_t used_ = 0;  // slots that were ever open
  std::size_t counters_ = max_events;
  CounterSet held_ = 0;
  std::uint64_t losing_ = 0;
  HostCallCounts calls_{};
  std::array<Failure, host_call_count> failures_{};
  std::array<Slot, max_events> slots_{};
  std::size_t logged_ = 0;
  std::array<LoggedCall, log_size> log_{};
};

}  // namespace vpmu::fakes
