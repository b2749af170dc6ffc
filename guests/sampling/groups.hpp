// The groups of checks of this guest.
#pragma once

#include <cstdint>

namespace vpmu::guest {

void sample_user_code();
void sample_kernel_code();
void check_late_delivery();
void sample_as_configured();

extern "C" {
/// With IF clear: 40 instructions, STI, one instruction in its shadow, and then shadow_end.
std::uint64_t sti_shadow(std::uint64_t unused);
extern char shadow_end[];
}

}  // namespace vpmu::guest
