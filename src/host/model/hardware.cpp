#include "host/model/hardware.hpp"

#include <algorithm>
#include <bit>

#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

using arch::RegisterKind;

constexpr std::uint64_t low_bits(std::uint32_t width) { return (std::uint64_t{1} << width) - 1; }

constexpr std::uint64_t sign_extend_32(std::uint64_t value) {
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value & 0xFFFFFFFF)));
}

/// With 48-bit linear addresses.
constexpr bool is_canonical(std::uint64_t address) {
  const std::uint64_t top = address >> 47;
  return top == 0 || top == 0x1FFFF;
}

/// The bits of IA32_MISC_ENABLE that belong to the PMU, whatever their value; all read-only.
constexpr std::uint64_t misc_pmu_bits =
    misc_enable::perfmon_available | misc_enable::bts_unavailable | misc_enable::pebs_unavailable;

}  // namespace

HardwarePmu::HardwarePmu(const Profile& profile) : profile_{profile} { reset(); }

void HardwarePmu::reset() {
  counters_ = {};
  for_each_counter(profile_.counters(),
                   [&](CounterId counter) { at(counter).mask = low_bits(profile_.width(counter)); });
  global_ctrl_ = arch::reset_global_ctrl(profile_);
  global_status_ = fixed_ctrl_ = debugctl_ = pebs_enable_ = pebs_data_cfg_ = ds_area_ = misc_enable_ = 0;
  pmi_ = svme_ = false;
  pmis_ = 0;
  controls_changed();
}

// --- Instructions ---

Result<std::uint64_t, Fault> HardwarePmu::read_msr(Msr msr) {
  ++accesses_.rdmsr;
  const auto reg = arch::find_register(msr);
  if (arch::reads_zero(profile_, reg)) return std::uint64_t{0};
  if (!arch::enumerates(profile_, reg)) return Fault::general_protection;
  return read_register(reg);
}

Status<Fault> HardwarePmu::write_msr(Msr msr, std::uint64_t value) {
  ++accesses_.wrmsr;
  const auto reg = arch::find_register(msr);
  if (arch::reads_zero(profile_, reg)) return {};
  if (!arch::enumerates(profile_, reg) || refuses(reg, value)) return Fault::general_protection;
  switch (reg.kind) {
    case RegisterKind::amd_global_status:  // read-only, and says nothing
      return {};
    case RegisterKind::global_ovf_ctrl:
    case RegisterKind::amd_global_status_clr:
      global_status_ &= ~value;
      controls_changed();
      return {};
    case RegisterKind::global_status_set:
      global_status_ |= value;
      controls_changed();
      return {};
    case RegisterKind::amd_global_status_set:
      global_status_ |= value & arch::legal_global_status(profile_);
      return {};
    case RegisterKind::pmc:
      value = sign_extend_32(value);
      break;
    default:
      break;
  }
  store(reg, value);
  return {};
}

Result<std::uint64_t, Fault> HardwarePmu::read_pmc(std::uint32_t ecx) {
  ++accesses_.rdpmc;
  const std::uint32_t bit = arch::find_pmc(profile_, ecx);
  if (bit == arch::no_counter) return Fault::general_protection;
  return at(CounterId::from_bit(bit)).value;
}

Status<Fault> HardwarePmu::load_global_ctrl(std::uint64_t value) {
  if (!profile_.has_global_ctrl() || (value & ~arch::legal_global_ctrl(profile_)) != 0)
    return Fault::general_protection;
  if (value != global_ctrl_) {
    global_ctrl_ = value;
    controls_changed();
  }
  return {};
}

void HardwarePmu::set_svme(bool on) {
  svme_ = on;
  controls_changed();
}

