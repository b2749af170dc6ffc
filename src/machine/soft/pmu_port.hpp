// What a soft machine needs of the PMU that its guest sees, be it virtual or the CPU's own.
#pragma once

#include <optional>

#include "machine/soft/environment.hpp"

namespace vpmu::soft {

class PmuPort {
 protected:
  ~PmuPort() = default;

 public:
  /// Whether guest accesses to this MSR are the PMU's to answer.
  [[nodiscard]] virtual bool owns(u32 index) = 0;
  /// No value, or false, is #GP.
  virtual std::optional<u64> read_msr(u32 index) = 0;
  virtual bool write_msr(u32 index, u64 value) = 0;
  virtual std::optional<u64> read_pmc(u32 ecx) = 0;
  /// Whether the guest makes this access itself, without an exit: it is then answered between enter() and leave().
  virtual bool passes_msr(u32 index) {
    (void)index;
    return false;
  }
  virtual bool passes_rdpmc() { return false; }
  /// What the PMU makes of a CPUID leaf.
  virtual CpuidLeaf cpuid(u32 leaf, u32 subleaf, const CpuidLeaf& base) = 0;

  /// After each exit, and before each entry. True if the local APIC gets a PMI.
  virtual void leave() = 0;
  [[nodiscard]] virtual bool enter() = 0;
  /// An instruction that exited took effect.
  virtual void retire(bool branch, u8 cpl) = 0;
  /// TSC ticks that the host worked for the PMU since the last call.
  virtual u64 take_host_ticks() { return 0; }
  /// VMCALL: the world switch of a guest that is a hypervisor. None is #UD.
  virtual std::optional<u64> hypercall(u64 rax, u64 rbx) {
    (void)rax;
    (void)rbx;
    return std::nullopt;
  }
};

/// No PMU: owns nothing, counts nothing.
class NoPmu final : public PmuPort {
 public:
  bool owns(u32) override { return false; }
  std::optional<u64> read_msr(u32) override { return std::nullopt; }
  bool write_msr(u32, u64) override { return false; }
  std::optional<u64> read_pmc(u32) override { return std::nullopt; }
  CpuidLeaf cpuid(u32, u32, const CpuidLeaf& base) override { return base; }
  void leave() override {}
  bool enter() override { return false; }
  void retire(bool, u8) override {}
};

}  // namespace vpmu::soft
