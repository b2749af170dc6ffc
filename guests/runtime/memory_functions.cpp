// The functions that compilers call without being asked.
#include <cstddef>
#include <cstdint>

#include "runtime/processor.hpp"

extern "C" {

void* memcpy(void* to, const void* from, std::size_t bytes) {
  void* const start = to;
  asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
  return start;
}

void* memset(void* to, int value, std::size_t bytes) {
  void* const start = to;
  asm volatile("rep stosb" : "+D"(to), "+c"(bytes) : "a"(value) : "memory");
  return start;
}

void* memmove(void* to, const void* from, std::size_t bytes) {
  auto* target = static_cast<unsigned char*>(to);
  const auto* source = static_cast<const unsigned char*>(from);
  if (reinterpret_cast<std::uintptr_t>(target) - reinterpret_cast<std::uintptr_t>(source) >= bytes) {
    return memcpy(to, from, bytes);
  }
  while (bytes-- > 0) {
    target[bytes] = source[bytes];
    asm volatile("" : : : "memory");  // else the compiler makes this loop a call of memmove
  }
  return to;
}

int memcmp(const void* left, const void* right, std::size_t bytes) {
  const auto* a = static_cast<const unsigned char*>(left);
  const auto* b = static_cast<const unsigned char*>(right);
  for (std::size_t i = 0; i < bytes; ++i) {
    if (a[i] != b[i]) return a[i] - b[i];
  }
  return 0;
}

[[noreturn]] void abort() { vpmu::guest::stop(); }

}  // extern "C"
