#include "vpmu/host/clock.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "arch/events.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t ns_per_second = 1000000000;
constexpr std::uint64_t never = ~std::uint64_t{0};

HostError error_of(int error) {
  switch (error) {
    case EAGAIN:  // no room for another timer's signal (RLIMIT_SIGPENDING)
    case ENOMEM:
      return HostError::no_resources;
    case EPERM:
    case EACCES:
      return HostError::not_permitted;
    case ENOSYS:
    case EINVAL:
    case ENOTSUP:
      return HostError::unsupported;
    default:
      return HostError::failed;
  }
}

bool is_cycles(arch::EventKind kind) { return kind == arch::EventKind::cycles || kind == arch::EventKind::ref_cycles; }

bool counts_cycles(const HostEventSpec& spec) {
  if (spec.counter.is_fixed()) {
    const std::uint32_t number = spec.counter.number();
    return number < arch::fixed_events.size() && is_cycles(arch::fixed_events[number]);
  }
  // Edges and counter masks change what is counted, so that the whole selector has to match.
  return std::any_of(arch::event_codes.begin(), arch::event_codes.end(), [&](const arch::EventCode& code) {
    return code.vendor == spec.vendor && code.select == spec.select && is_cycles(code.kind);
  });
}

/// a * b / c, where b and c are at most some 10^10 and the result fits.
constexpr std::uint64_t scale(std::uint64_t a, std::uint64_t b, std::uint64_t c) { return a / c * b + a % c * b / c; }

}  // namespace

ClockHost::ClockHost(const Options& options)
    : options_{options},
      system_{options.system != nullptr ? *options.system : linux_clock_system()},
      thread_{::gettid()},
      host_number_{signal_hints::add_timer_host(*this)} {
  if (options_.signal == 0) options_.signal = signal_hints::default_signal();
  signal_error_ = signal_hints::install(options_.signal);
  tsc_hz_ = options.tsc_hz != 0 ? options.tsc_hz : system_.measure_tsc_hz();
  trusted_ = cycles_of(options.trusted_ns);
}

ClockHost::~ClockHost() {
  for (std::size_t i = 0; i < slots_.size(); ++i) close(static_cast<HostEvent>(i));
  signal_hints::remove_timer_host(host_number_);
  signal_hints::wait_for_handlers();
}

std::uint64_t ClockHost::cycles_of(std::uint64_t ns) const { return scale(ns, tsc_hz_, ns_per_second); }
std::uint64_t ClockHost::ns_of(std::uint64_t cycles) const { return scale(cycles, ns_per_second, tsc_hz_); }

HostCallCounts ClockHost::calls() const {
  HostCallCounts calls = calls_;
  calls.signals = signals_.load(std::memory_order_relaxed);
  return calls;
}

void ClockHost::reset_calls() {
  calls_ = {};
  system_calls_ = 0;
  signals_.store(0, std::memory_order_relaxed);
}

// --- Time ---

void ClockHost::on_signal(int number) {
  signals_.fetch_add(1, std::memory_order_relaxed);
  fired_.fetch_or(SlotSet{1} << static_cast<unsigned>(number), std::memory_order_relaxed);
  if (options_.kick != nullptr) std::atomic_ref{*options_.kick}.store(1, std::memory_order_relaxed);
}

/// Cycles that passed since this was last asked while the thread did not run.
std::uint64_t ClockHost::take_stolen(std::uint64_t now) {
  ++system_calls_;
  const std::uint64_t cpu = system_.thread_cpu_ns();
  const std::uint64_t passed = now - known_tsc_;
  const std::uint64_t ran = cycles_of(cpu - known_cpu_);
  known_tsc_ = now;
  known_cpu_ = cpu;
  if (ran <= passed) return passed - ran;
  // CPU time comes in steps: what it is ahead by now, it was behind by before or will be again. Kept for the next look,
  // but no more than that, since the two clocks' rates differ a little too.
  known_cpu_ -= ns_of(std::min(ran - passed, trusted_));
  return 0;
}

void ClockHost::enter_guest() {
  const std::uint64_t now = system_.tsc();
  // What was stolen out of the guest is nobody's, but must not be taken off the guest's time later.
  if (now - mark_ > trusted_) take_stolen(now);
  mark_ = now;
  in_guest_ = true;
  if (fired_.load(std::memory_order_relaxed) != 0) [[unlikely]]
    look(fired_.exchange(0, std::memory_order_relaxed));
}

void ClockHost::leave_guest() {
  const std::uint64_t now = system_.tsc();
  std::uint64_t ran = now - mark_;
  if (ran > trusted_) ran -= std::min(ran, take_stolen(now));
  guest_ += ran;
  mark_ = now;
  in_guest_ = false;
  const SlotSet fired = fired_.load(std::memory_order_relaxed) == 0 ? 0 : fired_.exchange(0, std::memory_order_relaxed);
  if (guest_ >= next_due_ || fired != 0) look(fired);
}

void ClockHost::look(SlotSet fired) {
  for (SlotSet left = open_ & (enabled_ | fired); left != 0; left &= left - 1) {
    Slot& slot = slots_[static_cast<std::size_t>(std::countr_zero(left))];
    const bool enabled = (enabled_ & mask_of(slot)) != 0;
    if (enabled && slot.due <= guest_) {
      pass_period(slot);
    } else if ((fired & mask_of(slot)) != 0) {
      on_timer(slot, enabled);
    }
  }
  find_next_due();
}

