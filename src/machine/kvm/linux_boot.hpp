// Puts a Linux kernel and what it is told at boot into guest memory.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <string_view>

#include "machine/kvm/linux_image.hpp"
#include "machine/soft/memory.hpp"

namespace vpmu::kvm {

/// Guest-physical addresses that a vCPU starts with.
struct LoadedLinux {
  static constexpr std::uint16_t gdt_bytes = 32;
  std::uint64_t entry = 0;
  std::uint64_t boot_params = 0;
  std::uint64_t page_tables = 0;
  std::uint64_t gdt = 0;
};

struct LinuxBoot {
  std::span<const std::uint8_t> initrd{};
  std::string_view command_line{};
  std::uint32_t cpus = 1;
};

/// What was loaded, or why it was not, in one line.
std::expected<LoadedLinux, std::string> load_linux(soft::Memory& memory, const LinuxImage& image,
                                                   const LinuxBoot& boot);

}  // namespace vpmu::kvm
