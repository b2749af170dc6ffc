#include "runtime/interrupts.hpp"

#include <array>

#include "runtime/layout.h"
#include "runtime/print.hpp"
#include "runtime/processor.hpp"

extern "C" {
struct Fixup {
  std::uint64_t fault_rip;
  std::uint64_t resume_rip;
};
extern const Fixup fixups_begin[];
extern const Fixup fixups_end[];
extern char interrupt_entries[];
void dispatch_interrupt(vpmu::guest::InterruptFrame* frame);
}

namespace vpmu::guest {
namespace {

/// SDM volume 3, figure "64-Bit TSS Format".
struct [[gnu::packed]] TaskState {
  std::uint32_t reserved0;
  std::uint64_t rsp[3];
  std::uint64_t reserved1;
  std::uint64_t ist[7];
  std::uint64_t reserved2;
  std::uint16_t reserved3;
  std::uint16_t io_map;
};
static_assert(sizeof(TaskState) == 104);

/// SDM volume 3, figure "64-Bit IDT Gate Descriptors".
struct Gate {
  std::uint16_t offset_low;
  std::uint16_t selector;
  std::uint8_t ist;
  std::uint8_t type;
  std::uint16_t offset_middle;
  std::uint32_t offset_high;
  std::uint32_t reserved;
};
static_assert(sizeof(Gate) == 16);

struct [[gnu::packed]] TablePointer {
  std::uint16_t limit;
  std::uint64_t base;
};

constexpr std::size_t vectors = 256;
constexpr std::size_t entry_bytes = 16;  // of interrupt_entry.S
constexpr std::uint8_t interrupt_gate = 0x8E;
constexpr std::uint8_t nmi_stack_number = 1;
constexpr std::uint8_t double_fault_stack_number = 2;

constinit TaskState task_state{};
constinit std::array<Gate, vectors> gates{};
constinit std::array<InterruptHandler, vectors> handlers{};
constinit CaughtFault caught{};
constinit std::uint64_t caught_count = 0;
alignas(16) constinit std::array<char, STACK_BYTES> ring0_stack{};
alignas(16) constinit std::array<char, STACK_BYTES> nmi_stack{};
alignas(16) constinit std::array<char, STACK_BYTES> double_fault_stack{};

constinit std::array<std::uint64_t, 8> gdt{
    0,
    0x00AF9B000000FFFF,  // KERNEL_CODE
    0x00CF93000000FFFF,  // KERNEL_DATA
    0,                   // SYSRET to 32-bit code, unused
    0x00CFF3000000FFFF,  // USER_DATA
    0x00AFFB000000FFFF,  // USER_CODE
    0,
    0,  // TASK_STATE
};

std::uint64_t address(const void* pointer) { return reinterpret_cast<std::uint64_t>(pointer); }

std::uint64_t top(const std::array<char, STACK_BYTES>& stack) { return address(stack.data()) + stack.size(); }

void load_gdt() {
  task_state.rsp[0] = top(ring0_stack);
  task_state.ist[nmi_stack_number - 1] = top(nmi_stack);
  task_state.ist[double_fault_stack_number - 1] = top(double_fault_stack);
  task_state.io_map = sizeof task_state;
  const std::uint64_t base = address(&task_state);
  constexpr std::uint64_t available_task_state = 0x89ULL << 40;
  gdt[TASK_STATE / 8] =
      (sizeof task_state - 1) | (base & 0xFFFFFF) << 16 | available_task_state | (base >> 24 & 0xFF) << 56;
  gdt[TASK_STATE / 8 + 1] = base >> 32;
  const TablePointer pointer{sizeof gdt - 1, address(gdt.data())};
  asm volatile("lgdt %0" : : "m"(pointer));
  asm volatile("ltr %0" : : "r"(static_cast<std::uint16_t>(TASK_STATE)));
}

void load_idt() {
  for (std::size_t i = 0; i < vectors; ++i) {
    const std::uint64_t entry = address(interrupt_entries) + i * entry_bytes;
    gates[i] = {.offset_low = static_cast<std::uint16_t>(entry),
                .selector = KERNEL_CODE,
                .ist = 0,
                .type = interrupt_gate,
                .offset_middle = static_cast<std::uint16_t>(entry >> 16),
                .offset_high = static_cast<std::uint32_t>(entry >> 32),
                .reserved = 0};
  }
  gates[vector::nmi].ist = nmi_stack_number;
  gates[vector::double_fault].ist = double_fault_stack_number;
  const TablePointer pointer{sizeof gates - 1, address(gates.data())};
  asm volatile("lidt %0" : : "m"(pointer));
}

[[noreturn]] void crash(const InterruptFrame& frame) {
  print("\nunexpected interrupt {} error {x} at {x} cs {x} rsp {x} rflags {x}\n", frame.vector, frame.error, frame.rip,
        frame.cs, frame.rsp, frame.rflags);
  print("rax {x} rbx {x} rcx {x} rdx {x} rsi {x} rdi {x} rbp {x}\n", frame.rax, frame.rbx, frame.rcx, frame.rdx,
        frame.rsi, frame.rdi, frame.rbp);
  exit_machine(3);
}

bool fix_up(InterruptFrame& frame) {
  for (const Fixup* fixup = fixups_begin; fixup != fixups_end; ++fixup) {
    if (fixup->fault_rip != frame.rip) continue;
    caught = {
        .happened = true, .vector = static_cast<std::uint8_t>(frame.vector), .error = frame.error, .rip = frame.rip};
    ++caught_count;
    frame.rip = fixup->resume_rip;
    return true;
  }
  return false;
}

}  // namespace

void set_up_interrupts() {
  load_gdt();
  load_idt();
}

void set_interrupt_handler(std::uint8_t vector, InterruptHandler handler) { handlers[vector] = handler; }

CaughtFault& caught_fault() { return caught; }

std::uint64_t caught_faults() { return caught_count; }

}  // namespace vpmu::guest

void dispatch_interrupt(vpmu::guest::InterruptFrame* frame) {
  using namespace vpmu::guest;  // NOLINT(google-build-using-namespace): C linkage
  if (const InterruptHandler handler = handlers[frame->vector & 0xFF]; handler != nullptr) {
    handler(*frame);
    return;
  }
  constexpr std::uint64_t exceptions = 32;
  if (frame->vector < exceptions && frame->vector != vector::nmi && fix_up(*frame)) return;
  crash(*frame);
}
