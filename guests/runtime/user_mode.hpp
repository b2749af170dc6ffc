// Running functions in ring 3.
#pragma once

#include <cstdint>

namespace vpmu::guest {

/// A function that runs in either ring: it and what it uses lie in the sections .user.text and .user.data.
using UserFunction = std::uint64_t (*)(std::uint64_t argument);

extern "C" {
/// Runs it in ring 3 with these RFLAGS, entered by IRET or SYSRET; it comes back by SYSCALL. Interrupts meanwhile are
/// as the flags say, and as before afterwards.
std::uint64_t run_in_user_by_iret(UserFunction function, std::uint64_t argument, std::uint64_t flags);
std::uint64_t run_in_user_by_sysret(UserFunction function, std::uint64_t argument, std::uint64_t flags);

/// What the way there and back retires, by ring, beside the function itself.
struct PathCounts {
  std::uint64_t kernel_instructions;
  std::uint64_t kernel_branches;
  std::uint64_t user_instructions;
  std::uint64_t user_branches;
};
extern const PathCounts iret_path;
extern const PathCounts sysret_path;
}

/// Makes SYSCALL come back, and the user's pages the user's.
void set_up_user_mode();

}  // namespace vpmu::guest
