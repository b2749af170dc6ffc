#include "ring0/hypervisor.hpp"

#include "runtime/interrupts.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/processor.hpp"

namespace vpmu::guest {
namespace {

extern "C" {
std::uint64_t run_in_guest_by_vmcall(UserFunction function, std::uint64_t argument, std::uint64_t global_ctrl);
std::uint64_t run_in_guest_by_vmmcall(UserFunction function, std::uint64_t argument, std::uint64_t global_ctrl);
}

constinit volatile bool guest_vector_came = false;

void note_guest_vector(InterruptFrame& /*frame*/) {
  guest_vector_came = true;
  end_of_interrupt();
}

}  // namespace

Hypervisor::Hypervisor() {
  set_interrupt_handler(vector::pmi, note_guest_vector);
  set_lvtpc(LvtpcOwner::host);
}

// Intel: the VM entry loads the field. AMD: the register itself, live before VMRUN.

std::uint64_t Hypervisor::entry_global_ctrl() const {
  return intel() ? entry_global_ctrl_ : read_msr(Msr::amd_perf_cntr_global_ctl);
}

void Hypervisor::set_entry_global_ctrl(std::uint64_t value) {
  if (intel()) {
    entry_global_ctrl_ = value;
  } else {
    write_msr(Msr::amd_perf_cntr_global_ctl, value);
  }
}

std::uint64_t Hypervisor::host_debugctl() const { return read_msr(Msr::ia32_debugctl); }

void Hypervisor::set_lvtpc(LvtpcOwner owner) {
  write_apic(ApicRegister::lvt_performance, owner == LvtpcOwner::guest ? std::uint32_t{vector::pmi} : lvt::nmi);
}

bool Hypervisor::take_guest_pmi() {
  const bool came = guest_vector_came;
  guest_vector_came = false;
  return came;
}

void Hypervisor::leave_host_perf() {
  Pmu& unit = pmu();
  saved_.global_ctrl = read_msr(unit.global_ctrl());
  write_msr(unit.global_ctrl(), 0);
  for_each_counter(unit.counters(), [&](CounterId counter) {
    saved_.values[counter.slot()] = unit.read(counter);
    if (!counter.is_fixed()) saved_.selectors[counter.slot()] = read_msr(unit.selector(counter));
  });
  if (intel()) saved_.fixed_ctrl = read_msr(Msr::ia32_fixed_ctr_ctrl);
  host_has_the_pmu_ = false;
  ++epoch_;
}

void Hypervisor::look_for_leftovers() {
  Pmu& unit = pmu();
  const auto look = [this](std::uint64_t value) { left_behind_ += value != 0 ? 1 : 0; };
  look(read_msr(unit.global_ctrl()));
  look(read_msr(unit.global_status()) & unit.counters());
  if (intel()) look(read_msr(Msr::ia32_fixed_ctr_ctrl));
  for_each_counter(unit.counters(), [&](CounterId counter) {
    look(unit.read(counter));
    if (!counter.is_fixed()) look(read_msr(unit.selector(counter)));
  });
  look(read_apic(ApicRegister::lvt_performance) ^ lvt::nmi);
}

void Hypervisor::return_host_perf() {
  look_for_leftovers();
  Pmu& unit = pmu();
  for_each_counter(unit.counters(), [&](CounterId counter) {
    // IA32_PMCn would take the low 32 bits.
    const Msr value = unit.is_intel() && !counter.is_fixed() ? ia32_a_pmc[counter.number()] : unit.value(counter);
    write_msr(value, saved_.values[counter.slot()]);
    if (!counter.is_fixed()) write_msr(unit.selector(counter), saved_.selectors[counter.slot()]);
  });
  if (intel()) write_msr(Msr::ia32_fixed_ctr_ctrl, saved_.fixed_ctrl);
  host_has_the_pmu_ = true;
  ++epoch_;
  write_msr(unit.global_ctrl(), saved_.global_ctrl);
}

void Hypervisor::run_in_guest(UserFunction function, std::uint64_t argument) {
  // While the host has the PMU (a guest that counts nothing), its GLOBAL_CTRL is what the exit restores.
  const std::uint64_t host_global_ctrl = host_has_the_pmu_ ? read_msr(pmu().global_ctrl()) : 0;
  const auto enter = intel() ? run_in_guest_by_vmcall : run_in_guest_by_vmmcall;
  entry_global_ctrl_ = enter(function, argument, entry_global_ctrl_);
  if (intel() && host_global_ctrl != 0) write_msr(pmu().global_ctrl(), host_global_ctrl);
  // The guest's vector, if it came, has waited for this.
  interrupts_on();
  asm volatile("nop");
  interrupts_off();
}

}  // namespace vpmu::guest