/// The #GP rules for values; AMD has none, it drops bits.
bool HardwarePmu::refuses(arch::Register reg, std::uint64_t value) const {
  switch (reg.kind) {
    case RegisterKind::a_pmc:
      return (value & ~low_bits(profile_.gp_width)) != 0;
    case RegisterKind::perfevtsel:
      return (value & ~arch::legal_selector(profile_, CounterId::gp(reg.number))) != 0;
    case RegisterKind::fixed_ctr_ctrl:
      return (value & ~arch::legal_fixed_ctrl(profile_)) != 0;
    case RegisterKind::global_ctrl:
      return (value & ~arch::legal_global_ctrl(profile_)) != 0;
    case RegisterKind::global_ovf_ctrl:
      return (value & ~arch::legal_global_ovf_ctrl(profile_)) != 0;
    case RegisterKind::global_status_set:
      return (value & ~arch::legal_global_status_set(profile_)) != 0;
    case RegisterKind::debugctl:
      return (value & ~arch::legal_debugctl(profile_)) != 0;
    case RegisterKind::pebs_enable:
      return (value & ~arch::legal_pebs_enable(profile_)) != 0;
    case RegisterKind::pebs_data_cfg:
      return (value & ~arch::legal_pebs_data_cfg()) != 0;
    case RegisterKind::ds_area:
      return !is_canonical(value);
    case RegisterKind::global_status:
    case RegisterKind::global_inuse:
    case RegisterKind::perf_capabilities:
      return true;  // read-only
    default:
      return false;
  }
}

std::uint64_t HardwarePmu::read_register(arch::Register reg) const {
  switch (reg.kind) {
    case RegisterKind::pmc:
    case RegisterKind::a_pmc:
    case RegisterKind::k7_perf_ctr:
    case RegisterKind::core_perf_ctr:
      return at(CounterId::gp(reg.number)).value;
    case RegisterKind::fixed_ctr:
      return at(CounterId::fixed(reg.number)).value;
    case RegisterKind::perfevtsel:
    case RegisterKind::k7_perf_ctl:
    case RegisterKind::core_perf_ctl:
      return at(CounterId::gp(reg.number)).selector;
    case RegisterKind::fixed_ctr_ctrl:
      return fixed_ctrl_;
    case RegisterKind::global_status:
    case RegisterKind::amd_global_status:
      return global_status_;
    case RegisterKind::global_ctrl:
    case RegisterKind::amd_global_ctl:
      return global_ctrl_;
    case RegisterKind::global_inuse:
      return in_use();
    case RegisterKind::pebs_enable:
      return pebs_enable_;
    case RegisterKind::pebs_data_cfg:
      return pebs_data_cfg_;
    case RegisterKind::ds_area:
      return ds_area_;
    case RegisterKind::perf_capabilities:
      return profile_.perf_capabilities;
    case RegisterKind::debugctl:
      return debugctl_;
    case RegisterKind::misc_enable:
      return (misc_enable_ & ~misc_pmu_bits) | arch::misc_enable_bits(profile_);
    case RegisterKind::none:
    case RegisterKind::global_ovf_ctrl:
    case RegisterKind::global_status_set:
    case RegisterKind::amd_global_status_clr:
    case RegisterKind::amd_global_status_set:
      break;  // nothing behind them: they act on the status
  }
  return 0;
}

/// Sets what the register holds, without the bits that it lacks.
void HardwarePmu::store(arch::Register reg, std::uint64_t value) {
  const auto counter = reg.kind == RegisterKind::fixed_ctr ? CounterId::fixed(reg.number) : CounterId::gp(reg.number);
  switch (reg.kind) {
    case RegisterKind::pmc:
    case RegisterKind::a_pmc:
    case RegisterKind::k7_perf_ctr:
    case RegisterKind::core_perf_ctr:
    case RegisterKind::fixed_ctr:
      at(counter).value = value & at(counter).mask;
      stale_headroom_ = all_views;
      return;
    case RegisterKind::perfevtsel:
    case RegisterKind::k7_perf_ctl:
    case RegisterKind::core_perf_ctl:
      at(counter).selector = value & arch::legal_selector(profile_, counter);
      break;
    case RegisterKind::fixed_ctr_ctrl:
      fixed_ctrl_ = value & arch::legal_fixed_ctrl(profile_);
      break;
    case RegisterKind::global_status:
    case RegisterKind::amd_global_status:
      global_status_ = value & arch::legal_global_status(profile_);
      break;
    case RegisterKind::global_ctrl:
    case RegisterKind::amd_global_ctl:
      global_ctrl_ = value & arch::legal_global_ctrl(profile_);
      break;
    case RegisterKind::pebs_enable:
      pebs_enable_ = value & arch::legal_pebs_enable(profile_);
      return;
    case RegisterKind::pebs_data_cfg:
      pebs_data_cfg_ = value & arch::legal_pebs_data_cfg();
      return;
    case RegisterKind::ds_area:
      ds_area_ = value;
      return;
    case RegisterKind::debugctl:
      debugctl_ = value & arch::legal_debugctl(profile_);
      return;
    case RegisterKind::misc_enable:
      misc_enable_ = value;
      return;
    default:
      return;
  }
  controls_changed();
}

