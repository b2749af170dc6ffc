#include "runtime/machine.hpp"

#include "runtime/processor.hpp"

namespace vpmu::guest {

bool ignores_unknown_msrs() {
  constexpr std::uint32_t hypervisor_leaf = 0x40000000;
  constexpr std::uint32_t tcg_ebx = 0x54474354;  // "TCGT"CGTCGTCG
  return (cpuid(1).ecx >> 31 & 1) != 0 && cpuid(hypervisor_leaf).ebx == tcg_ebx;
}

}  // namespace vpmu::guest
