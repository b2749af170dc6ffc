#include "vpmu/virtual_pmu.hpp"

#include "arch/registers.hpp"

namespace vpmu {

using arch::Register;
using arch::RegisterKind;

VirtualPmu::VirtualPmu(const Profile& profile, Backing& backing, const Policy& policy)
    : registers_{profile, policy},
      backing_{backing},
      exit_work_{&backing.exit_work()},
      every_entry_{backing.every_entry()} {
  backing_.set_policy(policy);
}

VirtualPmu::~VirtualPmu() { backing_.release(); }

bool VirtualPmu::owns(Msr msr) const {
  const Register reg = arch::find_register(msr);
  return reg && reg.vendor() == profile().vendor;
}

bool VirtualPmu::enumerates(Msr msr) const { return exists(arch::find_register(msr)); }

bool VirtualPmu::exists(Register reg) const { return (registers_.rules_.of(reg.kind).numbers >> reg.number & 1) != 0; }

// Registers that the profile lacks, and that answer all the same: see arch::reads_zero() and Profile::save_list.

bool VirtualPmu::answers_zero(Register reg, Access access) const {
  return arch::reads_zero(profile(), reg) || (access == Access::host && arch::in_save_list(profile(), reg));
}

bool VirtualPmu::takes_nothing(Register reg, std::uint64_t value, Access access) const {
  return arch::reads_zero(profile(), reg) || (value == 0 && answers_zero(reg, access));
}

Result<std::uint64_t, Fault> VirtualPmu::read_msr(Msr msr) { return read(msr, Access::guest); }
Status<Fault> VirtualPmu::write_msr(Msr msr, std::uint64_t value) { return write(msr, value, Access::guest); }
Result<std::uint64_t, Fault> VirtualPmu::host_read_msr(Msr msr) { return read(msr, Access::host); }
Status<Fault> VirtualPmu::host_write_msr(Msr msr, std::uint64_t value) { return write(msr, value, Access::host); }

Result<std::uint64_t, Fault> VirtualPmu::read_pmc(std::uint32_t ecx) {
  const std::uint32_t bit = arch::find_pmc(profile(), ecx);
  if (bit == arch::no_counter) return Fault::general_protection;
  return read_counter(CounterId::from_bit(bit));
}

Result<std::uint64_t, Fault> VirtualPmu::read_pmc(std::uint32_t ecx, PmcAccess access) {
  // A bad index and a denied access are the same fault: the order shows nowhere.
  if (access.cpl != 0 && access.cr0_pe && !access.cr4_pce) return Fault::general_protection;
  return read_pmc(ecx);
}

std::uint64_t VirtualPmu::read_counter(CounterId counter) {
  fold(counter.mask());
  return registers_.value(counter);
}

Result<std::uint64_t, Fault> VirtualPmu::read(Msr msr, Access access) {
  const Register reg = arch::find_register(msr);
  if (!exists(reg)) {
    if (answers_zero(reg, access)) return std::uint64_t{0};
    return Fault::general_protection;
  }
  switch (reg.kind) {
    case RegisterKind::pmc:
    case RegisterKind::a_pmc:
    case RegisterKind::k7_perf_ctr:
    case RegisterKind::core_perf_ctr:
      return read_counter(CounterId::gp(reg.number));
    case RegisterKind::fixed_ctr:
      return read_counter(CounterId::fixed(reg.number));
    case RegisterKind::perfevtsel:
    case RegisterKind::k7_perf_ctl:
    case RegisterKind::core_perf_ctl:
      return registers_.selector(CounterId::gp(reg.number));
    case RegisterKind::fixed_ctr_ctrl:
      return registers_.fixed_ctrl_;
    case RegisterKind::global_status:
    case RegisterKind::amd_global_status:
      backing_.fold_overflows(registers_, profile().counters());
      return registers_.global_status_;
    case RegisterKind::global_ctrl:
    case RegisterKind::amd_global_ctl:
      return registers_.global_ctrl_;
    case RegisterKind::global_ovf_ctrl:
    case RegisterKind::global_status_set:
    case RegisterKind::amd_global_status_clr:
    case RegisterKind::amd_global_status_set:
      return std::uint64_t{0};
    case RegisterKind::global_inuse:
      return in_use();
    case RegisterKind::pebs_enable:
      return registers_.pebs_enable_;
    case RegisterKind::pebs_data_cfg:
      return registers_.pebs_data_cfg_;
    case RegisterKind::ds_area:
      return registers_.ds_area_;
    case RegisterKind::perf_capabilities:
      return profile().perf_capabilities;
    case RegisterKind::debugctl:
      return registers_.debugctl_;
    case RegisterKind::misc_enable:
      return arch::misc_enable_bits(profile());
    case RegisterKind::none:
      break;
  }
  return Fault::general_protection;
}

bool VirtualPmu::refuses(Register reg, std::uint64_t value, Access access) const {
  if ((value & ~registers_.rules_.of(reg.kind).legal) != 0) return true;
  const bool guest = access == Access::guest;
  switch (reg.kind) {
    case RegisterKind::perfevtsel:
      return (value & evtsel::in_tx_cp) != 0 && reg.number != 2;
    case RegisterKind::global_status:
      return guest;
    case RegisterKind::amd_global_status:
      return !guest && (value & ~arch::legal_global_status(profile())) != 0;
    case RegisterKind::global_inuse:
      return true;
    case RegisterKind::ds_area:
      return !is_canonical(value);
    case RegisterKind::perf_capabilities:
      return guest || value != profile().perf_capabilities;
    case RegisterKind::misc_enable: {
      constexpr std::uint64_t ours =
          misc_enable::perfmon_available | misc_enable::bts_unavailable | misc_enable::pebs_unavailable;
      return (value & ours) != arch::misc_enable_bits(profile());
    }
    default:
      return false;
  }
}

Status<Fault> VirtualPmu::write(Msr msr, std::uint64_t value, Access access) {
  const Register reg = arch::find_register(msr);
  if (!exists(reg)) {
    if (takes_nothing(reg, value, access)) return {};
    return Fault::general_protection;
  }
  if (refuses(reg, value, access)) return Fault::general_protection;
  switch (reg.kind) {
    case RegisterKind::pmc:
      // The legacy address takes 32 bits and extends their sign (SDM volume 3, "Full-Width Writes to Performance
      // Counter Registers").
      if (access == Access::guest) {
        value = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value)));
      }
      write_counter(CounterId::gp(reg.number), value);
      break;
    case RegisterKind::a_pmc:
    case RegisterKind::k7_perf_ctr:
    case RegisterKind::core_perf_ctr:
      write_counter(CounterId::gp(reg.number), value);
      break;
    case RegisterKind::fixed_ctr:
      write_counter(CounterId::fixed(reg.number), value);
      break;
    case RegisterKind::perfevtsel:
    case RegisterKind::k7_perf_ctl:
    case RegisterKind::core_perf_ctl: {
      const CounterId counter = CounterId::gp(reg.number);
      write_selector(counter, value & arch::legal_selector(profile(), counter));
      break;
    }
    case RegisterKind::fixed_ctr_ctrl:
      write_fixed_ctrl(value);
      break;
    case RegisterKind::global_status:
      set_status(value);
      break;
    case RegisterKind::amd_global_status:
      if (access == Access::host) set_status(value);
      break;
    case RegisterKind::global_ctrl:
    case RegisterKind::amd_global_ctl:
      registers_.global_ctrl_ = value & profile().counters();
      registers_.refresh();
      break;
    case RegisterKind::global_ovf_ctrl:
    case RegisterKind::amd_global_status_clr:
      if (access == Access::guest) {
        // An overflow from before this write is cleared by it: it has to be known first.
        backing_.fold_overflows(registers_, value & profile().counters());
        set_status(registers_.global_status_ & ~value);
      }
      break;
    case RegisterKind::global_status_set:
    case RegisterKind::amd_global_status_set:
      if (access == Access::guest) set_status(registers_.global_status_ | (value & status_set_bits()));
      break;
    case RegisterKind::pebs_enable:
      fold((registers_.pebs_enable_ ^ value) & profile().counters());
      registers_.pebs_enable_ = value;
      break;
    case RegisterKind::pebs_data_cfg:
      registers_.pebs_data_cfg_ = value;
      break;
    case RegisterKind::ds_area:
      registers_.ds_area_ = value;
      break;
    case RegisterKind::debugctl:
      ++registers_.revision_;
      registers_.debugctl_ = value;
      break;
    case RegisterKind::perf_capabilities:
    case RegisterKind::misc_enable:
    case RegisterKind::global_inuse:
    case RegisterKind::none:
      break;
  }
  return {};
}