/// The hint; and the same period starts again, for which the timer stays as it is: mostly the guest sets a new one.
void ClockHost::pass_period(Slot& slot) {
  hint(slot.counter);
  const std::uint64_t guest = slot.due - slot.set_at;
  const std::uint64_t real = mark_ - slot.set_tsc - std::min(mark_ - slot.set_tsc, guest_ - slot.due);
  constexpr std::uint64_t most = one + one / 4;
  if (slot.armed && guest != 0) stretch_ = std::clamp(scale(real, one, guest), one, most);
  slot.due += slot.period * (1 + (guest_ - slot.due) / slot.period);
}

/// Its timer came early, by what the guest did not run.
void ClockHost::on_timer(Slot& slot, bool enabled) {
  if (!enabled) {
    set_timer(slot, 0, 0);
    slot.armed = false;
    return;
  }
  // A guest that hardly got on is halted: it must not be woken over and over.
  const std::uint64_t left = slot.due - guest_;
  const bool halted = guest_ - slot.set_at < left / 2;
  static_cast<void>(arm(slot, left, halted ? backstop_ns : shortest_timer_ns));
}

int ClockHost::set_timer(const Slot& slot, std::uint64_t first, std::uint64_t every) {
  ++system_calls_;
  return system_.set_timer(slot.timer, first, every);
}

Status<HostError> ClockHost::arm(Slot& slot, std::uint64_t cycles, std::uint64_t shortest_ns) {
  const std::uint64_t shortest = cycles_of(shortest_timer_ns);
  set_clamped(slot.period < shortest ? clamped() | slot.counter : clamped() & ~slot.counter);
  const std::uint64_t ns = std::max(ns_of(cycles), shortest_ns);
  const int result = set_timer(slot, scale(ns, stretch_, one), std::max(ns, backstop_ns));
  slot.armed = result >= 0;
  slot.set_at = guest_;
  slot.set_tsc = system_.tsc();
  if (result < 0) return error_of(-result);
  return {};
}

void ClockHost::find_next_due() {
  next_due_ = never;
  for (SlotSet left = enabled_; left != 0; left &= left - 1) {
    next_due_ = std::min(next_due_, slots_[static_cast<std::size_t>(std::countr_zero(left))].due);
  }
}

// --- The port ---

ClockHost::Slot* ClockHost::find(HostEvent event) {
  const auto index = static_cast<std::size_t>(static_cast<std::int64_t>(event));
  return index < slots_.size() && (open_ >> index & 1) != 0 ? &slots_[index] : nullptr;
}

Result<HostEvent, HostError> ClockHost::open(const HostEventSpec& spec, std::uint64_t period) {
  ++calls_.open;
  if (period == 0 || signal_error_ != 0) return HostError::failed;
  if (!counts_cycles(spec)) return HostError::unsupported;
  if (spec.user != spec.kernel) return HostError::no_privilege_filter;
  const auto index = static_cast<std::size_t>(std::countr_one(open_));
  if (index >= slots_.size() || host_number_ < 0) return HostError::no_resources;
  ++system_calls_;
  const int timer = system_.create_timer(options_.signal, thread_,
                                         host_number_ * signal_hints::timers_per_host + static_cast<int>(index));
  if (timer < 0) return error_of(-timer);
  if (open_ == 0) {
    mark_ = system_.tsc();
    take_stolen(mark_);
  }
  Slot& slot = slots_[index];
  slot = {};
  slot.counter = spec.counter.mask();
  slot.timer = timer;
  slot.period = slot.due = period;
  open_ |= mask_of(slot);
  fired_.fetch_and(~mask_of(slot), std::memory_order_relaxed);
  return static_cast<HostEvent>(index);
}

void ClockHost::close(HostEvent event) {
  Slot* slot = find(event);
  if (slot == nullptr) return;
  ++calls_.close;
  ++system_calls_;
  static_cast<void>(system_.delete_timer(slot->timer));
  open_ &= ~mask_of(*slot);
  enabled_ &= ~mask_of(*slot);
  set_clamped(clamped() & ~slot->counter);
  find_next_due();
}

Status<HostError> ClockHost::set_period(HostEvent event, std::uint64_t period) {
  ++calls_.set_period;
  Slot* slot = find(event);
  if (slot == nullptr || period == 0) return HostError::failed;
  slot->period = period;
  if ((enabled_ & mask_of(*slot)) == 0) {
    slot->due = period;
    slot->armed = false;
    return {};
  }
  ++calls_.live_set_period;
  slot->due = guest_ + period;
  find_next_due();
  return arm(*slot, period);
}

Status<HostError> ClockHost::enable(HostEvent event) {
  ++calls_.enable;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if ((enabled_ & mask_of(*slot)) != 0) return {};
  if (!slot->armed) {
    const auto done = arm(*slot, slot->due);
    if (!done) return done;
  }
  slot->due += guest_;
  slot->count = guest_ - slot->count;
  enabled_ |= mask_of(*slot);
  find_next_due();
  return {};
}

/// The timer runs on: it costs less to be woken once for nothing.
Status<HostError> ClockHost::disable(HostEvent event) {
  ++calls_.disable;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if ((enabled_ & mask_of(*slot)) == 0) return {};
  slot->due -= guest_;
  slot->count = guest_ - slot->count;
  enabled_ &= ~mask_of(*slot);
  find_next_due();
  return {};
}

Result<std::uint64_t, HostError> ClockHost::peek(HostEvent event) {
  const Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  ++calls_.peek;
  return (enabled_ & mask_of(*slot)) != 0 ? guest_ - slot->count : slot->count;
}

}  // namespace vpmu
