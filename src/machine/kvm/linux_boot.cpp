#include "machine/kvm/linux_boot.hpp"

#include <asm/bootparam.h>

#include <algorithm>
#include <array>

#include "machine/kvm/acpi_tables.hpp"
#include "machine/kvm/elf_image.hpp"

namespace vpmu::kvm {
namespace {

// Below the first MiB, where the kernel's image never is.
constexpr std::uint64_t gdt_at = 0x500;
constexpr std::uint64_t boot_params_at = 0x7000;
constexpr std::uint64_t page_tables_at = 0x9000;  // one page of each upper level, four of 2 MiB entries
constexpr std::uint64_t command_line_at = 0x20000;
constexpr std::uint64_t longest_command_line = 2047;  // COMMAND_LINE_SIZE of x86
constexpr std::uint64_t low_end = 0x9FC00;
constexpr std::uint64_t high_begin = 0x100000;
constexpr std::uint64_t page = 0x1000;
constexpr std::size_t header_begin = 0x1F1;

std::string write_segments(soft::Memory& memory, const ElfImage& elf, std::uint64_t& end) {
  bool has_entry = false;
  end = high_begin;
  for (const ElfSegment& segment : elf.segments) {
    if (segment.physical < high_begin || !memory.contains(segment.physical, segment.memory_bytes)) {
      return "the kernel does not fit the machine's " + std::to_string(memory.bytes() >> 20) + " MiB of memory";
    }
    has_entry = has_entry || (segment.executable && elf.entry - segment.physical < segment.bytes.size());
    end = std::max(end, segment.physical + segment.memory_bytes);
  }
  if (!has_entry) return "the kernel's entry lies outside of its code";
  for (const ElfSegment& segment : elf.segments) {
    memory.write(segment.physical, segment.bytes.data(), segment.bytes.size());
  }
  return "";
}

void write_page_tables(soft::Memory& memory) {
  constexpr std::uint64_t present_write = 3;
  constexpr std::uint64_t large = 1U << 7;
  constexpr std::uint64_t directories = 4;
  constexpr std::uint64_t entries = 512;
  const auto put = [&](std::uint64_t at, std::uint64_t value) { memory.write(at, &value, sizeof value); };
  put(page_tables_at, (page_tables_at + page) | present_write);
  for (std::uint64_t n = 0; n < directories; ++n) {
    const std::uint64_t directory = page_tables_at + (2 + n) * page;
    put(page_tables_at + page + n * 8, directory | present_write);
    for (std::uint64_t i = 0; i < entries; ++i)
      put(directory + i * 8, ((n * entries + i) << 21) | present_write | large);
  }
}

void write_gdt(soft::Memory& memory) {
  // Two unused, then the code and data segments that the boot protocol names (selectors 10H and 18H).
  constexpr std::array<std::uint64_t, 4> gdt{0, 0, 0x00AF9B000000FFFF, 0x00CF93000000FFFF};
  static_assert(sizeof gdt == LoadedLinux::gdt_bytes);
  memory.write(gdt_at, gdt.data(), sizeof gdt);
}

void add_range(boot_params& params, std::uint64_t begin, std::uint64_t end, std::uint32_t type) {
  constexpr std::uint32_t most = E820_MAX_ENTRIES_ZEROPAGE;
  if (begin < end && params.e820_entries < most) {
    params.e820_table[params.e820_entries++] = {.addr = begin, .size = end - begin, .type = type};
  }
}

boot_params make_params(const LinuxImage& image) {
  constexpr std::uint8_t unknown_loader = 0xFF;
  boot_params params{};
  // A vmlinux has no header: the fields that the kernel itself looks at.
  params.hdr.boot_flag = 0xAA55;
  params.hdr.header = 0x53726448;  // "HdrS"
  params.hdr.version = 0x020F;
  std::copy_n(image.setup_header.data(), std::min(image.setup_header.size(), sizeof params.hdr),
              reinterpret_cast<std::uint8_t*>(&params) + header_begin);
  params.hdr.type_of_loader = unknown_loader;
  params.hdr.loadflags = static_cast<std::uint8_t>(params.hdr.loadflags & ~(CAN_USE_HEAP)) | LOADED_HIGH;
  return params;
}

}  // namespace

std::expected<LoadedLinux, std::string> load_linux(soft::Memory& memory, const LinuxImage& image,
                                                   const LinuxBoot& boot) {
  const auto fail = [](std::string why) { return std::unexpected{std::move(why)}; };
  if (boot.command_line.size() > longest_command_line) return fail("the command line is longer than 2047 bytes");
  const auto elf = read_elf(image.vmlinux);
  if (!elf) return fail("the kernel image is unusable: " + elf.error());
  std::uint64_t end = 0;
  if (std::string error = write_segments(memory, *elf, end); !error.empty()) return fail(std::move(error));

  boot_params params = make_params(image);
  add_range(params, 0, low_end, 1);
  add_range(params, low_end, high_begin, 2);
  add_range(params, high_begin, memory.bytes(), 1);
  params.acpi_rsdp_addr = write_acpi_tables(memory, boot.cpus);
  if (!boot.initrd.empty()) {
    const std::uint64_t length = (boot.initrd.size() + page - 1) / page * page;
    if (memory.bytes() - end < length) {
      return fail("the kernel and the initrd do not fit the machine's " + std::to_string(memory.bytes() >> 20) +
                  " MiB of memory");
    }
    const std::uint64_t at = memory.bytes() - length;
    memory.write(at, boot.initrd.data(), boot.initrd.size());
    params.hdr.ramdisk_image = static_cast<std::uint32_t>(at);
    params.hdr.ramdisk_size = static_cast<std::uint32_t>(boot.initrd.size());
  }
  memory.write(command_line_at, boot.command_line.data(), boot.command_line.size());
  memory.write(command_line_at + boot.command_line.size(), "", 1);
  params.hdr.cmd_line_ptr = command_line_at;
  params.hdr.cmdline_size = longest_command_line;
  memory.write(boot_params_at, &params, sizeof params);
  write_page_tables(memory);
  write_gdt(memory);
  return LoadedLinux{.entry = elf->entry, .boot_params = boot_params_at, .page_tables = page_tables_at, .gdt = gdt_at};
}

}  // namespace vpmu::kvm
