// A Linux kernel as a file: bzImage or vmlinux. The file is not trusted.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

namespace vpmu::kvm {

struct LinuxImage {
  std::vector<std::uint8_t> vmlinux;       // ELF64
  std::vector<std::uint8_t> setup_header;  // of a bzImage, from offset 1F1H on; else empty
};

/// Whether it looks like one: a bzImage, or an ELF64 file without a multiboot header.
bool is_linux(std::span<const std::uint8_t> file);

/// The kernel, or what is wrong with it.
std::expected<LinuxImage, std::string> read_linux(std::span<const std::uint8_t> file);

}  // namespace vpmu::kvm
