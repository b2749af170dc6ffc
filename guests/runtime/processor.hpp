// Instructions that C++ has no word for.
#pragma once

#include <cstdint>

#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::guest {

/// MSRs of the processor and its local APIC that the runtime uses (SDM volume 4; APM volume 2, appendix A).
namespace msr {
inline constexpr Msr apic_base{0x1B};
inline constexpr Msr spec_ctrl{0x48};
inline constexpr Msr pred_cmd{0x49};  // bit 0: indirect branch prediction barrier
inline constexpr Msr tsc_deadline{0x6E0};
inline constexpr std::uint32_t x2apic = 0x800;
inline constexpr Msr star{0xC0000081};
inline constexpr Msr lstar{0xC0000082};
inline constexpr Msr fmask{0xC0000084};
}  // namespace msr

namespace rflags {
inline constexpr std::uint64_t always_one = 1U << 1;
inline constexpr std::uint64_t interrupts = 1U << 9;
inline constexpr std::uint64_t port_access = 3U << 12;  // IOPL 3
}  // namespace rflags

namespace cr4 {
inline constexpr std::uint64_t user_rdpmc = 1U << 8;  // PCE
}  // namespace cr4

inline CpuidResult cpuid(std::uint32_t leaf, std::uint32_t subleaf = 0) {
  CpuidResult result{};
  asm volatile("cpuid"
               : "=a"(result.eax), "=b"(result.ebx), "=c"(result.ecx), "=d"(result.edx)
               : "a"(leaf), "c"(subleaf));
  return result;
}

inline std::uint64_t read_tsc() {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("rdtsc" : "=a"(low), "=d"(high));
  return std::uint64_t{high} << 32 | low;
}

inline std::uint64_t read_msr(Msr msr) {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(index_of(msr)) : "memory");
  return std::uint64_t{high} << 32 | low;
}

inline void write_msr(Msr msr, std::uint64_t value) {
  asm volatile("wrmsr"
               :
               : "c"(index_of(msr)), "a"(static_cast<std::uint32_t>(value)),
                 "d"(static_cast<std::uint32_t>(value >> 32))
               : "memory");
}

inline std::uint64_t read_pmc(std::uint32_t ecx) {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  asm volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(ecx) : "memory");
  return std::uint64_t{high} << 32 | low;
}

inline void port_out(std::uint16_t port, std::uint8_t value) {
  asm volatile("outb %0, %1" : : "a"(value), "d"(port) : "memory");
}

inline std::uint8_t port_in(std::uint16_t port) {
  std::uint8_t value = 0;
  asm volatile("inb %1, %0" : "=a"(value) : "d"(port) : "memory");
  return value;
}

inline std::uint64_t read_cr4() {
  std::uint64_t value = 0;
  asm volatile("mov %%cr4, %0" : "=r"(value));
  return value;
}

inline void write_cr4(std::uint64_t value) { asm volatile("mov %0, %%cr4" : : "r"(value) : "memory"); }

inline void interrupts_off() { asm volatile("cli" : : : "memory"); }
inline void interrupts_on() { asm volatile("sti" : : : "memory"); }

/// Waits for one interrupt, and takes no other before or after.
inline void wait_for_interrupt() { asm volatile("sti; hlt; cli" : : : "memory"); }

[[noreturn]] inline void stop() {
  while (true) asm volatile("cli; hlt");
}

/// Ends the machine: 0 is success (see README.md for the others).
[[noreturn]] inline void exit_machine(std::uint8_t code) {
  constexpr std::uint16_t debug_exit_port = 0xF4;
  port_out(debug_exit_port, code);
  stop();
}

}  // namespace vpmu::guest
