// Runs a few instructions on the host processor, with chosen registers, flags and memory, and says what came out.
#pragma once

#include <array>
#include <span>
#include <string>

#include "machine/soft/types.hpp"

namespace vpmu::soft::test {

/// Registers before and after. RSP and the buffers' addresses mean the same to host and guest.
struct alignas(16) NativeState {
  std::array<u64, 16> gpr{};
  u64 flags = 0;
  u64 unused = 0;
  std::array<std::array<u64, 2>, 16> xmm{};
  u32 mxcsr = 0x1f80;
};

class Native {
 public:
  /// Below 1 GiB, so that guests can map them one to one and 32-bit code can reach them.
  static constexpr u64 buffer = 0x20000000, buffer_bytes = 0x8000;
  static constexpr u64 code64 = 0x20010000, code32 = 0x20020000, code_bytes = 0x1000;
  /// Where the instructions under test start.
  static constexpr u64 target64 = code64 + 0x400, target32 = code32 + 0x400;

  enum class Outcome { done, divide_error, invalid_opcode, memory_fault };

  /// Maps the buffers; what is empty on success and else says why not.
  static const Native& get();
  [[nodiscard]] const std::string& problem() const { return problem_; }
  /// Why 32-bit code cannot run on this host; empty if it can.
  [[nodiscard]] const std::string& problem32() const { return problem32_; }

  [[nodiscard]] Outcome run(std::span<const u8> bytes, NativeState& state, bool wide) const;
  [[nodiscard]] static u8* memory() { return reinterpret_cast<u8*>(buffer); }

 private:
  Native();
  void emit64();
  void emit32(u16 selector);
  std::string problem_;
  std::string problem32_;
};

}  // namespace vpmu::soft::test
