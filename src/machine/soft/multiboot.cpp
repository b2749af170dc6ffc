#include "machine/soft/multiboot.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace vpmu::soft {

namespace {

constexpr u32 header_magic = 0x1badb002, boot_magic = 0x2badb002;
constexpr u32 flag_addresses = 1u << 16;
/// Of the low 16 flags, which a loader must understand or refuse: page-aligned modules, memory information.
constexpr u32 understood = 3;
constexpr std::size_t header_search = 8192;
constexpr u64 max_command_line = 4096;

struct Header {
  u32 flags = 0;
  u64 at = 0;                      ///< In the file.
  std::array<u32, 5> addresses{};  ///< header, load, load end, bss end, entry.
};

/// What a part of the image becomes in memory.
struct Part {
  u64 file = 0;
  u64 file_bytes = 0;
  u64 address = 0;
  u64 memory_bytes = 0;
};

template <class T>
std::optional<T> take(std::span<const u8> image, u64 at) {
  if (at > image.size() || image.size() - at < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, image.data() + at, sizeof value);
  return value;
}

std::optional<Header> find_header(std::span<const u8> image) {
  for (u64 at = 0; at + 12 <= std::min(image.size(), header_search); at += 4) {
    const u32 magic = take<u32>(image, at).value_or(0);
    const u32 flags = take<u32>(image, at + 4).value_or(0);
    const u32 checksum = take<u32>(image, at + 8).value_or(0);
    if (magic != header_magic || magic + flags + checksum != 0) continue;
    Header h{.flags = flags, .at = at, .addresses = {}};
    if ((flags & flag_addresses) != 0) {
      for (u64 n = 0; n < h.addresses.size(); ++n) {
        const auto value = take<u32>(image, at + 12 + n * 4);
        if (!value) return std::nullopt;
        h.addresses[n] = *value;
      }
    }
    return h;
  }
  return std::nullopt;
}

/// Reads the program headers of one ELF class.
template <class Ehdr, class Phdr>
std::string read_elf(std::span<const u8> image, std::vector<Part>& parts, u64& entry) {
  const auto header = take<Ehdr>(image, 0);
  if (!header) return "ELF header is cut off";
  if (header->e_machine != EM_386 && header->e_machine != EM_X86_64) return "ELF image is not for x86";
  if (header->e_phentsize != sizeof(Phdr) && header->e_phnum != 0) return "ELF program headers have the wrong size";
  u64 physical_entry = header->e_entry;
  for (u64 n = 0; n < header->e_phnum; ++n) {
    const auto segment = take<Phdr>(image, u64{header->e_phoff} + n * sizeof(Phdr));
    if (!segment) return "ELF program headers are cut off";
    if (segment->p_type != PT_LOAD || segment->p_memsz == 0) continue;
    if (segment->p_filesz > segment->p_memsz) return "ELF segment has more bytes in the file than in memory";
    if (segment->p_offset > image.size() || image.size() - segment->p_offset < segment->p_filesz) {
      return "ELF segment is cut off";
    }
    parts.push_back({segment->p_offset, segment->p_filesz, segment->p_paddr, segment->p_memsz});
    // The entry is a linear address; paging is off when it is used.
    if (header->e_entry >= segment->p_vaddr && header->e_entry - segment->p_vaddr < segment->p_memsz) {
      physical_entry = segment->p_paddr + (header->e_entry - segment->p_vaddr);
    }
  }
  entry = physical_entry;
  return parts.empty() ? "ELF image has nothing to load" : "";
}

std::string read_addresses(const Header& h, std::span<const u8> image, std::vector<Part>& parts, u64& entry) {
  const auto [header_address, load, load_end, bss_end, start] = h.addresses;
  if (header_address < load) return "multiboot header lies before the image's load address";
  const u64 before = header_address - load;
  if (before > h.at) return "image would begin before its file does";
  const u64 file = h.at - before;
  const u64 available = image.size() - file;
  u64 length = available;
  if (load_end != 0) {
    if (load_end < load) return "image's load end lies before its load address";
    length = load_end - load;
    if (length > available) return "image is cut off";
  }
  u64 memory_bytes = length;
  if (bss_end != 0) {
    if (bss_end < load || bss_end - load < length) return "image's bss ends before its data";
    memory_bytes = bss_end - load;
  }
  if (memory_bytes == 0) return "image has nothing to load";
  parts.push_back({file, length, load, memory_bytes});
  entry = start;
  return "";
}

bool overlap(u64 a, u64 a_bytes, u64 b, u64 b_bytes) { return a < b + b_bytes && b < a + a_bytes; }

class InformationWriter {
 public:
  InformationWriter(Memory& memory, u64 at) : memory_(memory), at_(at) {}
  void u32_at(u64 offset, u64 value) {
    const u32 low = static_cast<u32>(value);
    memory_.write(at_ + offset, &low, 4);
  }
  void u64_at(u64 offset, u64 value) { memory_.write(at_ + offset, &value, 8); }
  void text_at(u64 offset, std::string_view text) {
    memory_.write(at_ + offset, text.data(), text.size());
    memory_.write(at_ + offset + text.size(), "", 1);
  }
  [[nodiscard]] u64 address(u64 offset) const { return at_ + offset; }

