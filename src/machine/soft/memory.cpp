#include "machine/soft/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace vpmu::soft {

Memory::Memory(u64 mib) : bytes_(std::clamp(mib, min_mib, max_mib) << 20) {
  void* mapping = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) throw std::bad_alloc();
  base_ = static_cast<u8*>(mapping);
  code_lines_.resize(bytes_ / page_bytes);
}

Memory::~Memory() { munmap(base_, bytes_); }

void Memory::read(u64 physical, void* out, std::size_t length) const {
  if (contains(physical, length)) {
    std::memcpy(out, at(physical), length);
    return;
  }
  std::memset(out, 0xff, length);
  if (physical < bytes_) std::memcpy(out, at(physical), bytes_ - physical);
}

void Memory::write(u64 physical, const void* in, std::size_t length) {
  if (physical >= bytes_ || length == 0) return;  // nothing may come from nowhere: `in` can be null
  std::memcpy(at(physical), in, std::min<u64>(length, bytes_ - physical));
}

u64 Memory::read_u64(u64 physical) const {
  u64 value;
  read(physical, &value, sizeof value);
  return value;
}

u32 Memory::read_u32(u64 physical) const {
  u32 value;
  read(physical, &value, sizeof value);
  return value;
}

}  // namespace vpmu::soft
