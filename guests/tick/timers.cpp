// The APIC timer's modes (SDM volume 3, "APIC Timer").
#include "runtime/checks.hpp"
#include "runtime/interrupts.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/processor.hpp"
#include "tick/groups.hpp"

namespace vpmu::guest {
namespace {

constinit volatile std::uint64_t interrupts = 0;
constexpr std::uint32_t divide_by_one = 0b1011;
constexpr std::uint64_t short_while = 1'000'000;  // TSC ticks

void count_interrupt(InterruptFrame& /*frame*/) {
  interrupts = interrupts + 1;
  end_of_interrupt();
}

/// Waits with interrupts on for some of them, or for the time to pass.
void wait(std::uint64_t wanted, std::uint64_t tsc_ticks) {
  const std::uint64_t start = read_tsc();
  interrupts_on();
  while (interrupts < wanted && read_tsc() - start < tsc_ticks) asm volatile("pause");
  interrupts_off();
}

void check_one_shot() {
  interrupts = 0;
  write_apic(ApicRegister::timer_divide, divide_by_one);
  write_apic(ApicRegister::lvt_timer, vector::timer);
  write_apic(ApicRegister::timer_initial, 1000);
  wait(1, 100 * short_while);
  check_equal(Kind::interrupts, interrupts, 1, "one-shot timer");
  check_equal(Kind::registers, read_apic(ApicRegister::timer_current), 0, "its count ends at 0");
  wait(2, short_while);
  check_equal(Kind::interrupts, interrupts, 1, "one-shot timer, once");
}

void check_masked() {
  interrupts = 0;
  write_apic(ApicRegister::lvt_timer, lvt::masked | vector::timer);
  write_apic(ApicRegister::timer_initial, 1000);
  wait(1, short_while);
  check_equal(Kind::interrupts, interrupts, 0, "masked timer");
}

void check_periodic() {
  interrupts = 0;
  write_apic(ApicRegister::lvt_timer, lvt::periodic | vector::timer);
  write_apic(ApicRegister::timer_initial, 100'000);
  wait(3, 1000 * short_while);
  check(Kind::interrupts, interrupts >= 3, "periodic timer", interrupts);
  write_apic(ApicRegister::timer_initial, 0);
  write_apic(ApicRegister::lvt_timer, lvt::masked);
  wait(~std::uint64_t{0}, short_while / 10);  // for one that was raised before
  interrupts = 0;
  wait(1, short_while);
  check_equal(Kind::interrupts, interrupts, 0, "stopped timer");
}

void check_halted() {
  interrupts = 0;
  write_apic(ApicRegister::lvt_timer, vector::timer);
  write_apic(ApicRegister::timer_initial, 100'000);
  wait_for_interrupt();
  check_equal(Kind::interrupts, interrupts, 1, "timer ends HLT");
}

void check_deadline() {
  if (!has_tsc_deadline()) {
    unavailable("TSC deadline");
    return;
  }
  interrupts = 0;
  write_apic(ApicRegister::lvt_timer, lvt::tsc_deadline | vector::timer);
  asm volatile("mfence" : : : "memory");
  const std::uint64_t due = read_tsc() + short_while;
  write_msr(msr::tsc_deadline, due);
  check_equal(Kind::registers, read_msr(msr::tsc_deadline), due, "TSC deadline reads back");
  wait(1, 100 * short_while);
  check_equal(Kind::interrupts, interrupts, 1, "TSC deadline");
  check(Kind::interrupts, read_tsc() >= due, "TSC deadline, not early");
  check_equal(Kind::registers, read_msr(msr::tsc_deadline), 0, "TSC deadline disarms itself");
  write_msr(msr::tsc_deadline, 1);
  wait(2, 100 * short_while);
  check_equal(Kind::interrupts, interrupts, 2, "TSC deadline in the past");
  write_msr(msr::tsc_deadline, read_tsc() + short_while);
  write_msr(msr::tsc_deadline, 0);
  wait(3, 2 * short_while);
  check_equal(Kind::interrupts, interrupts, 2, "TSC deadline taken back");
}

}  // namespace

void check_timers() {
  begin_group("timers");
  set_interrupt_handler(vector::timer, count_interrupt);
  check_one_shot();
  check_masked();
  check_periodic();
  check_halted();
  check_deadline();
  write_apic(ApicRegister::lvt_timer, lvt::masked);
}

}  // namespace vpmu::guest
