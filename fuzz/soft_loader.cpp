// Any bytes as a multiboot image: loaded or refused with a line that says why, never a crash.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "machine/soft/multiboot.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  vpmu::soft::Memory memory(4);
  const auto loaded = vpmu::soft::load_multiboot(memory, {data, size}, "fuzz scale=1");
  if (loaded.ok() == !loaded.error.empty()) std::abort();
  return 0;
}
