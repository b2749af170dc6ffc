// Any bytes as a Linux kernel: loaded or refused with a line that says why, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "machine/kvm/linux_boot.hpp"
#include "vpmu/kvm.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto image = vpmu::kvm::read_linux({data, size});
  if (!image) {
    if (image.error().empty()) std::abort();
    return 0;
  }
  vpmu::soft::Memory memory(32);
  const auto loaded = vpmu::kvm::load_linux(memory, *image, {});
  if (!loaded && loaded.error().empty()) std::abort();
  static_cast<void>(vpmu::kvm::patch_rdpmc(vpmu::kvm::find_rdpmc(image->vmlinux), {memory.at(0), memory.bytes()}));
  return 0;
}