void VirtualPmu::write_counter(CounterId counter, std::uint64_t value) {
  // What was counted so far is overwritten, but an overflow that it caused stays.
  fold(counter.mask());
  registers_.write_counter(counter, value);
}

void VirtualPmu::write_selector(CounterId counter, std::uint64_t value) {
  const std::uint64_t changed = registers_.selector(counter) ^ value;
  if (changed == 0) return;
  // What was counted so far counted under the old selector: its interrupt bit decides about an overflow in it.
  if ((changed & ~evtsel::enable) != 0) fold(counter.mask());
  registers_.counters_[counter.slot()].selector = value;
  registers_.local_change(counter);
  registers_.refresh();
  if ((registers_.active() & counter.mask()) != 0 || policy().pause == Policy::Pause::untracked) {
    registers_.request(counter.mask());
  }
}

void VirtualPmu::write_fixed_ctrl(std::uint64_t value) {
  const std::uint64_t changed = registers_.fixed_ctrl_ ^ value;
  CounterSet counters = 0;
  for (std::uint32_t n = 0; n < max_fixed_counters; ++n) {
    if (fixed_ctrl::field(changed, n) != 0) counters |= CounterId::fixed(n).mask();
  }
  if (counters == 0) return;
  fold(counters);
  registers_.fixed_ctrl_ = value;
  for_each_counter(counters, [this](CounterId counter) { registers_.local_change(counter); });
  registers_.refresh();
  registers_.request(policy().pause == Policy::Pause::untracked ? counters : counters & registers_.active());
}

