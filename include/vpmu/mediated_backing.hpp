// Mediated mode: the guest owns the hardware's counters between VM entry and VM exit.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <utility>

#include "vpmu/backing.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/hardware.hpp"
#include "vpmu/health.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"
#include "vpmu/register_file.hpp"

namespace vpmu {

/// Why a host can't give a guest of this profile its counters, in one line without a full stop; a null pointer if it
/// can. Such a guest needs emulated mode.
const char* why_not_mediated(const Profile& host, const Profile& guest);

/// What follows for the switch from the two profiles.
struct MediatedPlan {
  struct Counter {
    CounterId id = CounterId::gp(0);
    Msr value{};
    Msr selector{};  // general-purpose counters only
    std::uint32_t ecx = 0;
  };
  std::array<Counter, max_counters> counters{};
  std::uint32_t size = 0;
  std::uint32_t gp = 0;  // of them, the first ones
  CounterSet set = 0;

  bool intel = true;
  bool global_ctrl_is_the_guests = false;
  bool status_is_the_guests = false;
  PassThrough pass{};

  Msr global_ctrl{};
  Msr status{};
  Msr status_clear{};
  Msr status_set{};
  std::uint64_t status_bits = 0;  // the guest's
  std::uint64_t clearable = 0;    // by status_clear, without #GP
  std::uint64_t settable = 0;     // by status_set
  std::uint64_t gp_fill = 0;      // the bits that the hardware's counter has above the guest's
  std::uint64_t fixed_fill = 0;
};
MediatedPlan plan_mediated(const Profile& host, const Profile& guest);

/// Whether `switch=ownership` trusts what it remembers.
enum class Trust : std::uint8_t {
  remembered,
  verified,  // for debugging: every register is read again before a VM entry that would write nothing
};

/// Gives one vCPU the counters of the CPU on which it runs: loads them at enter(), saves and clears them at leave().
/// Between leave() and enter() the register file holds everything, except under `switch=ownership`, where the hardware
/// keeps the values until somebody asks for them.
template <Hardware H>
class MediatedBacking final : public Backing {
 public:
  /// `host` describes the CPUs' PMU and passes check(). The hardware outlives the backing.
  MediatedBacking(H& hardware, const Profile& host, Trust trust = Trust::remembered)
      : Backing{exit_work_, true}, hardware_{hardware}, host_{host}, trust_{trust} {}
  ~MediatedBacking() { release(); }

  void enter(RegisterFile& registers, CounterSet changed) override;
  void leave(RegisterFile& registers) override;
  void fold(RegisterFile& registers, CounterSet counters) override;
  void fold_overflows(RegisterFile& registers, CounterSet counters) override { fold(registers, counters); }
  void before_pmi(RegisterFile& /*registers*/) override {}
  /// Gives the hardware back, whatever the policy.
  void sched_out(RegisterFile& registers) override;
  void release() override;
  void set_policy(const Policy& policy) override { policy_ = policy; }
  [[nodiscard]] Health health(CounterId counter) const override;

  // --- For tests, reports and debugging ---

  /// Whether the hardware holds this vCPU's values.
  [[nodiscard]] bool resident() const { return resident_; }
  /// What the guest reaches without a VM exit, as last given to the hardware.
  [[nodiscard]] const PassThrough& passes() const { return pass_; }
  /// The event select and FIXED_CTR_CTRL as they go to the hardware: filtered.
  [[nodiscard]] std::uint64_t hardware_selector(CounterId counter) const { return selectors_[counter.slot()]; }
  [[nodiscard]] std::uint64_t hardware_fixed_ctrl() const { return fixed_ctrl_; }
  /// How often a VM entry found that the hardware did not hold what it should: the host broke a promise of `Hardware`.
  [[nodiscard]] std::uint64_t broken_promises() const { return broken_promises_; }

 private:
  using Switch = Policy::Switch;

