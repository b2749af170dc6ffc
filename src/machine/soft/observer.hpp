// Somebody who looks on while a machine runs.
#pragma once

#include <optional>

#include "machine/soft/cpu.hpp"

namespace vpmu::soft {

/// Called on the machine's thread; Cpu::tsc() is the time of each call. It changes nothing.
class Observer {
 protected:
  ~Observer() = default;

 public:
  /// A VM exit, after PmuPort::leave().
  virtual void exited(const Exit& exit) = 0;
  /// The next VM entry: all that the host did for the exit is done.
  virtual void entering() = 0;
  /// RDMSR, WRMSR and RDPMC as they were answered: between exited() and entering(), or by the guest itself. No value,
  /// or not accepted, is #GP.
  virtual void read_msr(u32 index, std::optional<u64> value) = 0;
  virtual void wrote_msr(u32 index, u64 value, bool accepted) = 0;
  virtual void read_pmc(u32 ecx, std::optional<u64> value) = 0;
  /// The local APIC gets a PMI, LVTPC being this.
  virtual void pmi(u32 lvtpc) = 0;
  /// The CPU has taken an interrupt or NMI: where its frame lies on the stack.
  virtual void interrupt_taken(u8 vector, u64 frame) = 0;
  /// IRET of a frame.
  virtual void interrupt_returns(u64 frame) = 0;
};

}  // namespace vpmu::soft