 private:
  Memory& memory_;
  u64 at_;
};

/// Multiboot specification 3.3. The structure, then the memory map, the loader's name and the command line.
void write_information(Memory& memory, u64 at, std::string_view command_line) {
  constexpr u64 map_at = 0x80, name_at = 0xf0, command_line_at = 0x100;
  constexpr u64 low_end = 0x9fc00, high_start = 0x100000;
  InformationWriter w(memory, at);
  w.u32_at(0, (1u << 0) | (1u << 2) | (1u << 6) | (1u << 9));  // Memory, command line, memory map, loader's name.
  w.u32_at(4, low_end / 1024);
  w.u32_at(8, (memory.bytes() - std::min(memory.bytes(), high_start)) / 1024);
  w.u32_at(16, w.address(command_line_at));
  struct Range {
    u64 base, length;
    u32 type;
  };
  const std::array<Range, 3> ranges{{{0, low_end, 1},
                                     {low_end, high_start - low_end, 2},
                                     {high_start, memory.bytes() - std::min(memory.bytes(), high_start), 1}}};
  for (u64 n = 0; n < ranges.size(); ++n) {
    const u64 entry = map_at + n * 24;
    w.u32_at(entry, 20);
    w.u64_at(entry + 4, ranges[n].base);
    w.u64_at(entry + 12, ranges[n].length);
    w.u32_at(entry + 20, ranges[n].type);
  }
  w.u32_at(44, ranges.size() * 24);
  w.u32_at(48, w.address(map_at));
  w.u32_at(64, w.address(name_at));
  w.text_at(name_at, "vpmu");
  w.text_at(command_line_at, command_line);
}

}  // namespace

LoadedImage load_multiboot(Memory& memory, std::span<const u8> image, std::string_view command_line) {
  const auto fail = [](std::string why) { return LoadedImage{.error = std::move(why), .entry = 0, .information = 0}; };
  if (command_line.size() > max_command_line) return fail("command line is longer than 4096 bytes");
  if (image.empty()) return fail("image is empty");
  const auto header = find_header(image);
  if (!header) return fail("no multiboot header in the image's first 8192 bytes");
  if ((header->flags & 0xffff & ~understood) != 0)
    return fail("multiboot header asks for a feature that is not offered");

  std::vector<Part> parts;
  u64 entry = 0;
  std::string problem;
  const auto ident = take<std::array<u8, EI_NIDENT>>(image, 0);
  const bool is_elf = ident && std::memcmp(ident->data(), ELFMAG, SELFMAG) == 0;
  if ((header->flags & flag_addresses) != 0) {
    problem = read_addresses(*header, image, parts, entry);
  } else if (is_elf && (*ident)[EI_CLASS] == ELFCLASS32) {
    problem = read_elf<Elf32_Ehdr, Elf32_Phdr>(image, parts, entry);
  } else if (is_elf && (*ident)[EI_CLASS] == ELFCLASS64) {
    problem = read_elf<Elf64_Ehdr, Elf64_Phdr>(image, parts, entry);
  } else {
    problem = "image is neither ELF nor does its multiboot header say where to load it";
  }
  if (!problem.empty()) return fail(std::move(problem));

  bool entry_inside = false;
  for (std::size_t n = 0; n < parts.size(); ++n) {
    const Part& p = parts[n];
    if (!memory.contains(p.address, p.memory_bytes)) {
      return fail("image does not fit the machine's " + std::to_string(memory.bytes() >> 20) + " MiB of memory");
    }
    for (std::size_t m = 0; m < n; ++m) {
      if (overlap(p.address, p.memory_bytes, parts[m].address, parts[m].memory_bytes)) {
        return fail("image's segments overlap");
      }
    }
    if (entry >= p.address && entry - p.address < p.memory_bytes) entry_inside = true;
  }
  if (!entry_inside) return fail("image's entry lies outside of it");

  // The information goes where the image is not.
  const u64 information_bytes = 0x100 + command_line.size() + 1;
  const std::array<u64, 4> candidates{0x9000, 0x80000, 0x10000, memory.bytes() - 0x10000};
  const auto is_free = [&](u64 at) {
    return std::none_of(parts.begin(), parts.end(),
                        [&](const Part& p) { return overlap(at, information_bytes, p.address, p.memory_bytes); });
  };
  const auto place = std::find_if(candidates.begin(), candidates.end(), is_free);
  if (place == candidates.end()) return fail("image leaves no room for the multiboot information");

  for (const Part& p : parts) memory.write(p.address, image.data() + p.file, p.file_bytes);
  write_information(memory, *place, command_line);
  return {.error = "", .entry = static_cast<u32>(entry), .information = static_cast<u32>(*place)};
}

void start_multiboot(CpuState& state, const LoadedImage& image) {
  state = CpuState{};
  const auto flat = [](u16 selector, u8 access) {
    Segment s;
    s.selector = selector;
    s.access = access;
    s.flags = 0xc;
    s.limit = 0xffffffff;
    s.usable = true;
    return s;
  };
  state.segment(Seg::cs) = flat(0x08, 0x9b);
  for (const Seg each : {Seg::ds, Seg::es, Seg::ss, Seg::fs, Seg::gs}) state.segment(each) = flat(0x10, 0x93);
  state.gpr[rax] = boot_magic;
  state.gpr[rbx] = image.information;
  state.rip = image.entry;
}

}  // namespace vpmu::soft