  /// Visits the plan's counters.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::uint32_t i = 0; i < plan_.size; ++i) visit(plan_.counters[i]);
  }
  [[nodiscard]] std::uint64_t selector_for_hardware(const RegisterFile& registers, CounterId counter) const;
  [[nodiscard]] std::uint64_t fixed_ctrl_for_hardware(const RegisterFile& registers) const;
  [[nodiscard]] std::uint64_t value_for_hardware(const RegisterFile& registers, CounterId counter) const;
  [[nodiscard]] std::uint64_t status_for_hardware(const RegisterFile& registers) const;
  [[nodiscard]] std::uint64_t global_ctrl_for_hardware(const RegisterFile& registers) const;

  void load(RegisterFile& registers);
  void load_counter(const RegisterFile& registers, const MediatedPlan::Counter& counter);
  void load_status(std::uint64_t have, std::uint64_t want);
  void set_global_ctrl(std::uint64_t value);
  void set_debugctl(const RegisterFile& registers);
  /// Where the hardware holds this vCPU's values: writes what changed since.
  void update(RegisterFile& registers);
  void resume(RegisterFile& registers);
  /// Takes the values of these counters from the hardware into the register file.
  void take_values(RegisterFile& registers, CounterSet counters);
  /// And the status with them.
  void take(RegisterFile& registers, CounterSet counters, bool vector);
  void take_status(RegisterFile& registers, std::uint64_t status);
  void judge_pmi(RegisterFile& registers, std::uint64_t overflowed, std::uint64_t status, bool vector);
  [[nodiscard]] bool holds_what_it_should(const RegisterFile& registers);
  /// Zeroes the hardware, after taking its values, and gives it back. A null pointer: they are dropped.
  void put(RegisterFile* registers);
  void stand_aside();
  void forget();
  void set_pass(const PassThrough& pass);
  [[nodiscard]] bool is_ours() { return hardware_.current_cpu() == cpu_ && hardware_.owner_epoch(cpu_) == epoch_; }
  void in_guest(bool inside) {
    in_guest_ = inside;
    exit_work_.store(inside ? 1 : 0, std::memory_order_relaxed);
  }

  H& hardware_;
  Profile host_;
  Trust trust_;
  Policy policy_;
  std::atomic<std::uint64_t> exit_work_{0};

  bool planned_ = false;
  bool resident_ = false;
  bool in_guest_ = false;
  Switch mode_ = Switch::elide;  // as of the last entry
  /// A PMI was reported whose vector has not come yet.
  bool echo_due_ = false;
  bool entry_global_ctrl_known_ = false;
  bool intercepts_known_ = false;
  std::uint32_t cpu_ = 0;
  std::uint32_t revision_ = 0;  // of the register file, when the hardware had all of it
  std::uint64_t epoch_ = 0;
  std::uint64_t broken_promises_ = 0;
  CounterSet counting_ = 0;
  PassThrough pass_{};

  /// What the hardware holds while resident. A counter's value is known while the register file's counts; else the
  /// hardware's does.
  CounterSet known_ = 0;
  std::array<std::uint64_t, max_counters> values_{};
  std::array<std::uint64_t, max_counters> selectors_{};
  std::uint64_t fixed_ctrl_ = 0;
  std::uint64_t status_ = 0;
  std::uint64_t entry_global_ctrl_ = 0;
  std::uint64_t entry_debugctl_ = ~std::uint64_t{0};  // not set yet
  MediatedPlan plan_{};
};

// --- Which values go to the hardware ---

template <Hardware H>
std::uint64_t MediatedBacking<H>::selector_for_hardware(const RegisterFile& registers, CounterId counter) const {
  std::uint64_t selector = registers.selector(counter);
  if (selector == 0) return 0;
  if ((registers.let_through() & counter.mask()) == 0) selector &= ~evtsel::enable;
  // AMD: counts in guest mode alone, so that GLOBAL_CTL may be live around VMRUN (APM volume 2, section 13.2.1).
  return plan_.intel ? selector : (selector & ~evtsel::host_only) | evtsel::guest_only;
}

