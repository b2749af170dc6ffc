// Multiboot images made of a few bytes of code.
#pragma once

#include <elf.h>

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "machine/soft/types.hpp"

namespace vpmu::soft::test {

inline void append(std::vector<u8>& to, const void* from, std::size_t bytes) {
  const auto* first = static_cast<const u8*>(from);
  to.insert(to.end(), first, first + bytes);
}

/// A multiboot image by address fields: the header, then the code.
inline std::vector<u8> flat_image(std::span<const u8> code, u32 load = 0x100000, u32 bss = 0) {
  const u32 flags = 1u << 16;
  const u32 end = load + 32 + static_cast<u32>(code.size());
  const std::array<u32, 8> header{0x1badb002, flags, 0u - 0x1badb002u - flags, load, load, end, end + bss, load + 32};
  std::vector<u8> image;
  append(image, header.data(), sizeof header);
  append(image, code.data(), code.size());
  return image;
}

/// The multiboot header at 0x100, and the code, a HLT, at 0x1f0.
template <class Ehdr, class Phdr>
std::vector<u8> elf_image(u8 elf_class, u16 machine, const Phdr& segment, u64 entry) {
  std::vector<u8> image(0x200, 0);
  Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = elf_class;
  header.e_machine = machine;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Phdr);
  header.e_phnum = 1;
  header.e_entry = static_cast<decltype(header.e_entry)>(entry);
  std::memcpy(image.data(), &header, sizeof header);
  std::memcpy(image.data() + sizeof header, &segment, sizeof segment);
  const std::array<u32, 3> multiboot{0x1badb002, 0, 0u - 0x1badb002u};
  std::memcpy(image.data() + 0x100, multiboot.data(), sizeof multiboot);
  image[0x1f0] = 0xf4;
  return image;
}

/// A segment for elf_image().
template <class Phdr>
Phdr good_segment() {
  Phdr p{};
  p.p_type = PT_LOAD;
  p.p_offset = 0x100;
  p.p_filesz = 0x100;
  p.p_memsz = 0x200;
  p.p_paddr = 0x100000;
  p.p_vaddr = 0x100000;
  return p;
}

/// Where the code of elf_program() starts.
inline constexpr u32 program_address = 0x1000f0;

/// An image whose code runs in 32-bit protected mode.
inline std::vector<u8> elf_program(std::span<const u8> code) {
  auto segment = good_segment<Elf32_Phdr>();
  segment.p_filesz = segment.p_memsz = static_cast<u32>(0xf0 + code.size());
  std::vector<u8> image = elf_image<Elf32_Ehdr>(ELFCLASS32, EM_386, segment, program_address);
  image.resize(0x1f0);
  append(image, code.data(), code.size());
  return image;
}

}  // namespace vpmu::soft::test
