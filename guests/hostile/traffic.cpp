#include "hostile/traffic.hpp"

#include "runtime/checks.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/pmi.hpp"
#include "runtime/pmu.hpp"
#include "runtime/probe.hpp"
#include "runtime/processor.hpp"
#include "vpmu/event_select.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

using Access = RegisterRule::Access;
using Content = RegisterRule::Content;

constinit std::uint64_t pmi_count = 0;

/// Acknowledges all, and at every other PMI leaves LVTPC as it is: masked, on Intel.
void on_pmi(InterruptFrame& frame) {
  ++pmi_count;
  if (pmu().has_global()) pmu().acknowledge(pmu().status_bits());
  if (pmi_count % 2 == 0) {
    write_apic(ApicRegister::lvt_performance, read_apic(ApicRegister::lvt_performance) & ~lvt::masked);
  }
  if (frame.vector == vector::pmi) end_of_interrupt();
}

bool is_in(const MsrArray& row, Msr msr, std::uint32_t& number) {
  const std::uint32_t offset = index_of(msr) - row.first;
  number = offset / row.stride;
  return offset % row.stride == 0 && number < row.count;
}

}  // namespace

Traffic::Traffic(std::uint64_t seed) : random_{seed} {
  for_each_pmu_register([this](Msr msr) {
    if (all_count_ == most_registers) return;
    all_[all_count_++] = msr;
    if (register_rule(pmu().profile(), msr).present()) own_[own_count_++] = msr;
  });
}

std::uint64_t Traffic::pmis() const { return pmi_count; }

std::int32_t Traffic::control_number(Msr msr) {
  std::uint32_t number = 0;
  if (pmu().is_intel()) {
    if (msr == Msr::ia32_fixed_ctr_ctrl) return max_gp_counters;
    return is_in(ia32_perfevtsel, msr, number) ? static_cast<std::int32_t>(number) : -1;
  }
  if (is_in(amd_k7_perf_ctl, msr, number) || is_in(amd_core_perf_ctl, msr, number)) {
    return static_cast<std::int32_t>(number);
  }
  return -1;
}

/// A register of either vendor, most often of this one, or up to two beside one.
Msr Traffic::pick_msr() {
  const bool own = own_count_ != 0 && random_.below(8) != 0;
  const Msr chosen = own ? own_[random_.below(own_count_)] : all_[random_.below(all_count_)];
  if (random_.below(16) != 0) return chosen;
  return static_cast<Msr>(index_of(chosen) + static_cast<std::uint32_t>(random_.below(5)) - 2);
}

std::uint64_t Traffic::pick_selector(const RegisterRule& rule) {
  constexpr std::array<EventKind, 7> events{
      EventKind::instructions,  EventKind::cycles,         EventKind::ref_cycles, EventKind::branches,
      EventKind::branch_misses, EventKind::llc_references, EventKind::llc_misses};
  const Vendor vendor = pmu().profile().vendor;
  const std::uint64_t code = arch::event_code(vendor, events[random_.below(random_.below(4) == 0 ? events.size() : 4)]);
  const std::uint64_t controls = random_.next() & (evtsel::user | evtsel::kernel | evtsel::edge | evtsel::interrupt |
                                                   evtsel::enable | evtsel::invert | evtsel::pin_control);
  const std::uint64_t counter_mask = random_.below(8) == 0 ? random_.next() & evtsel::counter_mask : 0;
  return (code | controls | counter_mask | evtsel::enable) & rule.legal;
}

std::uint64_t Traffic::pick_value(Msr msr, const RegisterRule& rule) {
  const std::uint64_t value = random_.next();
  switch (random_.below(8)) {
    case 0:
      return value;
    case 1:
      return 1ULL << (value % 64);
    case 2:
      return random_.below(2) == 0 ? 0 : ~std::uint64_t{0};
    default:
      break;
  }
  if (rule.content == Content::counter || rule.content == Content::legacy_counter) {
    // Soon to overflow.
    return (0 - random_.below(400)) & rule.legal;
  }
  const std::int32_t number = control_number(msr);
  if (number >= 0 && number < static_cast<std::int32_t>(max_gp_counters)) return pick_selector(rule);
  return value & rule.legal & rule.kept;
}

void Traffic::read(Msr msr) {
  const RegisterRule rule = register_rule(pmu().profile(), msr);
  const ProbedValue got = try_read_msr(msr);
  ++tally_.reads;
  tally_.faults += got.faulted ? 1 : 0;
  if (rule.access == Access::unspecified) return;
  if (rule.access == Access::absent) {
    check(Kind::faults, got.faulted, "RDMSR of an absent register", index_of(msr));
    return;
  }
  if (!check(Kind::registers, !got.faulted, "RDMSR of a present register", index_of(msr))) return;
  if (rule.access == Access::reads_zero || rule.access == Access::dead) {
    check_equal(Kind::registers, got.value, 0, "a register that reads 0", index_of(msr));
    return;
  }
  if (rule.access != Access::plain) return;
  check_equal(Kind::registers, got.value & ~rule.kept, 0, "bits that a register does not have", index_of(msr));
  if (rule.content == Content::control && rule.open == 0) {
    check_equal(Kind::registers, got.value & ~rule.legal, 0, "bits that a write can't set", index_of(msr));
  }
  if (const std::int32_t number = control_number(msr); number >= 0) {
    check_equal(Kind::registers, got.value, controls_[static_cast<std::size_t>(number)], "a control keeps its value",
                index_of(msr));
  }
}

