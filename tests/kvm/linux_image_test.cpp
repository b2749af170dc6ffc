// Kernels as files: each compression, cut and corrupt ones, and what is loaded of them.
#include "machine/kvm/linux_image.hpp"

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lz4.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "machine/kvm/decompress.hpp"
#include "machine/kvm/linux_boot.hpp"
#include "seeds.hpp"

namespace vpmu::kvm {
namespace {

using Bytes = std::vector<std::uint8_t>;
using testing::HasSubstr;
using testing::Not;

template <class T>
void put(Bytes& bytes, std::size_t at, T value) {
  if (bytes.size() < at + sizeof value) bytes.resize(at + sizeof value);
  std::memcpy(bytes.data() + at, &value, sizeof value);
}

constexpr std::uint64_t load_at = 0x1000000;

/// One segment of code that ends in some RDPMCs, and no sections.
Bytes vmlinux(std::size_t length = 100000) {
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_ident[EI_CLASS] = ELFCLASS64;
  header.e_ident[EI_DATA] = ELFDATA2LSB;
  header.e_machine = EM_X86_64;
  header.e_entry = load_at;
  header.e_phoff = sizeof header;
  header.e_phentsize = sizeof(Elf64_Phdr);
  header.e_phnum = 1;
  Elf64_Phdr segment{};
  segment.p_type = PT_LOAD;
  segment.p_flags = PF_R | PF_X;
  segment.p_offset = 0x1000;
  segment.p_vaddr = 0xFFFFFFFF81000000;
  segment.p_paddr = load_at;
  segment.p_filesz = length;
  segment.p_memsz = length + 0x10000;
  Bytes file(0x1000 + length, 0x90);
  put(file, 0, header);
  put(file, sizeof header, segment);
  return file;
}

Bytes gzip(const Bytes& data) {
  Bytes out(data.size() + 1000);
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 16 + MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
  stream.next_in = const_cast<Bytef*>(data.data());
  stream.avail_in = static_cast<uInt>(data.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

Bytes xz(const Bytes& data) {
  Bytes out(data.size() + 1000);
  std::size_t used = 0;
  EXPECT_EQ(
      lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, nullptr, data.data(), data.size(), out.data(), &used, out.size()),
      LZMA_OK);
  out.resize(used);
  return out;
}

Bytes zstd(const Bytes& data) {
  Bytes out(ZSTD_compressBound(data.size()));
  out.resize(ZSTD_compress(out.data(), out.size(), data.data(), data.size(), 3));
  return out;
}

Bytes lz4(const Bytes& data) {
  constexpr std::size_t block = std::size_t{8} << 20;
  Bytes out{0x02, 0x21, 0x4C, 0x18};
  for (std::size_t at = 0; at < data.size(); at += block) {
    const std::size_t length = std::min(block, data.size() - at);
    Bytes packed(LZ4_COMPRESSBOUND(length));
    const int got =
        LZ4_compress_default(reinterpret_cast<const char*>(data.data() + at), reinterpret_cast<char*>(packed.data()),
                             static_cast<int>(length), static_cast<int>(packed.size()));
    put(out, out.size(), static_cast<std::uint32_t>(got));
    out.insert(out.end(), packed.begin(), packed.begin() + got);
  }
  return out;
}

using Pack = Bytes (*)(const Bytes&);
constexpr Pack packers[] = {gzip, xz, zstd, lz4};

/// As the kernel's build makes it: setup sectors, then the payload with its length behind it.
Bytes bzimage(const Bytes& payload) {
  Bytes file(512 * 5);
  file[0x1F1] = 4;
  file[0x201] = 0x6A;
  std::memcpy(file.data() + 0x202, "HdrS", 4);
  put<std::uint16_t>(file, 0x206, 0x020F);
  file[0x211] = 1;
  file[0x236] = 1;
  put<std::uint32_t>(file, 0x248, 0x100);
  put<std::uint32_t>(file, 0x24C, static_cast<std::uint32_t>(payload.size() + 4));
  file.resize(512 * 5 + 0x100);
  file.insert(file.end(), payload.begin(), payload.end());
  put<std::uint32_t>(file, file.size(), 12345);
  file.resize(file.size() + 1000);
  return file;
}

TEST(LinuxImage, IsReadFromEachCompression) {
  const Bytes kernel = vmlinux();
  for (const Pack pack : packers) {
    const Bytes file = bzimage(pack(kernel));
    EXPECT_TRUE(is_linux(file));
    const auto image = read_linux(file);
    ASSERT_TRUE(image.has_value()) << image.error();
    EXPECT_EQ(image->vmlinux, kernel);
    EXPECT_EQ(image->setup_header.size(), 0x202 + 0x6A - 0x1F1U);
  }
}

TEST(LinuxImage, Lz4HasBlocksOf8MiBAndMayEndWithAFullOne) {
  for (const std::size_t length : {std::size_t{8} << 20, (std::size_t{16} << 20) + 5}) {
    Bytes data(length, 7);
    const auto out = decompress(lz4(data), std::size_t{64} << 20);
    ASSERT_TRUE(out.has_value()) << out.error();
    EXPECT_EQ(*out, data);
  }
}

TEST(LinuxImage, AVmlinuxIsTakenAsItIs) {
  const Bytes kernel = vmlinux();
  EXPECT_TRUE(is_linux(kernel));
  EXPECT_EQ(read_linux(kernel)->vmlinux, kernel);
  EXPECT_FALSE(is_linux(Bytes(5000)));
}

TEST(LinuxImage, CutAnywhereIsRefusedInOneLine) {
  const Bytes kernel = vmlinux();
  for (const Pack pack : packers) {
    const Bytes file = bzimage(pack(kernel));
    for (std::size_t length = 1000; length + 1004 < file.size(); length += file.size() / 50) {
      const auto image = read_linux(std::span{file}.first(length));
      ASSERT_FALSE(image.has_value()) << length << " of " << file.size();
      EXPECT_THAT(image.error(), HasSubstr("cut off"));
      EXPECT_THAT(image.error(), Not(HasSubstr("\n")));
    }
  }
}

TEST(LinuxImage, CorruptIsRefusedOrLoadedAndNeverHarms) {
  const Bytes kernel = vmlinux(5000);
  for (const std::uint64_t seed : test::seeds()) {
    std::mt19937_64 random{seed};
    for (const Pack pack : packers) {
      Bytes file = bzimage(pack(kernel));
      for (int n = 0; n < 3; ++n) file[random() % file.size()] = static_cast<std::uint8_t>(random());
      const auto image = read_linux(file);
      if (!image) continue;
      soft::Memory memory{64};
      static_cast<void>(load_linux(memory, *image, {}));
    }
  }
}

TEST(LinuxImage, DecompressesNoMoreThanIsAllowed) {
  const Bytes zeros(std::size_t{32} << 20);
  for (const Pack pack : packers) {
    const auto out = decompress(pack(zeros), std::size_t{16} << 20);
    ASSERT_FALSE(out.has_value());
    EXPECT_THAT(out.error(), HasSubstr("too large"));
  }
}

TEST(LoadLinux, PlacesKernelInitrdAndCommandLine) {
  soft::Memory memory{64};
  const LinuxImage image = *read_linux(bzimage(gzip(vmlinux())));
  const Bytes initrd(5000, 0xAB);
  const auto loaded = load_linux(memory, image, {.initrd = initrd, .command_line = "console=ttyS0", .cpus = 2});
  ASSERT_TRUE(loaded.has_value()) << loaded.error();
  EXPECT_EQ(loaded->entry, load_at);
  EXPECT_EQ(*memory.at(load_at), 0x90);
  const std::uint64_t params = loaded->boot_params;
  EXPECT_STREQ(reinterpret_cast<const char*>(memory.at(memory.read_u32(params + 0x228))), "console=ttyS0");
  const std::uint32_t initrd_at = memory.read_u32(params + 0x218);
  EXPECT_EQ(memory.read_u32(params + 0x21C), initrd.size());
  EXPECT_EQ(initrd_at % 4096, 0U);
  EXPECT_EQ(std::memcmp(memory.at(initrd_at), initrd.data(), initrd.size()), 0);
  EXPECT_EQ(std::memcmp(memory.at(memory.read_u64(params + 0x70)), "RSD PTR ", 8), 0);
}

TEST(LoadLinux, RefusesWhatDoesNotFit) {
  soft::Memory memory{17};
  const LinuxImage image = *read_linux(vmlinux());
  EXPECT_TRUE(load_linux(memory, image, {}).has_value());
  const Bytes initrd(std::size_t{2} << 20);
  EXPECT_THAT(load_linux(memory, image, {.initrd = initrd}).error(), HasSubstr("initrd do not fit"));
  soft::Memory small{16};
  EXPECT_THAT(load_linux(small, image, {}).error(), HasSubstr("does not fit the machine's 16 MiB"));
  const std::string line(3000, 'x');
  EXPECT_THAT(load_linux(memory, image, {.command_line = line}).error(), HasSubstr("command line is longer"));
}

TEST(LoadLinux, AcpiTablesSumToZero) {
  soft::Memory memory{64};
  const auto loaded = load_linux(memory, *read_linux(vmlinux()), {.cpus = 3});
  ASSERT_TRUE(loaded.has_value());
  const auto sum = [&](std::uint64_t at, std::uint64_t length) {
    unsigned total = 0;
    for (std::uint64_t n = 0; n < length; ++n) total += *memory.at(at + n);
    return total & 0xFF;
  };
  const std::uint64_t rsdp = memory.read_u64(loaded->boot_params + 0x70);
  EXPECT_EQ(sum(rsdp, 20), 0U);
  EXPECT_EQ(sum(rsdp, 36), 0U);
  const std::uint64_t xsdt = memory.read_u64(rsdp + 24);
  EXPECT_EQ(sum(xsdt, memory.read_u32(xsdt + 4)), 0U);
  for (std::uint64_t n = 36; n < memory.read_u32(xsdt + 4); n += 8) {
    const std::uint64_t table = memory.read_u64(xsdt + n);
    EXPECT_EQ(sum(table, memory.read_u32(table + 4)), 0U);
  }
}

}  // namespace
}  // namespace vpmu::kvm
