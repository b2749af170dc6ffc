#include "machine/kvm/boot_state.hpp"

namespace vpmu::kvm {
namespace {

constexpr std::uint64_t cr0_protection = 1U << 0;
constexpr std::uint64_t cr0_extension_type = 1U << 4;
constexpr std::uint64_t cr0_paging = 1U << 31;
constexpr std::uint64_t cr4_pae = 1U << 5;
constexpr std::uint64_t efer_long_mode = 1U << 8 | 1U << 10;  // LME and LMA
constexpr std::uint64_t rflags_always_one = 1U << 1;
constexpr std::uint8_t code_type = 0xB;  // execute, read, accessed
constexpr std::uint8_t data_type = 0x3;  // read, write, accessed

enum class Bits : std::uint8_t { bits32, bits64 };

kvm_segment flat(std::uint16_t selector, std::uint8_t type, Bits bits) {
  kvm_segment segment{};
  segment.limit = 0xFFFFFFFF;
  segment.selector = selector;
  segment.type = type;
  segment.present = 1;
  segment.s = 1;
  segment.g = 1;
  segment.l = bits == Bits::bits64 ? 1 : 0;
  segment.db = bits == Bits::bits64 ? 0 : 1;
  return segment;
}

void set_segments(kvm_sregs& sregs, const kvm_segment& code, const kvm_segment& data) {
  sregs.cs = code;
  for (kvm_segment* segment : {&sregs.ds, &sregs.es, &sregs.ss, &sregs.fs, &sregs.gs}) *segment = data;
}

}  // namespace

void start_multiboot(kvm_sregs& sregs, kvm_regs& regs, const soft::LoadedImage& image) {
  constexpr std::uint32_t magic = 0x2BADB002;
  set_segments(sregs, flat(0x08, code_type, Bits::bits32), flat(0x10, data_type, Bits::bits32));
  sregs.cr0 = cr0_protection | cr0_extension_type;
  regs = {};
  regs.rax = magic;
  regs.rbx = image.information;
  regs.rip = image.entry;
  regs.rflags = rflags_always_one;
}

void start_linux(kvm_sregs& sregs, kvm_regs& regs, const LoadedLinux& image) {
  constexpr std::uint16_t boot_cs = 0x10;
  constexpr std::uint16_t boot_ds = 0x18;
  set_segments(sregs, flat(boot_cs, code_type, Bits::bits64), flat(boot_ds, data_type, Bits::bits32));
  sregs.gdt.base = image.gdt;
  sregs.gdt.limit = LoadedLinux::gdt_bytes - 1;
  sregs.cr3 = image.page_tables;
  sregs.cr4 = cr4_pae;
  sregs.efer = efer_long_mode;
  sregs.cr0 = cr0_protection | cr0_extension_type | cr0_paging;
  regs = {};
  regs.rsi = image.boot_params;
  regs.rip = image.entry;
  regs.rflags = rflags_always_one;
}

}  // namespace vpmu::kvm
