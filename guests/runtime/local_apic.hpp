// The local APIC, by its page (xAPIC) or by MSRs (x2APIC: option x2apic=1).
#pragma once

#include <cstdint>

namespace vpmu::guest {

/// SDM volume 3, table "Local APIC Register Address Map": offsets in the page; the MSR is 0x800 + offset / 16.
enum class ApicRegister : std::uint32_t {
  id = 0x20,
  version = 0x30,
  task_priority = 0x80,
  end_of_interrupt = 0xB0,
  spurious_vector = 0xF0,
  interrupt_command_low = 0x300,
  interrupt_command_high = 0x310,
  lvt_timer = 0x320,
  lvt_performance = 0x340,  // LVTPC
  timer_initial = 0x380,
  timer_current = 0x390,
  timer_divide = 0x3E0,
};

namespace lvt {
inline constexpr std::uint32_t nmi = 4U << 8;
inline constexpr std::uint32_t masked = 1U << 16;
inline constexpr std::uint32_t periodic = 1U << 17;
inline constexpr std::uint32_t tsc_deadline = 2U << 17;
}  // namespace lvt

/// Turns the 8259s off and the local APIC on.
void set_up_apic();
[[nodiscard]] bool uses_x2apic();

std::uint32_t read_apic(ApicRegister reg);
void write_apic(ApicRegister reg, std::uint32_t value);

inline void end_of_interrupt() { write_apic(ApicRegister::end_of_interrupt, 0); }
void send_self_ipi(std::uint8_t vector);

/// CPUID.1:ECX[24].
[[nodiscard]] bool has_tsc_deadline();

}  // namespace vpmu::guest
