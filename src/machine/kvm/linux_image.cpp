#include "machine/kvm/linux_image.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>

#include "machine/kvm/decompress.hpp"

namespace vpmu::kvm {
namespace {

using Bytes = std::span<const std::uint8_t>;

// Linux, Documentation/x86/boot.rst: the setup header.
constexpr std::size_t header_begin = 0x1F1;
constexpr std::size_t jump_length = 0x201;  // the header ends that many bytes after 0x202
constexpr std::size_t magic_at = 0x202;
constexpr std::size_t version_at = 0x206;
constexpr std::size_t loadflags_at = 0x211;
constexpr std::size_t xloadflags_at = 0x236;
constexpr std::size_t payload_offset_at = 0x248;
constexpr std::size_t payload_length_at = 0x24C;
constexpr std::size_t longest_header = 0x290;
constexpr std::size_t sector = 512;
constexpr std::uint16_t version_with_64_bit_entry = 0x020C;
/// A kernel's memory image is some 60 MiB.
constexpr std::size_t largest_kernel = std::size_t{512} << 20;

template <class T>
T field(Bytes file, std::size_t at) {
  T value{};
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

bool is_bzimage(Bytes file) {
  return file.size() > longest_header && std::memcmp(file.data() + magic_at, "HdrS", 4) == 0;
}

bool is_elf64(Bytes file) {
  return file.size() >= sizeof(Elf64_Ehdr) && std::memcmp(file.data(), ELFMAG, SELFMAG) == 0 &&
         file[EI_CLASS] == ELFCLASS64;
}

/// Multiboot specification 0.6.96, section 3.1.
bool is_multiboot(Bytes file) {
  constexpr std::uint32_t magic = 0x1BADB002;
  constexpr std::size_t searched = 8192;
  for (std::size_t at = 0; at + 12 <= std::min(file.size(), searched); at += 4) {
    if (field<std::uint32_t>(file, at) == magic &&
        magic + field<std::uint32_t>(file, at + 4) + field<std::uint32_t>(file, at + 8) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

bool is_linux(Bytes file) { return is_bzimage(file) || (is_elf64(file) && !is_multiboot(file)); }

std::expected<LinuxImage, std::string> read_linux(Bytes file) {
  LinuxImage image;
  if (!is_bzimage(file)) {
    image.vmlinux.assign(file.begin(), file.end());
    return image;
  }
  if (field<std::uint16_t>(file, version_at) < version_with_64_bit_entry || (file[xloadflags_at] & 1) == 0) {
    return std::unexpected{"the kernel is not an x86-64 one of Linux 3.8 or later"};
  }
  if ((file[loadflags_at] & 1) == 0) return std::unexpected{"the kernel is a zImage: use a bzImage"};
  const std::size_t setup_sectors = file[header_begin] == 0 ? 4 : file[header_begin];
  const std::size_t begin = (setup_sectors + 1) * sector + field<std::uint32_t>(file, payload_offset_at);
  const std::size_t length = field<std::uint32_t>(file, payload_length_at);
  if (begin > file.size() || file.size() - begin < length) return std::unexpected{"the kernel image is cut off"};
  auto vmlinux = decompress(file.subspan(begin, length), largest_kernel);
  if (!vmlinux) return std::unexpected{"the kernel image is unusable: " + vmlinux.error()};
  image.vmlinux = std::move(*vmlinux);
  const std::size_t header_end = std::min(magic_at + file[jump_length], longest_header);
  image.setup_header.assign(file.begin() + header_begin, file.begin() + static_cast<std::ptrdiff_t>(header_end));
  return image;
}

}  // namespace vpmu::kvm
