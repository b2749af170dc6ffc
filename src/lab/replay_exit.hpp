// What a VM exit means for the counting of instructions.
#pragma once

#include <cstdint>
#include <string_view>

namespace vpmu::lab {

enum class ExitKind : std::uint8_t {
  /// An interrupt, a window for one, a timer: no instruction of the guest is concerned.
  asynchronous,
  /// An instruction that the hypervisor completes for the guest, unless it faults.
  instruction,
  halt,   // HLT: the same, and the vCPU's thread goes to sleep
  rdpmc,  // the same; kvm does not trace its counter
  /// May be completed for the guest (device memory) or be run again (a page to be filled in).
  memory,
};

/// The kind of a kvm_exit reason, as VMX and SVM tables name it, also in the small letters of Linux before 3.x.
ExitKind exit_kind(std::string_view reason);

/// Whether it is an access to an MSR.
bool is_msr_exit(std::string_view reason);

/// How many instructions the hypervisor completed between an exit and the next entry. Where the entry says its RIP,
/// that decides: one that moved past a single instruction. Elsewhere the exit's kind does.
struct ExitProgress {
  ExitKind kind = ExitKind::asynchronous;
  std::uint64_t exit_rip = 0;
  bool faulted = false;        // the access ended in #GP
  std::uint32_t emulated = 0;  // kvm_emulate_insn events, less those that failed
};
std::uint32_t completed_instructions(const ExitProgress& exit, const std::uint64_t* entry_rip);

}  // namespace vpmu::lab
