#include "host/model/perf.hpp"

#include <algorithm>
#include <bit>

#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

/// Linux's pseudo-code for the reference cycles of fixed counter 2; as an event select it means nothing.
constexpr std::uint64_t pseudo_ref_cycles = 0x0300;

/// Handles are a physical counter's slot and the generation of the event in it.
constexpr std::uint32_t slot_bits = 5;
static_assert(max_counters <= 1U << slot_bits);
constexpr std::uint32_t generation_mask = 0x3FFFFFF;

HostEvent handle(CounterId counter, std::uint32_t generation) {
  return static_cast<HostEvent>(static_cast<std::int32_t>(generation << slot_bits | counter.slot()));
}

struct Wanted {
  bool known = false;
  Event event = Event::instructions;
  std::uint64_t flags = 0;
};

constexpr std::uint64_t plain_flags = evtsel::edge | evtsel::invert | evtsel::counter_mask;

Wanted wanted(const HostEventSpec& spec) {
  if (spec.counter.is_fixed()) {
    const EventRule rule = rule_of_fixed(spec.counter.number());
    return {rule.how != How::nothing, rule.event, 0};
  }
  std::uint64_t flags = spec.select & plain_flags;
  std::uint64_t code = spec.select & evtsel::code;
  if (spec.vendor == Vendor::intel) {
    // Bit 34 asks for records, which are not the host's matter.
    flags |= spec.select & (evtsel::in_tx | evtsel::in_tx_cp);
    code &= ~evtsel::event_high;
    if (code == pseudo_ref_cycles) return {true, Event::ref_cycles, flags};
  }
  for (const auto& known : arch::event_codes) {
    if (known.vendor == spec.vendor && known.select == code) return {true, known.kind, flags};
  }
  return {};
}

Activity half(const Activity& whole, bool upper) {
  Activity part;
  for (std::size_t i = 0; i < event_count; ++i) {
    part.count[i] = whole.count[i] / 2 + (upper ? whole.count[i] % 2 : 0);
    part.edges[i] = whole.edges[i] / 2 + (upper ? whole.edges[i] % 2 : 0);
  }
  return part;
}

}  // namespace

PerfModel::PerfModel(HardwarePmu& hardware, const PerfOptions& options, const Platform& platform)
    : hardware_{hardware}, options_{options}, prices_{platform} {
  const Profile& profile = hardware.profile();
  std::uint32_t narrowest = 64;
  for_each_counter(profile.counters(),
                   [&](CounterId counter) { narrowest = std::min<std::uint32_t>(narrowest, profile.width(counter)); });
  batch_bits_ = narrowest - 1;
  hardware.reset();
  hardware.set_svme(!profile.is_intel());
  resume_all();
  accesses_ = {};  // the host's boot is nobody's cost
}

// --- The port ---

Result<HostEvent, HostError> PerfModel::open(const HostEventSpec& spec, std::uint64_t period) {
  ++calls_.open;
  if (period == 0) return HostError::failed;
  const Plan plan = this->plan(spec);
  if (plan.counters == 0) return HostError::unsupported;
  const CounterSet free = plan.counters & ~open_ & ~options_.taken;
  if (free == 0) return HostError::no_counter;
  // A fixed counter can serve nothing else, so it goes first.
  const CounterSet fixed = free >> fixed_shift << fixed_shift;
  const auto counter = CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(fixed != 0 ? fixed : free)));

  Slot& slot = slots_[counter.slot()];
  const std::uint32_t generation = (slot.generation + 1) & generation_mask;
  slot = {.open = true,
          .enabled = false,
          .generation = generation,
          .guest_counter = spec.counter,
          .selector = counter.is_fixed() ? plan.fixed : plan.selector,
          .count = 0,
          .last = 0,
          .period = period,
          .left = period};
  open_ |= counter.mask();
  return handle(counter, generation);
}

void PerfModel::close(HostEvent event) {
  ++calls_.close;
  Slot* slot = find(event);
  if (slot == nullptr) return;
  const CounterId counter = physical(event);
  if (slot->enabled) {
    pause_all();
    stop(counter);
    resume_all();
  }
  slot->open = false;
  open_ &= ~counter.mask();
}

Status<HostError> PerfModel::set_period(HostEvent event, std::uint64_t period) {
  ++calls_.set_period;
  Slot* slot = find(event);
  if (slot == nullptr || period == 0) return HostError::failed;
  if (!slot->enabled) {
    slot->period = slot->left = period;
    return {};
  }
  ++calls_.live_set_period;
  const CounterId counter = physical(event);
  pause_all();
  stop(counter);
  slot->period = slot->left = period;
  start(counter);
  resume_all();
  return {};
}

Status<HostError> PerfModel::enable(HostEvent event) {
  ++calls_.enable;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if (slot->enabled) return {};
  pause_all();
  start(physical(event));
  resume_all();
  return {};
}