template <Hardware H>
std::uint64_t MediatedBacking<H>::fixed_ctrl_for_hardware(const RegisterFile& registers) const {
  std::uint64_t ctrl = registers.fixed_ctrl();
  if (ctrl == 0) return 0;
  for (std::uint32_t n = 0; n < max_fixed_counters; ++n) {
    if ((registers.let_through() & CounterId::fixed(n).mask()) == 0) ctrl &= ~(std::uint64_t{0xF} << (4 * n));
  }
  return ctrl;
}

template <Hardware H>
std::uint64_t MediatedBacking<H>::value_for_hardware(const RegisterFile& registers, CounterId counter) const {
  const std::uint64_t fill = counter.is_fixed() ? plan_.fixed_fill : plan_.gp_fill;
  if (fill == 0) [[likely]]
    return registers.value(counter);
  // A counter wider than the guest's overflows where the guest's does if all bits above are set.
  const bool enabled = counter.is_fixed() ? fixed_ctrl::field(fixed_ctrl_, counter.number()) != 0
                                          : (selectors_[counter.slot()] & evtsel::enable) != 0;
  return registers.value(counter) | (enabled ? fill : 0);
}

template <Hardware H>
std::uint64_t MediatedBacking<H>::status_for_hardware(const RegisterFile& registers) const {
  return plan_.status_is_the_guests ? registers.global_status() & plan_.settable : 0;
}

template <Hardware H>
std::uint64_t MediatedBacking<H>::global_ctrl_for_hardware(const RegisterFile& registers) const {
  // Never a bit beyond the guest's own counters: what a host counter holds would count.
  return (plan_.global_ctrl_is_the_guests ? registers.global_ctrl() : ~std::uint64_t{0}) & plan_.set;
}

// --- Load ---

template <Hardware H>
void MediatedBacking<H>::load_counter(const RegisterFile& registers, const MediatedPlan::Counter& counter) {
  const std::uint64_t want = value_for_hardware(registers, counter.id);
  values_[counter.id.slot()] = want;
  if (mode_ != Switch::write && hardware_.rdpmc(counter.ecx) == want) return;
  hardware_.wrmsr(counter.value, want);
}

template <Hardware H>
void MediatedBacking<H>::load_status(std::uint64_t have, std::uint64_t want) {
  status_ = want;
  const std::uint64_t surplus = have & ~want & plan_.clearable;
  const std::uint64_t missing = want & ~have;
  if (surplus != 0) hardware_.wrmsr(plan_.status_clear, surplus);
  if (missing != 0) hardware_.wrmsr(plan_.status_set, missing);
}

template <Hardware H>
void MediatedBacking<H>::set_global_ctrl(std::uint64_t value) {
  // Intel: the field outlives the VM exit. AMD: the register was zeroed when it was put.
  if (plan_.intel && entry_global_ctrl_known_ && value == entry_global_ctrl_) return;
  hardware_.set_entry_global_ctrl(value);
  entry_global_ctrl_ = value;
  entry_global_ctrl_known_ = true;
}

template <Hardware H>
void MediatedBacking<H>::set_debugctl(const RegisterFile& registers) {
  if (!plan_.intel) return;
  // Freezing on a PMI is done where the PMI is reported, as in emulated mode: the hardware freezes another way than
  // perfmon before v4 did. Whether counters stop in SMM stays the host's decision.
  constexpr std::uint64_t guests = debugctl::branch_trap | debugctl::freeze_lbrs_on_pmi;
  const std::uint64_t value =
      (registers.debugctl() & guests) | (hardware_.host_debugctl() & debugctl::freeze_while_smm);
  if (value == entry_debugctl_) return;
  hardware_.set_entry_debugctl(value);
  entry_debugctl_ = value;
}

