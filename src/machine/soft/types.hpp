// Short integer names, for a room that does little but shuffle integers of known width.
#pragma once

#include <cstdint>
#include <type_traits>

namespace vpmu::soft {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s64 = std::int64_t;

inline constexpr u64 page_bytes = 4096;
inline constexpr u64 page_mask = ~(page_bytes - 1);

/// The value sign-extended from its own width to 64 bits.
template <class T>
constexpr u64 sign_extend(T value) {
  return static_cast<u64>(static_cast<s64>(static_cast<std::make_signed_t<T>>(value)));
}

/// The low `bytes` bytes of `value`, zero-extended.
constexpr u64 truncate(u64 value, unsigned bytes) { return bytes >= 8 ? value : value & ((u64{1} << (bytes * 8)) - 1); }

/// The low `bytes` bytes of `value`, sign-extended.
constexpr u64 sign_extend(u64 value, unsigned bytes) {
  const unsigned shift = 64 - bytes * 8;
  return static_cast<u64>(static_cast<s64>(value << shift) >> shift);
}

constexpr bool is_canonical(u64 address) { return static_cast<u64>(static_cast<s64>(address << 16) >> 16) == address; }

}  // namespace vpmu::soft