/// IA32_PERF_GLOBAL_INUSE: a counter is in use if its event select or its privilege bits are not zero; bit 63 says that
/// something is set up to raise a PMI (SDM volume 3, "IA32_PERF_GLOBAL_INUSE MSR").
std::uint64_t HardwarePmu::in_use() const {
  std::uint64_t used = 0;
  bool interrupts = pebs_enable_ != 0;
  for_each_counter(profile_.counters(), [&](CounterId counter) {
    if (counter.is_fixed()) {
      const std::uint64_t field = fixed_ctrl::field(fixed_ctrl_, counter.number());
      if ((field & (fixed_ctrl::kernel | fixed_ctrl::user)) != 0) used |= counter.mask();
      interrupts |= (field & fixed_ctrl::interrupt) != 0;
    } else {
      const std::uint64_t selector = at(counter).selector;
      if ((selector & evtsel::event) != 0) used |= counter.mask();
      interrupts |= (selector & evtsel::interrupt) != 0;
    }
  });
  return used | (interrupts ? std::uint64_t{1} << 63 : 0);
}

std::uint64_t HardwarePmu::inspect(Msr msr) const {
  const auto reg = arch::find_register(msr);
  return arch::enumerates(profile_, reg) ? read_register(reg) : 0;
}

void HardwarePmu::preset(Msr msr, std::uint64_t value) {
  const auto reg = arch::find_register(msr);
  if (arch::enumerates(profile_, reg)) store(reg, value);
}

// --- Execution ---

bool HardwarePmu::counts(CounterId counter, Ring ring, Mode mode) const {
  if (profile_.has_global_ctrl() && (global_ctrl_ & counter.mask()) == 0) return false;
  if (counter.is_fixed()) {
    const std::uint64_t field = fixed_ctrl::field(fixed_ctrl_, counter.number());
    return (field & (ring == Ring::kernel ? fixed_ctrl::kernel : fixed_ctrl::user)) != 0;
  }
  const std::uint64_t selector = at(counter).selector;
  if ((selector & evtsel::enable) == 0) return false;
  if ((selector & (ring == Ring::kernel ? evtsel::kernel : evtsel::user)) == 0) return false;
  // Without SVME, a counter with either bit does not count at all (APM volume 2, section 13.2.1: "if EFER.SVME = 1").
  constexpr std::uint64_t either = evtsel::guest_only | evtsel::host_only;
  if ((selector & either) == 0) return true;
  return svme_ && (selector & (mode == Mode::guest ? evtsel::guest_only : evtsel::host_only)) != 0;
}

EventRule HardwarePmu::rule(CounterId counter) const {
  return counter.is_fixed() ? rule_of_fixed(counter.number()) : rule_of(profile_, at(counter).selector);
}

void HardwarePmu::rebuild(View& view, Ring ring, Mode mode) const {
  view.size = 0;
  view.events = 0;
  view.edges = false;
  if ((global_status_ & global_status::counters_frozen) != 0) return;
  for_each_counter(profile_.counters(), [&](CounterId counter) {
    if (!counts(counter, ring, mode)) return;
    const EventRule rule = this->rule(counter);
    if (rule.how == How::nothing) return;
    view.active[view.size++] = {counter, rule};
    view.events |= 1U << index_of(rule.event);
    if (rule.how == How::other_cycles) view.events |= 1U << index_of(Event::cycles);
    if (rule.how == How::rises) view.edges = true;
  });
}

HardwarePmu::View& HardwarePmu::view(Ring ring, Mode mode) {
  const std::size_t index = view_index(ring, mode);
  View& view = views_[index];
  if ((stale_views_ >> index & 1) != 0) {
    rebuild(view, ring, mode);
    stale_views_ = static_cast<std::uint8_t>(stale_views_ & ~(1U << index));
  }
  return view;
}

