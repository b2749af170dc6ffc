#include "machine/kvm/decompress.hpp"

#include <lz4.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

namespace vpmu::kvm {
namespace {

using Bytes = std::span<const std::uint8_t>;
using Output = std::vector<std::uint8_t>;
using Unpacked = std::expected<Output, std::string>;

constexpr std::size_t step = std::size_t{1} << 20;

std::unexpected<std::string> broken(const char* format) {
  return std::unexpected{std::string{"its "} + format + " data is corrupt or cut off"};
}
std::unexpected<std::string> too_large() { return std::unexpected{std::string{"it is too large when decompressed"}}; }

/// Room for another step behind `used`, but not for more than `most` bytes in all. False if there is none.
bool grow(Output& output, std::size_t used, std::size_t most) {
  if (used < output.size()) return true;
  if (used >= most) return false;
  output.resize(std::min(most, std::max(used + step, used * 2)));
  return true;
}

Unpacked gunzip(Bytes data, std::size_t most) {
  z_stream stream{};
  constexpr int gzip_header = 16 + MAX_WBITS;
  if (inflateInit2(&stream, gzip_header) != Z_OK) return broken("gzip");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> guard{&stream, inflateEnd};
  stream.next_in = const_cast<Bytef*>(data.data());  // zlib's interface: it does not write there
  stream.avail_in = static_cast<uInt>(data.size());
  Output output;
  std::size_t used = 0;
  for (;;) {
    if (!grow(output, used, most)) return too_large();
    stream.next_out = output.data() + used;
    const std::size_t room = std::min(output.size() - used, step);
    stream.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream, Z_NO_FLUSH);
    used += room - stream.avail_out;
    if (status == Z_STREAM_END) break;
    if (status != Z_OK) return broken("gzip");
  }
  output.resize(used);
  return output;
}

Unpacked unxz(Bytes data, std::size_t most) {
  lzma_stream stream = LZMA_STREAM_INIT;
  constexpr std::uint64_t memory_limit = 512U << 20;
  if (lzma_stream_decoder(&stream, memory_limit, 0) != LZMA_OK) return broken("xz");
  const std::unique_ptr<lzma_stream, void (*)(lzma_stream*)> guard{&stream, lzma_end};
  stream.next_in = data.data();
  stream.avail_in = data.size();
  Output output;
  std::size_t used = 0;
  for (;;) {
    if (!grow(output, used, most)) return too_large();
    stream.next_out = output.data() + used;
    stream.avail_out = output.size() - used;
    const lzma_ret status = lzma_code(&stream, LZMA_FINISH);
    used = output.size() - stream.avail_out;
    if (status == LZMA_STREAM_END) break;
    if (status != LZMA_OK) return broken("xz");
  }
  output.resize(used);
  return output;
}

Unpacked unzstd(Bytes data, std::size_t most) {
  const std::unique_ptr<ZSTD_DCtx, std::size_t (*)(ZSTD_DCtx*)> context{ZSTD_createDCtx(), ZSTD_freeDCtx};
  if (context == nullptr) return broken("zstd");
  // Kernels are packed with windows of up to 128 MiB (zstd -22 --ultra).
  constexpr int largest_window = 27;
  ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, largest_window);
  ZSTD_inBuffer input{data.data(), data.size(), 0};
  Output output;
  std::size_t used = 0;
  for (;;) {
    if (!grow(output, used, most)) return too_large();
    ZSTD_outBuffer room{output.data() + used, output.size() - used, 0};
    const std::size_t before = input.pos;
    const std::size_t status = ZSTD_decompressStream(context.get(), &room, &input);
    used += room.pos;
    if (status == 0) break;
    if (ZSTD_isError(status) != 0 || (room.pos == 0 && input.pos == before)) return broken("zstd");
  }
  output.resize(used);
  return output;
}

/// Blocks of at most 8 MiB each, with their compressed length before them (LZ4 frame format, "Legacy frame").
Unpacked unlz4(Bytes data, std::size_t most) {
  constexpr std::size_t block = std::size_t{8} << 20;
  Output output;
  for (data = data.subspan(4); data.size() > 4;) {  // a bzImage ends in the size, 4 bytes
    std::uint32_t length = 0;
    std::memcpy(&length, data.data(), sizeof length);
    data = data.subspan(4);
    if (length > data.size() || length > LZ4_COMPRESSBOUND(block)) return broken("LZ4");
    const std::size_t used = output.size();
    output.resize(used + block);
    const int got =
        LZ4_decompress_safe(reinterpret_cast<const char*>(data.data()), reinterpret_cast<char*>(output.data() + used),
                            static_cast<int>(length), static_cast<int>(block));
    if (got < 0) return broken("LZ4");
    output.resize(used + static_cast<std::size_t>(got));
    if (output.size() > most) return too_large();
    data = data.subspan(length);
    // Only the last block is shorter.
    if (static_cast<std::size_t>(got) < block) break;
  }
  return output;
}

struct Format {
  std::array<std::uint8_t, 6> magic;
  std::size_t magic_length;
  Unpacked (*unpack)(Bytes data, std::size_t most);
};

constexpr std::array formats{
    Format{{0x1F, 0x8B}, 2, gunzip},
    Format{{0xFD, '7', 'z', 'X', 'Z', 0}, 6, unxz},
    Format{{0x28, 0xB5, 0x2F, 0xFD}, 4, unzstd},
    Format{{0x02, 0x21, 0x4C, 0x18}, 4, unlz4},
};

}  // namespace

Unpacked decompress(Bytes data, std::size_t most) {
  for (const Format& format : formats) {
    if (data.size() >= format.magic_length &&
        std::equal(format.magic.begin(), format.magic.begin() + format.magic_length, data.begin())) {
      return format.unpack(data, most);
    }
  }
  return std::unexpected{"its compression is none of LZ4, zstd, gzip and xz"};
}

}  // namespace vpmu::kvm
