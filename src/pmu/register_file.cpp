#include "vpmu/register_file.hpp"

#include "arch/events.hpp"
#include "arch/registers.hpp"

namespace vpmu {
namespace {

constexpr std::uint64_t width_mask(std::uint8_t width) { return width == 0 ? 0 : ~std::uint64_t{0} >> (64 - width); }

constexpr void assign(CounterSet& set, CounterSet mask, bool on) { set = on ? set | mask : set & ~mask; }

constexpr arch::EventKind kind_of(EmulatedEvent event) {
  return event == EmulatedEvent::instruction ? arch::EventKind::instructions : arch::EventKind::branches;
}

}  // namespace

RegisterFile::RegisterFile(const Profile& profile, const Policy& policy) : profile_{profile}, policy_{policy} {
  reset();
}

void RegisterFile::reset() {
  armed_ = user_ = kernel_ = interrupt_ = let_through_ = 0;
  matching_ = {};
  active_ = requested_ = 0;
  pmi_pending_ = false;
  global_status_ = fixed_ctrl_ = debugctl_ = pebs_enable_ = pebs_data_cfg_ = ds_area_ = 0;
  counters_ = {};
  rules_ = arch::rules_of(profile_);
  gp_mask_ = width_mask(profile_.gp_width);
  fixed_mask_ = width_mask(profile_.fixed_width);
  global_ctrl_ = arch::reset_global_ctrl(profile_);
  for_each_counter(profile_.counters(), [this](CounterId counter) {
    new_period(counter);
    local_change(counter);
  });
  refresh();
}

HostEventSpec RegisterFile::host_event(CounterId counter) const {
  return {
      .select = counter.is_fixed() ? 0 : counters_[counter.slot()].selector & evtsel::host,
      .vendor = profile_.vendor,
      .user = (user_ & counter.mask()) != 0,
      .kernel = (kernel_ & counter.mask()) != 0,
      .counter = counter,
  };
}

void RegisterFile::add(CounterId counter, std::uint64_t events) {
  Counter& state = counters_[counter.slot()];
  const std::uint64_t mask = mask_of(counter);
  const bool wraps = events > mask - state.value;
  state.value = (state.value + events) & mask;
  if (!wraps) return;
  overflow(counter);
  new_period(counter);
}

void RegisterFile::overflow(CounterId counter) {
  // A count that a transaction's abort would take back raises nothing.
  if ((counters_[counter.slot()].selector & evtsel::in_tx_cp) != 0 && profile_.is_intel()) return;
  if ((pebs_enable_ & counter.mask()) != 0) {
    // The record would go to the guest's buffer: what is left of it here is the buffer's interrupt, whatever INT says.
    if ((global_status_ & global_status::buffer_overflow) == 0) pmi_pending_ = true;
    global_status_ |= global_status::buffer_overflow;
    return;
  }
  global_status_ |= counter.mask();
  if ((interrupt_ & counter.mask()) != 0) pmi_pending_ = true;
}

void RegisterFile::take_status(std::uint64_t status) {
  const std::uint64_t changed = global_status_ ^ status;
  global_status_ = status;
  if ((changed & global_status::counters_frozen) != 0) refresh();
}

void RegisterFile::take_global_ctrl(std::uint64_t value) {
  if (value == global_ctrl_) return;
  global_ctrl_ = value;
  refresh();
}

void RegisterFile::overflow_by_emulation(CounterSet counters) {
  for_each_counter(counters, [this](CounterId counter) {
    overflow(counter);
    new_period(counter);
    if (outstanding(counter) > tolerance(counter)) requested_ |= counter.mask();
  });
}

void RegisterFile::write_counter(CounterId counter, std::uint64_t value) {
  Counter& state = counters_[counter.slot()];
  ++revision_;
  state.value = value & mask_of(counter);
  state.outstanding = 0;
  new_period(counter);
  // A host event whose pause is not tracked is given its distance at once; else that can wait for the resume.
  if ((active_ & counter.mask()) != 0 || policy_.pause == Policy::Pause::untracked) request(counter.mask());
}

void RegisterFile::new_period(CounterId counter) {
  constexpr std::uint64_t parts = 1000;  // an interrupt is at most a thousandth of its period late
  counters_[counter.slot()].tolerance = policy_.fold == Policy::fold_auto ? distance(counter) / parts : policy_.fold;
}

CounterSet RegisterFile::globally_enabled() const {
  if (!profile_.has_global_ctrl()) return ~CounterSet{0};
  const bool frozen = profile_.is_intel() && (global_status_ & global_status::counters_frozen) != 0;
  return frozen ? 0 : global_ctrl_;
}

void RegisterFile::local_change(CounterId counter) {
  const CounterSet mask = counter.mask();
  const std::uint64_t selector = counters_[counter.slot()].selector;
  const std::uint64_t field = counter.is_fixed() ? fixed_ctrl::field(fixed_ctrl_, counter.number()) : 0;
  const bool user = counter.is_fixed() ? (field & fixed_ctrl::user) != 0 : (selector & evtsel::user) != 0;
  const bool kernel = counter.is_fixed() ? (field & fixed_ctrl::kernel) != 0 : (selector & evtsel::kernel) != 0;
  const bool enabled = (user || kernel) && (counter.is_fixed() || (selector & evtsel::enable) != 0);
  const bool passes =
      filter_ == nullptr || (counter.is_fixed() ? filter_->allows_fixed(counter.number()) : filter_->allows(selector));
  ++revision_;
  assign(let_through_, mask, passes);
  assign(user_, mask, user);
  assign(kernel_, mask, kernel);
  assign(armed_, mask, enabled && passes);
  assign(interrupt_, mask,
         counter.is_fixed() ? (field & fixed_ctrl::interrupt) != 0 : (selector & evtsel::interrupt) != 0);
  for (std::size_t i = 0; i < emulated_event_count; ++i) {
    const arch::EventKind kind = kind_of(static_cast<EmulatedEvent>(i));
    const bool matches = counter.is_fixed() ? counter.number() < arch::fixed_events.size() &&
                                                  arch::fixed_events[counter.number()] == kind
                                            : (selector & evtsel::code) == arch::event_code(profile_.vendor, kind);
    assign(matching_[i], mask, matches);
  }
}

void RegisterFile::refresh() {
  ++revision_;
  const CounterSet active = armed_ & globally_enabled();
  requested_ |= active ^ active_;
  active_ = active;
  for (std::size_t i = 0; i < emulated_event_count; ++i) {
    const CounterSet matching = active & matching_[i];
    retire_[i] = {.user = matching & user_, .kernel = matching & kernel_};
  }
  if (policy_.retire == Policy::Retire::walk) {
    // Nothing is worked out beforehand: every instruction goes to the walk, which asks for the privilege level.
    for (Matches& matches : retire_) matches = {.user = profile_.counters(), .kernel = 0};
  }
}

CounterSet RegisterFile::walk_matches(EmulatedEvent event, bool user) const {
  const arch::EventKind kind = kind_of(event);
  const std::uint64_t code = arch::event_code(profile_.vendor, kind);
  CounterSet found = 0;
  for_each_counter(profile_.counters(), [&](CounterId counter) {
    if ((globally_enabled() & counter.mask()) == 0) return;
    const std::uint64_t selector = counters_[counter.slot()].selector;
    if (counter.is_fixed()) {
      const std::uint64_t field = fixed_ctrl::field(fixed_ctrl_, counter.number());
      if ((field & (user ? fixed_ctrl::user : fixed_ctrl::kernel)) == 0) return;
      if (counter.number() >= arch::fixed_events.size() || arch::fixed_events[counter.number()] != kind) return;
      if (filter_ != nullptr && !filter_->allows_fixed(counter.number())) return;
    } else {
      if ((selector & evtsel::enable) == 0 || (selector & (user ? evtsel::user : evtsel::kernel)) == 0) return;
      if ((selector & evtsel::code) != code) return;
      if (filter_ != nullptr && !filter_->allows(selector)) return;
    }
    found |= counter.mask();
  });
  return found;
}

}  // namespace vpmu
