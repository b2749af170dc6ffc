#include "runtime/probe.hpp"

#include "runtime/interrupts.hpp"

namespace vpmu::guest {

ProbedValue try_read_msr(Msr msr) {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  caught_fault().happened = false;
  asm volatile(
      "1: rdmsr\n"
      "2:\n"
      ".pushsection .fixups, \"a\"\n"
      ".quad 1b, 2b\n"
      ".popsection"
      : "=a"(low), "=d"(high)
      : "c"(index_of(msr))
      : "memory");
  return {caught_fault().happened, std::uint64_t{high} << 32 | low};
}

bool try_write_msr(Msr msr, std::uint64_t value) {
  caught_fault().happened = false;
  asm volatile(
      "1: wrmsr\n"
      "2:\n"
      ".pushsection .fixups, \"a\"\n"
      ".quad 1b, 2b\n"
      ".popsection"
      :
      : "c"(index_of(msr)), "a"(static_cast<std::uint32_t>(value)), "d"(static_cast<std::uint32_t>(value >> 32))
      : "memory");
  return !caught_fault().happened;
}

ProbedValue try_read_pmc(std::uint32_t ecx) {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  caught_fault().happened = false;
  asm volatile(
      "1: rdpmc\n"
      "2:\n"
      ".pushsection .fixups, \"a\"\n"
      ".quad 1b, 2b\n"
      ".popsection"
      : "=a"(low), "=d"(high)
      : "c"(ecx)
      : "memory");
  return {caught_fault().happened, std::uint64_t{high} << 32 | low};
}

}  // namespace vpmu::guest