void VirtualPmu::set_status(std::uint64_t status) {
  ++registers_.revision_;
  registers_.take_status(status);
}

std::uint64_t VirtualPmu::status_set_bits() const {
  return profile().is_intel() ? arch::legal_global_status_set(profile()) : profile().counters();
}

std::uint64_t VirtualPmu::in_use() const {
  constexpr std::uint64_t pmi_in_use = 1ULL << 63;
  std::uint64_t used = registers_.interrupt_ != 0 || registers_.pebs_enable_ != 0 ? pmi_in_use : 0;
  for_each_counter(profile().counters(), [&](CounterId counter) {
    const std::uint64_t field = counter.is_fixed() ? fixed_ctrl::field(registers_.fixed_ctrl_, counter.number()) &
                                                         (fixed_ctrl::kernel | fixed_ctrl::user)
                                                   : registers_.selector(counter) & evtsel::event;
    if (field != 0) used |= counter.mask();
  });
  return used;
}

bool VirtualPmu::is_canonical(std::uint64_t address) {
  constexpr int unused_bits = 16;
  return static_cast<std::uint64_t>(static_cast<std::int64_t>(address << unused_bits) >> unused_bits) == address;
}

Status<PostError> VirtualPmu::post_write(Msr msr, std::uint64_t value) {
  const Register reg = arch::find_register(msr);
  const bool taken = exists(reg) ? !refuses(reg, value, Access::host) : takes_nothing(reg, value, Access::host);
  if (!taken) return PostError::refused;
  if (!mailbox_.post({msr, value})) return PostError::full;
  return {};
}

void VirtualPmu::retire_slowly(EmulatedEvent event, std::uint32_t cpl) {
  const auto& matches = registers_.retire_[static_cast<std::size_t>(event)];
  const CounterSet counters = policy().retire == Policy::Retire::walk ? registers_.walk_matches(event, cpl != 0)
                              : cpl == 0                              ? matches.kernel
                                                                      : matches.user;
  // In mediated mode a counter's value may still be in the hardware. In emulated mode, what the host counts is added
  // to it at any later time.
  if (every_entry_) fold(counters);
  registers_.count_emulated(counters);
}

void VirtualPmu::take_posted_writes() {
  PostedWrite posted{};
  for (std::uint32_t i = 0; i < Mailbox::capacity && mailbox_.take(posted); ++i) {
    // It was checked when posted; a profile set since may refuse it, and then it concerns no register any more.
    static_cast<void>(host_write_msr(posted.msr, posted.value));
  }
}

EntryAction VirtualPmu::enter_slowly() {
  take_posted_writes();
  if (registers_.pmi_pending_) backing_.before_pmi(registers_);
  bool pmi = take_pmi();
  serve_requests();
  // Bringing the host in line can bring an overflow to light; PMIs of one entry are one.
  pmi |= take_pmi();
  if (registers_.requested_ != 0) serve_requests();
  return pmi ? EntryAction::inject_pmi : EntryAction::none;
}

void VirtualPmu::serve_requests() {
  // Taken and cleared first: what is asked for meanwhile stays for the next round.
  const CounterSet changed = registers_.requested_;
  registers_.requested_ = 0;
  if (changed != 0 || every_entry_) backing_.enter(registers_, changed & ~RegisterFile::entry_request);
}

bool VirtualPmu::take_pmi() {
  if (!registers_.pmi_pending_) return false;
  registers_.pmi_pending_ = false;
  if ((registers_.debugctl_ & debugctl::freeze_perfmon_on_pmi) == 0) return true;
  // SDM volume 3, "Freezing LBR and Performance Counters on PMI": legacy up to v3, streamlined from v4.
  if (profile().version < 4) {
    registers_.global_ctrl_ = 0;
    registers_.refresh();
  } else {
    set_status(registers_.global_status_ | global_status::counters_frozen);
  }
  return true;
}

void VirtualPmu::reset() {
  backing_.release();
  PostedWrite dropped{};
  while (mailbox_.take(dropped)) {
  }
  registers_.reset();
}

void VirtualPmu::set_profile(const Profile& profile) {
  registers_.profile_ = profile;
  reset();
}

void VirtualPmu::set_filter(const EventFilter* filter) {
  fold(registers_.active());
  registers_.filter_ = filter;
  for_each_counter(profile().counters(), [this](CounterId counter) { registers_.local_change(counter); });
  registers_.refresh();
}

void VirtualPmu::set_policy(const Policy& policy) {
  registers_.policy_ = policy;
  backing_.set_policy(policy);
  for_each_counter(profile().counters(), [this](CounterId counter) { registers_.new_period(counter); });
  registers_.refresh();
  registers_.request(profile().counters());
}

}  // namespace vpmu
