#include "machine/kvm/elf_image.hpp"

#include <elf.h>

#include <cstring>
#include <optional>

namespace vpmu::kvm {
namespace {

using Bytes = std::span<const std::uint8_t>;

std::optional<Bytes> part(Bytes image, std::uint64_t at, std::uint64_t length) {
  if (at > image.size() || image.size() - at < length) return std::nullopt;
  return image.subspan(at, length);
}

template <class T>
std::optional<T> take(Bytes image, std::uint64_t at) {
  const auto bytes = part(image, at, sizeof(T));
  if (!bytes) return std::nullopt;
  T value;
  std::memcpy(&value, bytes->data(), sizeof value);
  return value;
}

std::string read_segments(Bytes image, const Elf64_Ehdr& header, ElfImage& elf) {
  for (std::uint64_t n = 0; n < header.e_phnum; ++n) {
    const auto segment = take<Elf64_Phdr>(image, header.e_phoff + n * sizeof(Elf64_Phdr));
    if (!segment) return "ELF program headers are cut off";
    if (segment->p_type != PT_LOAD || segment->p_memsz == 0) continue;
    const auto bytes = part(image, segment->p_offset, segment->p_filesz);
    if (!bytes) return "ELF segment is cut off";
    if (segment->p_filesz > segment->p_memsz) return "ELF segment has more bytes in the file than in memory";
    elf.segments.push_back(
        {*bytes, segment->p_vaddr, segment->p_paddr, segment->p_memsz, (segment->p_flags & PF_X) != 0});
  }
  return elf.segments.empty() ? "ELF image has nothing to load" : "";
}

/// Sections are a help, not a need: what is unsound among them is left out.
void read_sections(Bytes image, const Elf64_Ehdr& header, ElfImage& elf) {
  if (header.e_shentsize != sizeof(Elf64_Shdr)) return;
  for (std::uint64_t n = 0; n < header.e_shnum; ++n) {
    const auto section = take<Elf64_Shdr>(image, header.e_shoff + n * sizeof(Elf64_Shdr));
    if (!section) return;
    if (section->sh_type != SHT_PROGBITS || (section->sh_flags & SHF_EXECINSTR) == 0) continue;
    if (const auto bytes = part(image, section->sh_offset, section->sh_size)) {
      elf.code.push_back({*bytes, section->sh_addr});
    }
  }
}

}  // namespace

std::expected<ElfImage, std::string> read_elf(Bytes image) {
  const auto header = take<Elf64_Ehdr>(image, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) return std::unexpected{"not an ELF image"};
  if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB ||
      header->e_machine != EM_X86_64) {
    return std::unexpected{"ELF image is not for x86-64"};
  }
  if (header->e_phentsize != sizeof(Elf64_Phdr)) return std::unexpected{"ELF program headers have the wrong size"};
  ElfImage elf;
  elf.entry = header->e_entry;
  if (std::string error = read_segments(image, *header, elf); !error.empty()) return std::unexpected{std::move(error)};
  read_sections(image, *header, elf);
  return elf;
}

}  // namespace vpmu::kvm