template <Hardware H>
void MediatedBacking<H>::load(RegisterFile& registers) {
  hardware_.leave_host_perf();
  hardware_.wrmsr(plan_.global_ctrl, 0);
  hardware_.set_lvtpc(LvtpcOwner::guest);
  fixed_ctrl_ = fixed_ctrl_for_hardware(registers);
  for_each([&](const MediatedPlan::Counter& counter) {
    if (counter.id.is_fixed()) return load_counter(registers, counter);
    const std::uint64_t selector = selector_for_hardware(registers, counter.id);
    selectors_[counter.id.slot()] = selector;
    load_counter(registers, counter);
    hardware_.wrmsr(counter.selector, selector);
  });
  load_status(hardware_.rdmsr(plan_.status), status_for_hardware(registers));
  if (plan_.intel) hardware_.wrmsr(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl_);
  set_debugctl(registers);
  set_global_ctrl(global_ctrl_for_hardware(registers));

  PassThrough pass = plan_.pass;
  // Under ownership the register file has to know what counts without asking the hardware after each exit. And a status
  // bit that can't be loaded (CondChgd) can't be read there either.
  if (mode_ == Switch::ownership || status_ != registers.global_status()) pass.global = false;
  set_pass(pass);
  // Nothing of the guest can have counted since LVTPC is its own: this was somebody else's.
  static_cast<void>(hardware_.take_guest_pmi());
  echo_due_ = false;
  known_ = plan_.set;
  revision_ = registers.revision();
  resident_ = true;
  if (mode_ != Switch::ownership) return;
  cpu_ = hardware_.current_cpu();
  epoch_ = hardware_.owner_epoch(cpu_);
}

// --- Entry and exit ---

template <Hardware H>
void MediatedBacking<H>::enter(RegisterFile& registers, CounterSet /*changed*/) {
  if (!planned_) {
    plan_ = plan_mediated(host_, registers.profile());
    planned_ = true;
  }
  counting_ = registers.active();
  // A PMI that freezes the counters, or a late write, in the course of one entry.
  if (in_guest_) return update(registers);
  mode_ = policy_.mode_switch;
  if (resident_) {
    if (!is_ours()) {
      ++broken_promises_;
      forget();
    } else if (mode_ == Switch::ownership) {
      resume(registers);
      return in_guest(true);
    } else {
      put(&registers);
    }
  }
  // Who counts nothing needs no counter: a guest without a PMU, and under ownership one that doesn't use it.
  if (plan_.size == 0 || (mode_ == Switch::ownership && counting_ == 0)) return stand_aside();
  load(registers);
  in_guest(true);
}

template <Hardware H>
void MediatedBacking<H>::leave(RegisterFile& registers) {
  if (!in_guest_) return;
  in_guest(false);
  known_ = 0;
  if (mode_ != Switch::ownership) return put(&registers);
  const bool vector = hardware_.take_guest_pmi();
  // The vector of a PMI reported before this stay came by now, or never will.
  if (!vector) echo_due_ = false;
  if (vector || trust_ == Trust::verified) take(registers, plan_.set, vector);
}

template <Hardware H>
void MediatedBacking<H>::resume(RegisterFile& registers) {
  if (hardware_.take_guest_pmi()) take(registers, plan_.set, true);
  if (trust_ == Trust::verified && !holds_what_it_should(registers)) {
    ++broken_promises_;
    hardware_.return_host_perf();
    load(registers);
    return;
  }
  if (registers.revision() == revision_) return;
  // Which bits a narrower guest's counter has above its own depends on whether it is enabled.
  if ((plan_.gp_fill | plan_.fixed_fill) != 0) take_values(registers, plan_.set);
  update(registers);
}

