// What start.S calls in 64-bit mode: sets the processor up, then runs the guest.
#include <cstdint>

#include "runtime/checks.hpp"
#include "runtime/interrupts.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"
#include "runtime/user_mode.hpp"

extern "C" [[noreturn]] void start_guest(std::uint32_t magic, std::uint32_t information);

void start_guest(std::uint32_t magic, std::uint32_t information) {
  using namespace vpmu::guest;  // NOLINT(google-build-using-namespace): C linkage
  // Multiboot specification 0.6.96, section 3.3: flags at 0, of which bit 2 says that the command line's address is
  // at 16.
  constexpr std::uint32_t loader_magic = 0x2BADB002;
  if (magic == loader_magic) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(std::uintptr_t{information});
    if ((words[0] & 1U << 2) != 0) take_command_line(reinterpret_cast<const char*>(std::uintptr_t{words[4]}));
  }
  set_up_interrupts();
  set_up_user_mode();
  set_up_apic();
  run_guest();
  finish();
}