void Traffic::write(Msr msr) {
  const RegisterRule rule = register_rule(pmu().profile(), msr);
  const std::uint64_t value = pick_value(msr, rule);
  const bool taken = try_write_msr(msr, value);
  ++tally_.writes;
  tally_.faults += taken ? 0 : 1;
  if (rule.access == Access::unspecified || (value & rule.open) != 0) return;
  if (!rule.takes(value)) {
    check(Kind::faults, !taken, "WRMSR that is to be refused", index_of(msr));
    return;
  }
  if (!check(Kind::registers, taken, "WRMSR that is to be taken", index_of(msr))) return;
  const std::int32_t number = rule.access == Access::plain ? control_number(msr) : -1;
  if (number >= 0) controls_[static_cast<std::size_t>(number)] = rule.stored(value);
}

void Traffic::read_pmc() {
  std::uint32_t index = static_cast<std::uint32_t>(random_.next());
  if (random_.below(4) != 0) index &= 0x4000001F;
  const ProbedValue got = try_read_pmc(index);
  ++tally_.pmc_reads;
  tally_.faults += got.faulted ? 1 : 0;
  if (!rdpmc_takes(pmu().profile(), index)) {
    if (option("user_rdpmc", 1) == 0 && !is_rewritable_pmc(index)) return;
    check(Kind::faults, got.faulted, "RDPMC of no counter", index);
    return;
  }
  const CounterId counter = (index >> 30 & 1) != 0 ? CounterId::fixed(index & 0xFFFF) : CounterId::gp(index);
  check(Kind::registers, !got.faulted && (got.value & ~pmu().mask(counter)) == 0, "RDPMC stays below its width", index);
}

void Traffic::route() {
  const std::uint32_t masked = random_.below(4) == 0 ? lvt::masked : 0;
  const Delivery delivery = random_.below(2) == 0 ? Delivery::nmi : Delivery::vector;
  write_apic(ApicRegister::lvt_performance, lvtpc_value(delivery) | masked);
  if (pmu().is_intel() && pmu().has_global()) {
    constexpr std::array<std::uint64_t, 3> values{0, debugctl::freeze_lbrs_on_pmi, debugctl::freeze_perfmon_on_pmi};
    write_msr(Msr::ia32_debugctl, values[random_.below(values.size())]);
  }
}

void Traffic::execute() {
  const std::uint64_t iterations = 1 + random_.below(20);
  const std::array<const Workload*, 5> workloads{&mixed_workload, &cpuid_pairs_workload, &spin_workload,
                                                 &strings_workload, &flushed_loads_workload};
  const Workload& workload = *workloads[random_.below(workloads.size())];
  if (random_.below(2) == 0) {
    if (random_.below(2) == 0) interrupts_on();
    workload.function(iterations);
    interrupts_off();
  } else {
    const std::uint64_t flags = rflags::always_one | (random_.below(2) == 0 ? rflags::interrupts : 0);
    run_in_user_by_iret(workload.function, iterations, flags);
  }
}

void Traffic::run(std::uint64_t operations) {
  pmu().reset();
  set_interrupt_handler(vector::nmi, on_pmi);
  set_interrupt_handler(vector::pmi, on_pmi);
  for (std::uint64_t i = 0; i < operations; ++i) {
    switch (random_.below(16)) {
      case 0:
        route();
        break;
      case 1:
        execute();
        break;
      case 2:
        read_pmc();
        break;
      case 3:
      case 4:
      case 5:
        read(pick_msr());
        break;
      default:
        write(pick_msr());
        break;
    }
  }
}

void Traffic::end() {
  begin_group("after");
  Pmu& unit = pmu();
  // Stops everything first, so that nothing counts any more when the counters go to 0.
  unit.reset();
  interrupts_on();
  interrupts_off();
  mask_pmis();
  unit.reset();
  for_each_pmu_register([&](Msr msr) {
    const RegisterRule rule = register_rule(unit.profile(), msr);
    if (!rule.present() || msr == Msr::ia32_perf_capabilities) return;
    if (rule.access == Access::plain) write_msr(msr, 0);
    check_equal(Kind::registers, try_read_msr(msr).value, 0, "register after a reset by hand", index_of(msr));
  });
}

}  // namespace vpmu::guest