Status<HostError> PerfModel::disable(HostEvent event) {
  ++calls_.disable;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if (!slot->enabled) return {};
  pause_all();
  stop(physical(event));
  resume_all();
  return {};
}

Result<std::uint64_t, HostError> PerfModel::read(HostEvent event) {
  ++calls_.read;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if (slot->enabled) {
    ++calls_.live_read;
    look(physical(event));
  }
  return slot->count;
}

Result<std::uint64_t, HostError> PerfModel::peek(HostEvent event) {
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if (!options_.free_reads) return HostError::unavailable;
  ++calls_.peek;
  if (!slot->enabled) return slot->count;
  // Its RDPMC is part of what a free read costs, and so not counted apart.
  const CounterId counter = physical(event);
  const std::uint64_t value = hardware_.counter_value(counter);
  return slot->count + ((value - slot->last) & mask_of(counter));
}

// --- Time ---

CounterSet PerfModel::advance(const Activity& activity, Ring ring, Mode mode) {
  if (mode == Mode::host || enabled_ == 0) return 0;
  // A counter may pass its overflow at most once before the PMI is served: else its value would not tell how often.
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < event_count; ++i) bits |= activity.count[i] | activity.edges[i];
  if (bits >> batch_bits_ != 0) [[unlikely]] {
    const CounterSet first = advance(half(activity, false), ring, mode);
    return first | advance(half(activity, true), ring, mode);
  }
  if (hardware_.advance(activity, ring, mode) == 0) [[likely]]
    return 0;
  return hardware_.take_pmi() ? on_hardware_pmi() : 0;
}

CounterSet PerfModel::on_hardware_pmi() {
  const Profile& profile = hardware_.profile();
  CounterSet hinted = 0;
  if (!profile.has_global_ctrl()) {
    // Nothing says which: a running counter that was set to go over has its top bit clear once it did.
    for_each_counter(enabled_, [&](CounterId counter) {
      const bool due = (read_counter(counter) & (mask_of(counter) ^ mask_of(counter) >> 1)) == 0;
      if (due) hinted |= serve(counter);
    });
    return hinted;
  }
  const bool intel = profile.is_intel();
  const Msr status_msr = intel ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status;
  const Msr clear_msr = intel ? Msr::ia32_perf_global_ovf_ctrl : Msr::amd_perf_cntr_global_status_clr;
  pause_all();
  for (;;) {
    ++accesses_.rdmsr;
    const std::uint64_t status = hardware_.read_msr(status_msr).value_or(0) & profile.counters();
    if (status == 0) break;
    write(clear_msr, status);
    for_each_counter(status & enabled_, [&](CounterId counter) { hinted |= serve(counter); });
  }
  resume_all();
  return hinted;
}

std::uint32_t PerfModel::open_events() const { return static_cast<std::uint32_t>(std::popcount(open_)); }

// --- What it takes ---

PerfModel::Plan PerfModel::plan(const HostEventSpec& spec) const {
  const Wanted want = wanted(spec);
  if (!want.known) return {};
  const Profile& host = hardware_.profile();
  Plan plan;
  if (want.flags == 0) {
    for (std::uint32_t n = 0; n < arch::fixed_events.size(); ++n) {
      if (arch::fixed_events[n] == want.event) plan.counters |= CounterId::fixed(n).mask() & host.counters();
    }
    plan.fixed = (spec.kernel ? fixed_ctrl::kernel : 0) | (spec.user ? fixed_ctrl::user : 0) | fixed_ctrl::interrupt;
  }
  const std::uint64_t code = arch::event_code(host.vendor, want.event);
  CounterSet general = code != 0 && can_count(host, code) ? first_gp(host.gp_counters) : 0;
  // Transactions are a matter of the same vendor, and of a host that has them (IN_TXCP: counter 2 alone).
  constexpr std::uint64_t transactions = evtsel::in_tx | evtsel::in_tx_cp;
  if ((want.flags & transactions) != 0) {
    if (!host.is_intel() || !host.tsx) general = 0;
    if ((want.flags & evtsel::in_tx_cp) != 0) general &= CounterId::gp(2).mask();
  }
  plan.counters |= general;
  plan.selector = code | want.flags | (spec.kernel ? evtsel::kernel : 0) | (spec.user ? evtsel::user : 0) |
                  evtsel::interrupt | evtsel::enable;
  if (!host.is_intel() && host.nested_virtualization) plan.selector |= evtsel::guest_only;
  return plan;
}

PerfModel::Slot* PerfModel::find(HostEvent event) {
  const auto value = static_cast<std::int32_t>(event);
  if (value < 0) return nullptr;
  const std::uint32_t index = static_cast<std::uint32_t>(value) & ((1U << slot_bits) - 1);
  if (index >= max_counters) return nullptr;
  Slot& slot = slots_[index];
  return slot.open && slot.generation == static_cast<std::uint32_t>(value) >> slot_bits ? &slot : nullptr;
}

CounterId PerfModel::physical(HostEvent event) {
  return CounterId::from_slot(static_cast<std::uint32_t>(event) & ((1U << slot_bits) - 1));
}

