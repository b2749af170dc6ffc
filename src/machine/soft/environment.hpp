// What the CPU reaches outside of itself: ports, MSRs, the APIC page, CPUID, interrupts.
#pragma once

#include <optional>

#include "machine/soft/types.hpp"

namespace vpmu::soft {

struct CpuidLeaf {
  u32 eax = 0, ebx = 0, ecx = 0, edx = 0;
};

class Environment {
 protected:
  ~Environment() = default;

 public:
  virtual u64 mmio_read(u64 physical, unsigned bytes) = 0;
  virtual void mmio_write(u64 physical, unsigned bytes, u64 value) = 0;
  virtual u32 port_in(u16 port, unsigned bytes) = 0;
  virtual void port_out(u16 port, unsigned bytes, u32 value) = 0;
  /// MSRs that the CPU does not hold itself. No value, or false, is #GP.
  virtual std::optional<u64> rdmsr(u32 index) = 0;
  virtual bool wrmsr(u32 index, u64 value) = 0;
  virtual std::optional<u64> rdpmc(u32 index) = 0;
  /// Whether an access that would exit does not after all.
  virtual bool passes_msr(u32 index) = 0;
  virtual bool passes_rdpmc() = 0;
  virtual CpuidLeaf cpuid(u32 leaf, u32 subleaf) = 0;
  /// The interrupt that may be taken now, by the local APIC's priorities; none if there is none.
  virtual std::optional<u8> pending_vector() = 0;
  /// The CPU takes it.
  virtual void acknowledge(u8 vector) = 0;
  /// CR8, the task priority's high four bits.
  virtual u64 task_priority() = 0;
  virtual void set_task_priority(u64 value) = 0;
  /// VMCALL or VMMCALL at CPL 0, RAX and RBX given, RAX returned. None is #UD.
  virtual std::optional<u64> hypercall(u64 rax, u64 rbx) = 0;
};

}  // namespace vpmu::soft