template <Hardware H>
void MediatedBacking<H>::update(RegisterFile& registers) {
  const std::uint64_t fixed_ctrl = fixed_ctrl_for_hardware(registers);
  const bool fixed_ctrl_changed = fixed_ctrl != fixed_ctrl_;
  fixed_ctrl_ = fixed_ctrl;
  for_each([&](const MediatedPlan::Counter& counter) {
    const std::size_t slot = counter.id.slot();
    if (!counter.id.is_fixed()) {
      const std::uint64_t selector = selector_for_hardware(registers, counter.id);
      if (selector != selectors_[slot]) hardware_.wrmsr(counter.selector, selector);
      selectors_[slot] = selector;
    }
    if ((known_ & counter.id.mask()) == 0) return;
    const std::uint64_t value = value_for_hardware(registers, counter.id);
    if (value != values_[slot]) hardware_.wrmsr(counter.value, value);
    values_[slot] = value;
  });
  if (fixed_ctrl_changed) hardware_.wrmsr(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl);
  load_status(status_, status_for_hardware(registers));
  set_debugctl(registers);
  const std::uint64_t global_ctrl = global_ctrl_for_hardware(registers);
  if (global_ctrl != entry_global_ctrl_) set_global_ctrl(global_ctrl);
  revision_ = registers.revision();
}

template <Hardware H>
void MediatedBacking<H>::stand_aside() {
  set_pass({});
  // No counter of the host's counts while this guest runs. AMD's register stays the host's.
  if (plan_.intel) set_global_ctrl(0);
}

// --- From the hardware ---

template <Hardware H>
void MediatedBacking<H>::judge_pmi(RegisterFile& registers, std::uint64_t overflowed, std::uint64_t status,
                                   bool vector) {
  // A status bit is proof of an overflow: the registers that set one exit. The vector alone speaks for an overflow of a
  // counter whose bit was set before, and is not believed where no bit could have brought it about.
  if ((overflowed & registers.interrupting()) != 0) {
    registers.raise_pmi();
    echo_due_ = !vector;
  } else if (vector && !std::exchange(echo_due_, false) && (status & registers.interrupting()) != 0) {
    registers.raise_pmi();
  }
}

template <Hardware H>
void MediatedBacking<H>::take_status(RegisterFile& registers, std::uint64_t status) {
  if (!plan_.status_is_the_guests) return;
  const std::uint64_t elsewhere = registers.global_status() & ~plan_.settable;
  registers.take_status((status & plan_.status_bits) | elsewhere);
}

template <Hardware H>
void MediatedBacking<H>::take_values(RegisterFile& registers, CounterSet counters) {
  for_each([&](const MediatedPlan::Counter& counter) {
    if ((counters & ~known_ & counter.id.mask()) == 0) return;
    const std::uint64_t value = hardware_.rdpmc(counter.ecx);
    values_[counter.id.slot()] = value;
    registers.take_value(counter.id, value);
  });
  known_ |= counters & plan_.set;
}

template <Hardware H>
void MediatedBacking<H>::take(RegisterFile& registers, CounterSet counters, bool vector) {
  const bool unchanged = registers.revision() == revision_;
  take_values(registers, counters);
  const std::uint64_t status = hardware_.rdmsr(plan_.status);
  const std::uint64_t overflowed = status & ~status_;
  if (plan_.status_is_the_guests) {
    status_ = status;
    registers.take_status(registers.global_status() | (overflowed & plan_.status_bits));
  } else if (overflowed != 0) {
    // The guest never clears a bit that it can't see, and the next overflow must show.
    hardware_.wrmsr(plan_.status_clear, overflowed & plan_.clearable);
  }
  judge_pmi(registers, overflowed, status, vector);
  // The handler's interrupt has masked it (SDM volume 3, "Handling Local Interrupts").
  if (vector) hardware_.set_lvtpc(LvtpcOwner::guest);
  if (unchanged) revision_ = registers.revision();
}

template <Hardware H>
void MediatedBacking<H>::fold(RegisterFile& registers, CounterSet counters) {
  if (resident_ && !in_guest_ && counters != 0) take(registers, counters, hardware_.take_guest_pmi());
}