void HardwarePmu::measure(View& view) const {
  Headroom room;
  for (std::uint32_t i = 0; i < view.size; ++i) {
    const auto& [counter, rule] = view.active[i];
    std::uint64_t* bound = &room.other;
    if (rule.how == How::other_cycles) {
      bound = &room.cycles;
    } else if (rule.how == How::events) {
      switch (rule.event) {
        case Event::instructions:
          bound = &room.instructions;
          break;
        case Event::cycles:
          bound = &room.cycles;
          break;
        case Event::ref_cycles:
          bound = &room.ref_cycles;
          break;
        case Event::branches:
          bound = &room.branches;
          break;
        default:
          break;
      }
    }
    *bound = std::min(*bound, at(counter).mask - at(counter).value);
  }
  view.headroom = room;
}

const Headroom& HardwarePmu::headroom(Ring ring, Mode mode) {
  View& view = this->view(ring, mode);
  const std::size_t index = view_index(ring, mode);
  if ((stale_headroom_ >> index & 1) != 0) {
    measure(view);
    stale_headroom_ = static_cast<std::uint8_t>(stale_headroom_ & ~(1U << index));
  }
  return view.headroom;
}

bool HardwarePmu::uses(Event event, Mode mode) {
  return ((view(Ring::kernel, mode).events | view(Ring::user, mode).events) >> index_of(event) & 1) != 0;
}

bool HardwarePmu::uses_edges(Mode mode) { return view(Ring::kernel, mode).edges || view(Ring::user, mode).edges; }

CounterSet HardwarePmu::advance(const Activity& activity, Ring ring, Mode mode) {
  const View& view = this->view(ring, mode);
  if (view.size == 0) return 0;
  CounterSet overflowed = 0;
  for (std::uint32_t i = 0; i < view.size; ++i) {
    const auto& [id, rule] = view.active[i];
    Counter& counter = at(id);
    const std::uint64_t events = amount(rule, activity);
    if (events > counter.mask - counter.value) [[unlikely]]
      overflowed |= id.mask();
    counter.value = (counter.value + events) & counter.mask;
  }
  stale_headroom_ = all_views;
  if (overflowed != 0) [[unlikely]]
    overflow(overflowed);
  return overflowed;
}

void HardwarePmu::overflow(CounterSet counters) {
  bool interrupt = false;
  for_each_counter(counters, [&](CounterId counter) {
    if ((pebs_enable_ & counter.mask()) != 0) {
      // No records here: the buffer counts as full at once. Its PMI does not ask for INT, and comes once until software
      // has cleared the bit (SDM volume 3, "Processor Event Based Sampling").
      interrupt |= (global_status_ & global_status::buffer_overflow) == 0;
      global_status_ |= global_status::buffer_overflow;
      return;
    }
    if (profile_.has_global_ctrl()) global_status_ |= counter.mask();
    interrupt |= counter.is_fixed() ? (fixed_ctrl::field(fixed_ctrl_, counter.number()) & fixed_ctrl::interrupt) != 0
                                    : (at(counter).selector & evtsel::interrupt) != 0;
  });
  if (!interrupt) return;
  pmi_ = true;
  ++pmis_;
  if ((debugctl_ & debugctl::freeze_perfmon_on_pmi) == 0) return;
  if (profile_.version >= 4) {
    global_status_ |= global_status::counters_frozen;
  } else {
    global_ctrl_ = 0;
  }
  controls_changed();
}

bool HardwarePmu::take_pmi() {
  const bool raised = pmi_;
  pmi_ = false;
  return raised;
}

Profile host_for(const Profile& guest) {
  const std::uint32_t host_limit = guest.is_intel() ? max_gp_counters : 15;
  Profile host = svm_host(find_profile(guest.is_intel() ? "intel-v5" : "amd-v2")->profile);
  const auto counters = static_cast<std::uint32_t>(std::popcount(guest.counters()));
  host.gp_counters = static_cast<std::uint8_t>(std::clamp(counters, std::uint32_t{host.gp_counters}, host_limit));
  return host;
}

}  // namespace vpmu::model
