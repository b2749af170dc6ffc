#include "machine/soft/cpuid.hpp"

#include <array>
#include <cstring>

namespace vpmu::soft {

namespace {

constexpr u32 bit(unsigned n) { return u32{1} << n; }

u32 word(const char* text) {
  u32 value;
  std::memcpy(&value, text, 4);
  return value;
}

constexpr u32 hypervisor_leaf = 0x40000000, timing_leaf = 0x40000010;
constexpr u32 last_intel_leaf = 0x15, last_amd_leaf = 0xd;

/// Only what the interpreter does. SDM Vol. 2, CPUID; APM Vol. 3, appendix E.
CpuidLeaf features(const CpuidConfig& config, const CpuState& state, bool apic_enabled) {
  CpuidLeaf r;
  // Family 6 model 0x6a; family 0x19 model 1.
  r.eax = config.amd ? 0x00a00f11 : 0x000606a6;
  r.ebx = (64 / 8) << 8 | 1 << 16;                                   // CLFLUSH line, one logical processor.
  r.ecx = bit(0) | bit(13) | bit(21) | bit(22) | bit(23) | bit(24);  // SSE3, CX16, x2APIC, MOVBE, POPCNT, TSC deadline
  if (config.hypervisor) r.ecx |= bit(31);
  r.edx = bit(0) | bit(2) | bit(3) | bit(4) | bit(5) | bit(6) | bit(8) | bit(11) | bit(12) | bit(13) | bit(15) |
          bit(16) | bit(17) | bit(19) | bit(24) | bit(25) | bit(26);
  if (apic_enabled) r.edx |= bit(9);
  // AMD has SYSENTER only outside of long mode; its guests use SYSCALL.
  if (config.amd) r.ecx &= ~bit(24);
  (void)state;
  return r;
}

CpuidLeaf brand(u32 leaf) {
  static constexpr std::array<char, 48> text{"vpmu soft machine"};
  CpuidLeaf r;
  const char* from = text.data() + (leaf - 0x80000002) * 16;
  r.eax = word(from);
  r.ebx = word(from + 4);
  r.ecx = word(from + 8);
  r.edx = word(from + 12);
  return r;
}

}  // namespace

CpuidLeaf machine_cpuid(const CpuidConfig& config, const CpuState& state, bool apic_enabled, u32 leaf, u32 subleaf) {
  CpuidLeaf r;
  switch (leaf) {
    case 0: {
      const char* vendor = config.amd ? "AuthenticAMD" : "GenuineIntel";
      r.eax = config.amd ? last_amd_leaf : last_intel_leaf;
      r.ebx = word(vendor);
      r.edx = word(vendor + 4);
      r.ecx = word(vendor + 8);
      return r;
    }
    case 1:
      return features(config, state, apic_enabled);
    case 7:
      if (subleaf == 0) {
        // FSGSBASE, BMI1, BMI2, enhanced REP MOVSB, ADX, CLFLUSHOPT, CLWB; UMIP, RDPID; IBPB by MSR 0x49.
        r.ebx = bit(0) | bit(3) | bit(8) | bit(9) | bit(19) | bit(23) | bit(24);
        r.ecx = bit(2);
        if (!config.amd) r.edx = bit(26);
      }
      return r;
    case 0x15:
      if (!config.amd) {
        r.eax = 1;
        r.ebx = static_cast<u32>(config.tsc_hz / config.crystal_hz);
        r.ecx = static_cast<u32>(config.crystal_hz);
      }
      return r;
    case hypervisor_leaf:
      if (config.hypervisor) r = {timing_leaf, word("vpmu"), word("soft"), word("vpmu")};
      return r;
    case timing_leaf:
      if (config.hypervisor) {
        r.eax = static_cast<u32>(config.tsc_hz / 1000);
        r.ebx = static_cast<u32>(config.crystal_hz / 1000);
      }
      return r;
    case 0x80000000:
      r.eax = config.amd ? 0x80000022 : 0x80000008;
      if (config.amd) {
        r.ebx = word("Auth");
        r.edx = word("enti");
        r.ecx = word("cAMD");
      }
      return r;
    case 0x80000001:
      r.ecx = bit(0) | bit(5) | bit(8);                         // LAHF in 64-bit mode, LZCNT, PREFETCHW
      r.edx = bit(11) | bit(20) | bit(26) | bit(27) | bit(29);  // SYSCALL, NX, 1 GiB pages, RDTSCP, long mode
      if (config.amd)
        r.edx |= bit(0) | bit(2) | bit(3) | bit(4) | bit(5) | bit(6) | bit(8) | bit(9) | bit(13) | bit(24);
      return r;
    case 0x80000002:
    case 0x80000003:
    case 0x80000004:
      return brand(leaf);
    case 0x80000007:
      r.edx = bit(8);
      return r;  // Invariant TSC.
    case 0x80000008:
      r.eax = 40 | 48 << 8;
      if (config.amd) r.ebx = bit(12);  // IBPB
      return r;
    default:
      return r;
  }
}

}  // namespace vpmu::soft
