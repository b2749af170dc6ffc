// Snapshots made by hand, as any other program that knows the format would.
#pragma once

#include <cstddef>
#include <cstdint>

#include "vpmu/snapshot.hpp"

namespace vpmu::test {

inline constexpr std::size_t snapshot_slots_at = 16;
inline constexpr std::size_t snapshot_checksum_at = 392;

/// Puts the checksum right.
inline void seal(Snapshot& snapshot) {
  std::uint32_t crc = ~0U;
  for (std::size_t i = 0; i < snapshot_checksum_at; ++i) {
    crc ^= snapshot.bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
  }
  crc = ~crc;
  for (std::size_t i = 0; i < 4; ++i) {
    snapshot.bytes[snapshot_checksum_at + i] = static_cast<std::uint8_t>(crc >> (8 * i));
  }
}

}  // namespace vpmu::test
