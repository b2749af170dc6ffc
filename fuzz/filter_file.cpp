// Any text as an event filter, for both vendors: loaded, or refused with one line.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lab/filter_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  for (const vpmu::Vendor vendor : {vpmu::Vendor::intel, vpmu::Vendor::amd}) {
    const auto filter = vpmu::lab::parse_filter(vendor, text);
    if (filter) {
      for (std::uint64_t selector = 0; selector < 0x10000; selector += 0x3F)
        static_cast<void>(filter->allows(selector));
    } else if (filter.error().empty() || filter.error().find('\n') != std::string::npos) {
      std::abort();
    }
  }
  return 0;
}
