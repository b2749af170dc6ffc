#include "lab/pmu_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "arch/events.hpp"
#include "arch/registers.hpp"
#include "lab/zero_reads.hpp"

namespace vpmu::lab {
namespace {

const char* name_of_code(Vendor vendor, std::uint64_t code) {
  for (const arch::EventCode& known : arch::event_codes) {
    if (known.vendor == vendor && known.select == code) return known.name;
  }
  return nullptr;
}

std::uint64_t control_of(const RegisterFile& registers, CounterId counter) {
  return counter.is_fixed() ? fixed_ctrl::field(registers.fixed_ctrl(), counter.number()) : registers.selector(counter);
}

/// The counters, or bits of the status, that a write of the register sets.
CounterSet written_by(Msr msr) {
  using enum arch::RegisterKind;
  const arch::Register reg = arch::find_register(msr);
  switch (reg.kind) {
    case pmc:
    case a_pmc:
    case k7_perf_ctr:
    case core_perf_ctr:
      return CounterId::gp(reg.number).mask();
    case fixed_ctr:
      return CounterId::fixed(reg.number).mask();
    case global_status_set:
    case amd_global_status:
    case amd_global_status_set:
      return ~CounterSet{0};
    default:
      return 0;
  }
}

Timeline::Args switch_args(const HostUse& use) {
  Timeline::Args args;
  const auto add = [&args](const char* name, std::uint64_t count) {
    if (count != 0) args[name] = count;
  };
  add("RDMSR", use.hardware.by_switch.rdmsr);
  add("WRMSR", use.hardware.by_switch.wrmsr);
  add("RDPMC", use.hardware.by_switch.rdpmc);
  add("LVTPC write", use.hardware.others.lvtpc_writes);
  add("VM-entry field", use.hardware.others.entry_fields);
  add("host perf call", use.hardware.others.host_perf_calls);
  add("intercept change", use.hardware.others.intercept_changes);
  return args;
}

HostUse difference(const HostUse& now, const HostUse& before) {
  HostUse use;
  use.hardware.by_switch = now.hardware.by_switch - before.hardware.by_switch;
  const model::SwitchCounts& a = now.hardware.others;
  const model::SwitchCounts& b = before.hardware.others;
  use.hardware.others = {.entry_fields = a.entry_fields - b.entry_fields,
                         .lvtpc_writes = a.lvtpc_writes - b.lvtpc_writes,
                         .host_perf_calls = a.host_perf_calls - b.host_perf_calls,
                         .intercept_changes = a.intercept_changes - b.intercept_changes};
  use.cost_ps = now.cost_ps - before.cost_ps;
  return use;
}

}  // namespace

std::string hex(std::uint64_t value) { return fmt::format("{:#x}", value); }

std::string event_name(const VirtualPmu& pmu, CounterId counter) {
  const Vendor vendor = pmu.profile().vendor;
  if (counter.is_fixed()) {
    const std::uint32_t n = counter.number();
    const bool known = n < arch::fixed_events.size();
    return known ? name_of_code(vendor, arch::event_code(vendor, arch::fixed_events[n])) : counter_name(counter);
  }
  const std::uint64_t selector = pmu.registers().selector(counter);
  const std::uint64_t code = selector & evtsel::code;
  std::string name;
  if (const char* known = name_of_code(vendor, code)) {
    name = known;
  } else {
    const std::uint64_t event = (code & evtsel::event) | (code & evtsel::event_high) >> 24;
    name = fmt::format("event {:#x}, unit mask {:#x}", event, (code & evtsel::unit_mask) >> 8);
  }
  if ((selector & (evtsel::edge | evtsel::invert | evtsel::counter_mask)) != 0) name += " (by cycles)";
  return name;
}

Timeline::Args register_args(std::uint32_t index) {
  Timeline::Args args;
  if (arch::find_register(Msr{index})) args["register"] = register_name(Msr{index}).text;
  args["index"] = hex(index);
  return args;
}

void PmuTimeline::attach(const VirtualPmu& pmu, GuestHost& host) {
  pmu_ = &pmu;
  host_ = &host;
  exited_at_ = now();
}

Timeline::Row PmuTimeline::row(std::uint32_t place, const char* name) {
  return out_.row(process_, first_place_ + place, prefix_ + name);
}

Timeline::Row PmuTimeline::counter_row(CounterId counter) {
  return row(first_counter + counter.slot(), counter_name(counter).c_str());
}

CounterSet PmuTimeline::counting() const {
  const RegisterFile& registers = pmu_->registers();
  const bool intel = pmu_->profile().is_intel();
  const Msr global = intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl;
  // A guest that switches its counters without an exit does so in the hardware.
  if (!in_guest_ || !host_->passes(global)) return registers.active();
  const bool frozen = (status() & global_status::counters_frozen) != 0;
  return frozen ? 0 : registers.locally_enabled() & host_->hardware().global_ctrl();
}

std::uint64_t PmuTimeline::status() const {
  const bool intel = pmu_->profile().is_intel();
  const Msr msr = intel ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status;
  return in_guest_ && host_->passes(msr) ? host_->hardware().inspect(msr) : pmu_->registers().global_status();
}

Health PmuTimeline::health(CounterId counter) const {
  const Health health = pmu_->health(counter);
  // A guest that enables it in the hardware tells nobody.
  return host_->mediated() && health == Health::idle ? Health::counting : health;
}

void PmuTimeline::look(std::uint64_t at, CounterSet written) {
  const RegisterFile& registers = pmu_->registers();
  CounterSet overflowed = 0;
  if (host_->mediated()) {
    // The hardware's, and those by emulation, which show in the status alone.
    const std::uint64_t now = status();
    const CounterSet reported = now & ~status_ & pmu_->profile().counters();
    const CounterSet by_hardware = host_->take_overflows();
    status_ = now;
    overflowed = by_hardware | (reported & ~unreported_);
    unreported_ = (unreported_ | by_hardware) & ~reported;
    // But for what stays in the hardware, the status says all.
    if (!in_guest_ && pmu_->policy().mode_switch != Policy::Switch::ownership) unreported_ = 0;
  } else {
    for_each_counter(pmu_->profile().counters(), [&](CounterId counter) {
      std::uint64_t& last = counters_[counter.slot()].value;
      const std::uint64_t value = registers.value(counter);
      if (value < last) overflowed |= counter.mask();
      last = value;
    });
  }
  for_each_counter(overflowed & ~written, [&](CounterId counter) {
    const bool interrupts = (registers.interrupting() & counter.mask()) != 0;
    out_.instant(counter_row(counter), at, "overflow", {{"interrupts", interrupts}});
  });
}

void PmuTimeline::close_windows(CounterSet but, std::uint64_t at) {
  for (std::uint32_t slot = 0; slot < max_counters; ++slot) {
    const CounterId counter = CounterId::from_slot(slot);
    Counter& state = counters_[slot];
    if (!state.on) continue;
    const bool same = state.control == control_of(pmu_->registers(), counter) && state.health == health(counter);
    if ((but & counter.mask()) != 0 && same) continue;
    state.on = false;
    out_.end(counter_row(counter), at);
  }
}

void PmuTimeline::open_windows(CounterSet on, std::uint64_t at) {
  for_each_counter(on, [&](CounterId counter) {
    Counter& state = counters_[counter.slot()];
    if (state.on) return;
    state.on = true;
    state.control = control_of(pmu_->registers(), counter);
    state.health = health(counter);
    Timeline::Args args{{counter.is_fixed() ? "control" : "event select", hex(state.control)}};
    if (state.health != Health::counting) args["health"] = describe(state.health);
    out_.begin(counter_row(counter), at, event_name(*pmu_, counter), args);
  });
}

void PmuTimeline::exited(std::uint64_t at) {
  in_guest_ = false;
  exited_at_ = at;
  switched("save");
  look(exited_at_);
}

void PmuTimeline::wrote(Msr msr) {
  look(time(), written_by(msr));
  if (!in_guest_) return;
  const CounterSet on = counting();
  close_windows(on, now());
  open_windows(on, now());
}

void PmuTimeline::pmi(const Timeline::Args& args) { out_.instant(row(pmis, "PMIs"), now(), "PMI", args); }

void PmuTimeline::entered() {
  switched("load");
  look(exited_at_);
  in_guest_ = true;
  status_ = status();
  const CounterSet on = counting();
  close_windows(on, exited_at_);
  open_windows(on, now());
}

void PmuTimeline::host_call(const HostCall& call) {
  if (pmu_ == nullptr) return;
  Timeline::Args args;
  if (call.counter) args["counter"] = counter_name(*call.counter);
  if (call.value_name != nullptr) args[call.value_name] = call.value;
  if (call.signals != 0) args["signals"] = call.signals;
  if (call.error) args["error"] = describe(*call.error);
  work(call.name, call.cost_ps, args);
}

void PmuTimeline::switched(const char* name) {
  if (!host_->mediated()) return;
  const HostUse use = host_->use();
  const HostUse since = difference(use, used_);
  used_ = use;
  const Timeline::Args args = switch_args(since);
  if (!args.empty()) work(name, since.cost_ps, args);
}

void PmuTimeline::work(const char* name, std::uint64_t cost_ps, const Timeline::Args& args) {
  constexpr std::uint64_t ps = 1000;  // a ns
  const std::uint64_t at = time();
  if (at > busy_until_) busy_ps_ = 0;
  const std::uint64_t from = std::max(at, busy_until_);
  busy_ps_ += cost_ps;
  busy_until_ = from + busy_ps_ / ps;
  busy_ps_ %= ps;
  const bool mediated = host_->mediated();
  out_.slice(row(host_work, mediated ? "switches" : "host calls"), from, busy_until_, name, args);
}

}  // namespace vpmu::lab