std::uint64_t PerfModel::mask_of(CounterId counter) const {
  return (std::uint64_t{1} << hardware_.profile().width(counter)) - 1;
}

/// The longest distance that a counter is set to. Half its range, so that its top bit tells before from after; and 31
/// bits where a write of it takes the low 32, sign-extended (IA32_PMCn without full-width writes).
std::uint64_t PerfModel::longest_chunk(CounterId counter) const {
  const std::uint64_t half_range = std::max<std::uint64_t>(mask_of(counter) >> 1, 1);
  const Profile& host = hardware_.profile();
  if (counter.is_fixed() || !host.is_intel() || host.full_width_writes()) return half_range;
  return std::min<std::uint64_t>(half_range, 0x7FFFFFFF);
}

void PerfModel::write(Msr msr, std::uint64_t value) {
  ++accesses_.wrmsr;
  if (!hardware_.write_msr(msr, value).ok()) std::abort();  // the model's own mistake
}

std::uint64_t PerfModel::read_counter(CounterId counter) {
  ++accesses_.rdpmc;
  constexpr std::uint32_t fixed_type = 0x40000000;
  const std::uint32_t ecx = counter.number() | (counter.is_fixed() ? fixed_type : 0);
  return hardware_.read_pmc(ecx).value();
}

/// perf stops the whole PMU around each change.
void PerfModel::pause_all() {
  const Profile& host = hardware_.profile();
  if (!host.has_global_ctrl()) return;
  write(host.is_intel() ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl, 0);
}

void PerfModel::resume_all() {
  const Profile& host = hardware_.profile();
  if (!host.has_global_ctrl()) return;
  write(host.is_intel() ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl, host.counters());
}

/// Sets the counter so that it overflows when the rest of the period has passed, or as much of it as fits.
void PerfModel::program(CounterId counter) {
  Slot& slot = slots_[counter.slot()];
  const std::uint64_t chunk = std::min(slot.left, longest_chunk(counter));
  const std::uint64_t value = (0 - chunk) & mask_of(counter);
  const Profile& host = hardware_.profile();
  const std::uint32_t n = counter.number();
  Msr msr{};
  if (counter.is_fixed()) {
    msr = ia32_fixed_ctr[n];
  } else if (host.is_intel()) {
    msr = host.full_width_writes() ? ia32_a_pmc[n] : ia32_pmc[n];
  } else {
    msr = host.core_ext ? amd_core_perf_ctr[n] : amd_k7_perf_ctr[n];
  }
  write(msr, value);
  slot.last = value;
}

namespace {

Msr selector_msr(const Profile& host, std::uint32_t n) {
  if (host.is_intel()) return ia32_perfevtsel[n];
  return host.core_ext ? amd_core_perf_ctl[n] : amd_k7_perf_ctl[n];
}

}  // namespace

void PerfModel::start(CounterId counter) {
  Slot& slot = slots_[counter.slot()];
  program(counter);
  if (counter.is_fixed()) {
    fixed_ctrl_ |= slot.selector << (4 * counter.number());
    write(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl_);
  } else {
    write(selector_msr(hardware_.profile(), counter.number()), slot.selector);
  }
  slot.enabled = true;
  enabled_ |= counter.mask();
}

void PerfModel::stop(CounterId counter) {
  Slot& slot = slots_[counter.slot()];
  if (counter.is_fixed()) {
    fixed_ctrl_ &= ~(std::uint64_t{0xF} << (4 * counter.number()));
    write(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl_);
  } else {
    write(selector_msr(hardware_.profile(), counter.number()), slot.selector & ~evtsel::enable);
  }
  look(counter);
  slot.enabled = false;
  enabled_ &= ~counter.mask();
}

/// Folds in what the counter counted. True if its period passed: the next one began where it ended.
bool PerfModel::catch_up(CounterId counter) {
  Slot& slot = slots_[counter.slot()];
  const std::uint64_t value = read_counter(counter);
  const std::uint64_t events = (value - slot.last) & mask_of(counter);
  slot.last = value;
  slot.count += events;
  if (events < slot.left) {
    slot.left -= events;
    return false;
  }
  slot.left = slot.period - (events - slot.left) % slot.period;
  return true;
}

/// Looks at a running counter. A PMI that is still on its way would find its period passed already: hint now.
void PerfModel::look(CounterId counter) {
  if (catch_up(counter)) hint_at(counter);
}

/// The counter overflowed: the end of its period, or of a chunk of one.
CounterSet PerfModel::serve(CounterId counter) {
  const bool passed = catch_up(counter);
  program(counter);
  if (!passed) return 0;
  hint_at(counter);
  return slots_[counter.slot()].guest_counter.mask();
}

void PerfModel::hint_at(CounterId counter) {
  ++calls_.signals;
  hint(slots_[counter.slot()].guest_counter.mask());
}

}  // namespace vpmu::model