template <Hardware H>
bool MediatedBacking<H>::holds_what_it_should(const RegisterFile& registers) {
  bool right = (hardware_.rdmsr(plan_.status) & plan_.clearable) == status_;
  right &= !plan_.intel || hardware_.rdmsr(Msr::ia32_fixed_ctr_ctrl) == fixed_ctrl_;
  right &= hardware_.rdmsr(plan_.global_ctrl) == (plan_.intel ? 0 : entry_global_ctrl_);
  right &= hardware_.entry_global_ctrl() == entry_global_ctrl_;
  for_each([&](const MediatedPlan::Counter& counter) {
    const std::size_t slot = counter.id.slot();
    right &= counter.id.is_fixed() || hardware_.rdmsr(counter.selector) == selectors_[slot];
    right &= hardware_.rdpmc(counter.ecx) == values_[slot];
  });
  return right && plan_.set == registers.profile().counters();
}

// --- Put ---

template <Hardware H>
void MediatedBacking<H>::put(RegisterFile* registers) {
  if (pass_.global && plan_.global_ctrl_is_the_guests && registers != nullptr) {
    entry_global_ctrl_ = hardware_.entry_global_ctrl();
    registers->take_global_ctrl(entry_global_ctrl_ & plan_.set);
  }
  if (!plan_.intel) hardware_.wrmsr(plan_.global_ctrl, 0);
  const std::uint64_t status = hardware_.rdmsr(plan_.status);
  if ((status & plan_.clearable) != 0) hardware_.wrmsr(plan_.status_clear, status & plan_.clearable);
  if (fixed_ctrl_ != 0) hardware_.wrmsr(Msr::ia32_fixed_ctr_ctrl, 0);
  for_each([&](const MediatedPlan::Counter& counter) {
    const std::size_t slot = counter.id.slot();
    if ((known_ & counter.id.mask()) == 0) {
      values_[slot] = hardware_.rdpmc(counter.ecx);
      if (registers != nullptr) registers->take_value(counter.id, values_[slot]);
    }
    if (values_[slot] != 0) hardware_.wrmsr(counter.value, 0);
    if (!counter.id.is_fixed() && selectors_[slot] != 0) hardware_.wrmsr(counter.selector, 0);
  });
  const bool vector = hardware_.take_guest_pmi();
  if (registers != nullptr) {
    if (pass_.global) {
      take_status(*registers, status);
    } else if (plan_.status_is_the_guests) {
      registers->take_status(registers->global_status() | (status & ~status_ & plan_.status_bits));
    }
    judge_pmi(*registers, status & ~status_, status, vector);
  }
  hardware_.set_lvtpc(LvtpcOwner::host);
  hardware_.return_host_perf();
  forget();
}

template <Hardware H>
void MediatedBacking<H>::forget() {
  resident_ = false;
  echo_due_ = false;
  known_ = 0;
}

template <Hardware H>
void MediatedBacking<H>::sched_out(RegisterFile& registers) {
  leave(registers);
  if (!resident_) return;
  put(&registers);
  set_pass({});
}

template <Hardware H>
void MediatedBacking<H>::release() {
  if (resident_) {
    if (in_guest_) known_ = 0;
    in_guest(false);
    put(nullptr);
    set_pass({});
  }
  planned_ = false;
  counting_ = 0;
  selectors_ = {};
  fixed_ctrl_ = 0;
}

template <Hardware H>
void MediatedBacking<H>::set_pass(const PassThrough& pass) {
  if (intercepts_known_ && pass == pass_) return;
  hardware_.set_intercepts(pass);
  pass_ = pass;
  intercepts_known_ = true;
}

template <Hardware H>
Health MediatedBacking<H>::health(CounterId counter) const {
  if ((counting_ & counter.mask()) == 0) return Health::idle;
  if ((plan_.set & counter.mask()) == 0) return Health::unsupported;
  return broken_promises_ != 0 ? Health::lost : Health::counting;
}

}  // namespace vpmu
