#include "runtime/local_apic.hpp"

#include "runtime/interrupts.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"

namespace vpmu::guest {
namespace {

constexpr std::uint64_t page_address = 0xFEE00000;
constinit bool by_msr = false;

Msr msr_of(ApicRegister reg) { return static_cast<Msr>(msr::x2apic + static_cast<std::uint32_t>(reg) / 16); }

volatile std::uint32_t& word_of(ApicRegister reg) {
  return *reinterpret_cast<volatile std::uint32_t*>(page_address + static_cast<std::uint32_t>(reg));
}

void ignore_interrupt(InterruptFrame& /*frame*/) {}

}  // namespace

void set_up_apic() {
  constexpr std::uint16_t pic1_mask = 0x21;
  constexpr std::uint16_t pic2_mask = 0xA1;
  port_out(pic1_mask, 0xFF);
  port_out(pic2_mask, 0xFF);

  constexpr std::uint64_t enabled = 1U << 11;
  constexpr std::uint64_t extended = 1U << 10;
  const bool offered = (cpuid(1).ecx >> 21 & 1) != 0;
  by_msr = offered && option("x2apic", 0) != 0;
  write_msr(msr::apic_base, page_address | enabled | (read_msr(msr::apic_base) & 1U << 8));
  if (by_msr) write_msr(msr::apic_base, read_msr(msr::apic_base) | extended);

  set_interrupt_handler(vector::spurious, ignore_interrupt);
  write_apic(ApicRegister::task_priority, 0);
  constexpr std::uint32_t software_enable = 1U << 8;
  write_apic(ApicRegister::spurious_vector, software_enable | vector::spurious);
  write_apic(ApicRegister::lvt_timer, lvt::masked);
  write_apic(ApicRegister::lvt_performance, lvt::masked);
}

bool uses_x2apic() { return by_msr; }

std::uint32_t read_apic(ApicRegister reg) {
  return by_msr ? static_cast<std::uint32_t>(read_msr(msr_of(reg))) : word_of(reg);
}

void write_apic(ApicRegister reg, std::uint32_t value) {
  if (by_msr) {
    write_msr(msr_of(reg), value);
  } else {
    word_of(reg) = value;
  }
}

void send_self_ipi(std::uint8_t vector) {
  constexpr std::uint32_t to_self = 1U << 18;
  constexpr std::uint32_t assert_level = 1U << 14;
  write_apic(ApicRegister::interrupt_command_low, to_self | assert_level | vector);
}

bool has_tsc_deadline() { return (cpuid(1).ecx >> 24 & 1) != 0; }

}  // namespace vpmu::guest
