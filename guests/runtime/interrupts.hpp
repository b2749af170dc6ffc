// Exceptions and interrupts: descriptor tables, handlers, and faults that are expected.
#pragma once

#include <cstdint>

namespace vpmu::guest {

namespace vector {
inline constexpr std::uint8_t nmi = 2;
inline constexpr std::uint8_t invalid_opcode = 6;
inline constexpr std::uint8_t double_fault = 8;
inline constexpr std::uint8_t general_protection = 13;
inline constexpr std::uint8_t page_fault = 14;
// Of the local APIC; a higher one goes first (SDM volume 3, "Interrupt, Task, and Processor Priority").
inline constexpr std::uint8_t self_ipi = 0x40;
inline constexpr std::uint8_t timer = 0x50;
inline constexpr std::uint8_t pmi = 0x60;
inline constexpr std::uint8_t spurious = 0xFF;
}  // namespace vector

/// What an interrupt saved: by interrupt_entry.S, then by the processor.
struct InterruptFrame {
  std::uint64_t r15, r14, r13, r12, r11, r10, r9, r8, rbp, rdi, rsi, rdx, rcx, rbx, rax;
  std::uint64_t vector, error;
  std::uint64_t rip, cs, rflags, rsp, ss;

  [[nodiscard]] bool from_user() const { return (cs & 3) == 3; }
};

using InterruptHandler = void (*)(InterruptFrame& frame);

/// Loads GDT, TSS and IDT: NMIs and double faults get stacks of their own.
void set_up_interrupts();

/// Who handles a vector from now on; a null pointer for nobody. Without one an interrupt ends the guest.
void set_interrupt_handler(std::uint8_t vector, InterruptHandler handler);

/// The last fault of an instruction that is in the `.fixups` section: where it may fault, and where to go on.
struct CaughtFault {
  bool happened = false;
  std::uint8_t vector = 0;
  std::uint64_t error = 0;
  std::uint64_t rip = 0;
};
CaughtFault& caught_fault();

/// How many faults were caught since the start.
std::uint64_t caught_faults();

}  // namespace vpmu::guest
