// KVM's structures with variable length, as C sees them.
//
// <linux/kvm.h> ends them in a flexible array that has another size in C++, and the size is part of the ioctl's number:
// by its macros the kernel would not know the request.
#pragma once

#include <linux/kvm.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace vpmu::kvm::abi {

/// struct kvm_cpuid2 with room for entries.
struct Cpuid {
  static constexpr std::size_t most = 256;
  std::uint32_t count = 0;
  std::uint32_t padding = 0;
  std::array<kvm_cpuid_entry2, most> entries{};
};

inline constexpr std::size_t cpuid_header = 8;
constexpr unsigned long request(unsigned direction, unsigned number, std::size_t size) {
  return static_cast<unsigned long>(direction) << 30 | size << 16 | static_cast<unsigned long>(KVMIO) << 8 | number;
}
inline constexpr unsigned writes = 1;
inline constexpr unsigned reads = 2;
inline constexpr unsigned long get_supported_cpuid = request(reads | writes, 0x05, cpuid_header);
inline constexpr unsigned long set_cpuid2 = request(writes, 0x90, cpuid_header);
static_assert(get_supported_cpuid == 0xC008AE05);
static_assert(set_cpuid2 == 0x4008AE90);
static_assert(sizeof(kvm_cpuid_entry2) == 40 && offsetof(Cpuid, entries) == cpuid_header);

// These have no array at their end.
static_assert(KVM_X86_SET_MSR_FILTER == 0x4188AEC6);
static_assert(KVM_ENABLE_CAP == 0x4068AEA3);

}  // namespace vpmu::kvm::abi
