// Guest-physical memory: sparse, bounds-checked, and aware of which of its lines hold decoded code.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "machine/soft/types.hpp"

namespace vpmu::soft {

class Memory {
 public:
  /// Sizes in MiB that a machine may have: RAM starts at 0 and ends below the APIC's and other devices' addresses.
  static constexpr u64 min_mib = 1;
  static constexpr u64 max_mib = 3072;

  /// Reserves address space for `mib` MiB (clamped to the range above); pages take host memory once touched.
  explicit Memory(u64 mib);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] u64 bytes() const { return bytes_; }
  [[nodiscard]] bool contains(u64 physical, u64 length = 1) const {
    return physical < bytes_ && length <= bytes_ - physical;
  }

  /// The host's address of a guest-physical address, which must be inside.
  [[nodiscard]] u8* at(u64 physical) { return base_ + physical; }
  [[nodiscard]] const u8* at(u64 physical) const { return base_ + physical; }

  /// Bytes outside of memory read as ones; writes to them are ignored.
  void read(u64 physical, void* out, std::size_t length) const;
  void write(u64 physical, const void* in, std::size_t length);
  [[nodiscard]] u64 read_u64(u64 physical) const;
  [[nodiscard]] u32 read_u32(u64 physical) const;

  /// Which 64-byte lines of a page hold decoded code, one bit each.
  [[nodiscard]] u64 code_lines(u64 physical) const { return code_lines_[physical / page_bytes]; }
  void set_code_lines(u64 physical, u64 lines) { code_lines_[physical / page_bytes] = lines; }
  [[nodiscard]] static u64 line_mask(u64 physical, u64 length) {
    const u64 first = (physical % page_bytes) / 64;
    const u64 last = (physical % page_bytes + length - 1) / 64;
    const u64 upto = last >= 63 ? ~u64{0} : (u64{2} << last) - 1;
    return upto & ~((u64{1} << first) - 1);
  }
  [[nodiscard]] bool holds_code(u64 physical, u64 length) const {
    return (code_lines(physical) & line_mask(physical, length)) != 0;
  }

 private:
  u8* base_ = nullptr;
  u64 bytes_ = 0;
  std::vector<u64> code_lines_;
};

}  // namespace vpmu::soft
