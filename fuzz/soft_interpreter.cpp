// Random bytes as code, in any mode and at any privilege level: contained, and it ends.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "soft/rig.hpp"

namespace {

using namespace vpmu::soft;
using namespace vpmu::soft::test;

constexpr std::size_t header_bytes = 16 * 8 + 4;
constexpr std::uint64_t instruction_limit = 150;
constexpr std::uint64_t time_limit = 10'000;

}  // namespace

/// Guest faults are C++ exceptions; these two make each one cost AddressSanitizer a search and a system call.
extern "C" const char* __asan_default_options() { return "detect_stack_use_after_return=0:use_sigaltstack=0"; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < header_bytes + 1 || size > 4096) return 0;
  CpuOptions options;
  options.general_path_only = (data[0] & 1) != 0;
  options.amd = options.exceptions_are_branches = (data[0] & 2) != 0;
  const bool intercept = (data[0] & 4) != 0;
  options.intercept_cpuid = options.intercept_ports = options.intercept_msrs = options.intercept_rdpmc = intercept;
  options.intercept_hlt = options.intercept_mmio = intercept;
  Rig rig(options, 4);
  if ((data[1] & 1) != 0) rig.compatibility_mode();
  if ((data[1] & 2) != 0) rig.user_mode();
  if ((data[1] & 4) != 0) {
    // 32-bit protected mode without paging.
    rig.cpu.state().efer = 0;
    rig.cpu.state().cr0 &= ~cr0::pg;
    rig.compatibility_mode();
  }
  if ((data[1] & 8) != 0) rig.cpu.state().system_flags |= flag::tf;
  if ((data[1] & 16) != 0) rig.sink.used.fill(true);
  rig.cpu.set_mmio_page(0x3ff000);
  rig.sink.room.instructions = data[2];
  CpuState& s = rig.cpu.state();
  for (unsigned n = 0; n < 16; ++n) std::memcpy(&s.gpr[n], data + 4 + n * 8, 8);
  if ((data[3] & 1) != 0) s.gpr[rsp] = Rig::stack;
  rig.memory.write(Rig::code, data + header_bytes, size - header_bytes);
  rig.cpu.memory_changed();
  rig.cpu.state_changed();
  // Handlers return, so that much of the code runs.
  for (unsigned n = 0; n < 256; ++n) rig.put(Rig::handlers + n * 16, {0x48, 0xcf});

  rig.cpu.set_instruction_limit(instruction_limit);
  // Exceptions take time and need not retire anything.
  rig.cpu.set_deadline(rig.cpu.tsc() + time_limit);
  for (unsigned exits = 0; exits < 60; ++exits) {
    const Exit exit = rig.cpu.run();
    if (exit.reason == ExitReason::instruction_limit || exit.reason == ExitReason::shutdown ||
        exit.reason == ExitReason::stuck || exit.reason == ExitReason::deadline) {
      break;
    }
    if (exit.reason == ExitReason::overflow || exit.executed) continue;
    (void)rig.cpu.emulate();
  }
  if (rig.sink.total(vpmu::model::Event::instructions) > instruction_limit) std::abort();
  if (s.gpr[zero] != 0) std::abort();
  return 0;
}
