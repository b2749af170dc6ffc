// Loads multiboot images (specification 0.6.96): ELF32, ELF64, or placed by the header's address fields.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "machine/soft/cpu_state.hpp"
#include "machine/soft/memory.hpp"

namespace vpmu::soft {

/// Where to start, or why not: one line.
struct LoadedImage {
  std::string error;
  u32 entry = 0;
  u32 information = 0;  ///< Physical address of the multiboot information structure.

  [[nodiscard]] bool ok() const { return error.empty(); }
};

/// Copies the image into memory, which should be fresh. The image is not trusted.
[[nodiscard]] LoadedImage load_multiboot(Memory& memory, std::span<const u8> image, std::string_view command_line);

/// The state in which a multiboot loader starts an image: 32-bit protected mode, flat, interrupts off.
void start_multiboot(CpuState& state, const LoadedImage& image);

}  // namespace vpmu::soft
