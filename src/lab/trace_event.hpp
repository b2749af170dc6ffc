// The kvm events that replay needs, from the text of their fields. All printed forms that Linux has had.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace vpmu::lab {

/// Sources of the forms: the print formats of arch/x86/kvm/trace.h, Linux 2.6.32 to 6.18, and those that
/// libtraceevent's kvm plugin prints in their place.
enum class TraceEventId : std::uint8_t {
  kvm_entry,
  kvm_exit,
  kvm_msr,
  kvm_pio,
  kvm_cpuid,
  kvm_emulate_insn,
  other,
};
TraceEventId trace_event_id(std::string_view name);

/// "vcpu 0", "vcpu 0, rip 0x10[immediate exit]", "vcpu 0, rip 0x10 intr_info 0x0 error_code 0x0"
struct KvmEntry {
  std::uint32_t vcpu = 0;
  std::optional<std::uint64_t> rip;
};
std::optional<KvmEntry> parse_kvm_entry(std::string_view fields);

/// "reason R rip 0x10", "reason R rip 0x10 info 0 0", "vcpu 0 reason R rip 0x10 info1 0x0 info2 0x0 intr_info ..."
struct KvmExit {
  std::optional<std::uint32_t> vcpu;
  std::string_view reason;  // can hold blanks: "UD excp", "UNKNOWN (99)", "EPT_VIOLATION FAILED_VMENTRY"
  std::uint64_t rip = 0;
};
std::optional<KvmExit> parse_kvm_exit(std::string_view fields);

/// "msr_read 38f = 0x0", "msr_write 38f = 0x0 (#GP)"
struct KvmMsr {
  bool write = false;
  bool fault = false;
  std::uint32_t index = 0;
  std::uint64_t value = 0;
};
std::optional<KvmMsr> parse_kvm_msr(std::string_view fields);

/// "pio_read at 0x64 size 1 count 1", "pio_write at 0x64 size 1 count 1 val 0xfe (...)"
struct KvmPio {
  bool write = false;
  std::uint32_t port = 0;
  std::uint32_t size = 0;
  std::uint32_t count = 0;
};
std::optional<KvmPio> parse_kvm_pio(std::string_view fields);

/// "func 1 rax 0 rbx 0 rcx 0 rdx 0", "func 1 idx 0 rax 0 rbx 0 rcx 0 rdx 0, cpuid entry not found, used max basic"
struct KvmCpuid {
  std::uint32_t leaf = 0;
  std::uint32_t subleaf = 0;
  bool other_leaf = false;  // the guest has no such leaf and got another's answer
  std::uint32_t eax = 0;
  std::uint32_t ebx = 0;
  std::uint32_t ecx = 0;
  std::uint32_t edx = 0;
};
std::optional<KvmCpuid> parse_kvm_cpuid(std::string_view fields);

/// "0:1007:ee (real)", "0:1007:ee (prot64) failed", "0:1007: ee", "0:1007: ee FAIL"
struct KvmEmulateInsn {
  std::uint64_t rip = 0;
  bool failed = false;
};
std::optional<KvmEmulateInsn> parse_kvm_emulate_insn(std::string_view fields);

}  // namespace vpmu::lab
