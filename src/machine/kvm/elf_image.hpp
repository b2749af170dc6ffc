// Reads ELF64 images of x86-64: what is loaded where, and where there is code. The image is not trusted.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

namespace vpmu::kvm {

struct ElfSegment {
  std::span<const std::uint8_t> bytes;  // in the file
  std::uint64_t linear = 0;
  std::uint64_t physical = 0;
  std::uint64_t memory_bytes = 0;  // the rest is 0
  bool executable = false;
};

struct ElfSection {
  std::span<const std::uint8_t> bytes;
  std::uint64_t linear = 0;
};

struct ElfImage {
  std::uint64_t entry = 0;
  std::vector<ElfSegment> segments;  // those to load
  std::vector<ElfSection> code;      // executable sections; empty if the image states no sections
};

/// The image, or what is wrong with it. What is returned points into `image`.
std::expected<ElfImage, std::string> read_elf(std::span<const std::uint8_t> image);

}  // namespace vpmu::kvm
