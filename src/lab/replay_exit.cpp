#include "lab/replay_exit.hpp"

#include <algorithm>
#include <array>

namespace vpmu::lab {
namespace {

// Reasons as arch/x86/include/uapi/asm/vmx.h and svm.h name them for trace output.
constexpr std::array<std::string_view, 19> asynchronous{
    "external_interrupt",
    "interrupt",
    "interrupt_window",
    "pending_interrupt",
    "vintr",
    "nmi",
    "nmi_window",
    "init",
    "init_signal",
    "sipi_signal",
    "smi",
    "preemption_timer",
    "eoi_induced",
    "apic_write",
    "pml_full",
    "pause_filter",
    "avic_incomplete_ipi",
    "avic_unaccelerated_access",
    "bus_lock",
};

constexpr std::array<std::string_view, 27> instruction{
    "msr",
    "msr_read",
    "msr_write",
    "msr_read_imm",
    "msr_write_imm",
    "io",
    "cpuid",
    "io_instruction",
    "rdtsc",
    "rdtscp",
    "invd",
    "wbinvd",
    "xsetbv",
    "vmcall",
    "vmmcall",
    "monitor",
    "mwait",
    "monitor_instruction",
    "invlpg",
    "mwait_instruction",
    "pause_instruction",
    "pause",
    "invlpga",
    "invpcid",
    "ept_misconfig",
    "cr0_sel_write",
    "rdpru",
};

bool same(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, [](char x, char y) { return (x >= 'A' && x <= 'Z' ? x - 'A' + 'a' : x) == y; });
}

bool starts(std::string_view a, std::string_view lower) {
  return a.size() >= lower.size() && same(a.substr(0, lower.size()), lower);
}

template <std::size_t size>
bool is_one_of(std::string_view reason, const std::array<std::string_view, size>& names) {
  return std::ranges::any_of(names, [reason](std::string_view name) { return same(reason, name); });
}

// An x86 instruction is at most 15 bytes long (SDM volume 2, section 2.3.11).
constexpr std::uint64_t longest_instruction = 15;

}  // namespace

ExitKind exit_kind(std::string_view reason) {
  // Behind the reason VMX prints flags: "EPT_VIOLATION FAILED_VMENTRY".
  reason = reason.substr(0, reason.find(' '));
  if (same(reason, "hlt")) return ExitKind::halt;
  if (same(reason, "rdpmc")) return ExitKind::rdpmc;
  if (is_one_of(reason, asynchronous)) return ExitKind::asynchronous;
  if (is_one_of(reason, instruction) || starts(reason, "read_cr") || starts(reason, "write_cr") ||
      same(reason, "cr_access") || same(reason, "apic_access")) {
    return ExitKind::instruction;
  }
  return ExitKind::memory;
}

bool is_msr_exit(std::string_view reason) { return starts(reason, "msr"); }

std::uint32_t completed_instructions(const ExitProgress& exit, const std::uint64_t* entry_rip) {
  if (entry_rip == nullptr) {
    if (exit.faulted || exit.kind == ExitKind::asynchronous) return 0;
    return std::max(exit.emulated, exit.kind == ExitKind::memory ? 0U : 1U);
  }
  if (exit.kind == ExitKind::asynchronous || *entry_rip == exit.exit_rip) return 0;
  if (exit.emulated != 0) return exit.emulated;
  return *entry_rip - exit.exit_rip <= longest_instruction ? 1 : 0;
}

}  // namespace vpmu::lab
