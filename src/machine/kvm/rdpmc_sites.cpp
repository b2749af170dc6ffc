// Finds RDPMC in code, and rewrites it.
#include <Zydis/Zydis.h>

#include <algorithm>
#include <optional>

#include "machine/kvm/elf_image.hpp"
#include "vpmu/kvm.hpp"

namespace vpmu::kvm {
namespace {

// RDPMC is 0F 33 and RDMSR 0F 32, both without operand bytes: the opcode is the last byte (SDM volume 2).
constexpr std::uint8_t escape = 0x0F;
constexpr std::uint8_t rdpmc_opcode = 0x33;
constexpr std::uint8_t rdmsr_opcode = 0x32;

ZydisDecoder decoder_of(CodeSize size) {
  ZydisDecoder decoder;
  if (size == CodeSize::bits64) {
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  } else {
    ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
  }
  // Lengths and opcodes are all that is needed, and a kernel has four million instructions.
  ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MINIMAL, ZYAN_TRUE);
  return decoder;
}

bool has_opcode(std::span<const std::uint8_t> code) {
  constexpr std::array opcode{escape, rdpmc_opcode};
  return std::search(code.begin(), code.end(), opcode.begin(), opcode.end()) != code.end();
}

std::optional<std::uint64_t> physical_of(const ElfImage& elf, std::uint64_t linear) {
  for (const ElfSegment& segment : elf.segments) {
    if (linear - segment.linear < segment.bytes.size()) return segment.physical + (linear - segment.linear);
  }
  return std::nullopt;
}

}  // namespace

void find_rdpmc(std::span<const std::uint8_t> code, CodeSize size, std::uint64_t rip, std::uint64_t physical,
                std::vector<RdpmcSite>& sites) {
  if (!has_opcode(code)) return;
  const ZydisDecoder decoder = decoder_of(size);
  ZydisDecodedInstruction instruction;
  for (std::size_t at = 0; at < code.size();) {
    if (!ZYAN_SUCCESS(
            ZydisDecoderDecodeInstruction(&decoder, nullptr, code.data() + at, code.size() - at, &instruction))) {
      ++at;
      continue;
    }
    if (instruction.opcode_map == ZYDIS_OPCODE_MAP_0F && instruction.opcode == rdpmc_opcode &&
        instruction.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY) {
      sites.push_back({rip + at, physical + at + instruction.length - 2});
    }
    at += instruction.length;
  }
}

std::vector<RdpmcSite> find_rdpmc(std::span<const std::uint8_t> image) {
  std::vector<RdpmcSite> sites;
  const auto elf = read_elf(image);
  if (!elf) return sites;
  for (const ElfSection& section : elf->code) {
    if (const auto physical = physical_of(*elf, section.linear)) {
      find_rdpmc(section.bytes, CodeSize::bits64, section.linear, *physical, sites);
    }
  }
  if (!elf->code.empty()) return sites;
  for (const ElfSegment& segment : elf->segments) {
    if (segment.executable) find_rdpmc(segment.bytes, CodeSize::bits64, segment.linear, segment.physical, sites);
  }
  return sites;
}

std::vector<RdpmcSite> patch_rdpmc(std::span<const RdpmcSite> sites, std::span<std::uint8_t> memory) {
  std::vector<RdpmcSite> patched;
  for (const RdpmcSite& site : sites) {
    if (memory.size() < 2 || site.physical > memory.size() - 2) continue;
    std::uint8_t* opcode = memory.data() + site.physical;
    if (opcode[0] != escape || opcode[1] != rdpmc_opcode) continue;
    opcode[1] = rdmsr_opcode;
    patched.push_back(site);
  }
  return patched;
}

}  // namespace vpmu::kvm
