// The compressions of a bzImage's payload, each by its library.
#pragma once

#include <cstdint>
#include <expected>
#include <span>
#include <string>
#include <vector>

namespace vpmu::kvm {

/// What gzip, xz, zstd or LZ4's legacy format (the four are told apart by their magic numbers) holds, or what is wrong.
/// Bytes behind its end are ignored. At most `most` bytes come out.
std::expected<std::vector<std::uint8_t>, std::string> decompress(std::span<const std::uint8_t> data, std::size_t most);

}  // namespace vpmu::kvm
