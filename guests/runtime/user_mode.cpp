#include "runtime/user_mode.hpp"

#include "runtime/layout.h"
#include "runtime/processor.hpp"

extern "C" {
extern char syscall_entry[];
extern char user_begin[];
extern char user_end[];
extern std::uint64_t first_pages[];
}

namespace vpmu::guest {

void set_up_user_mode() {
  // SDM volume 2, SYSCALL and SYSRET; all flags that could disturb the kernel are masked.
  constexpr std::uint64_t flags_off = 0x47700;
  write_msr(msr::star, std::uint64_t{SYSRET_BASE} << 48 | std::uint64_t{KERNEL_CODE} << 32);
  write_msr(msr::lstar, reinterpret_cast<std::uint64_t>(syscall_entry));
  write_msr(msr::fmask, flags_off);

  constexpr std::uint64_t page_bits = 12;
  constexpr std::uint64_t user_bit = 1U << 2;
  const std::uint64_t end = reinterpret_cast<std::uint64_t>(user_end) >> page_bits;
  for (std::uint64_t page = reinterpret_cast<std::uint64_t>(user_begin) >> page_bits; page < end; ++page) {
    first_pages[page] |= user_bit;
  }
  std::uint64_t page_map = 0;
  asm volatile("mov %%cr3, %0; mov %0, %%cr3" : "=&r"(page_map) : : "memory");
}

}  // namespace vpmu::guest
