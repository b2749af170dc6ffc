#include "lab/experiments/embedded.hpp"

#include <array>

// Each is a file of the build, included by embedded.S.
#define VPMU_INCLUDED(name)             \
  extern "C" const std::uint8_t name[]; \
  extern "C" const std::uint8_t name##_end[];

VPMU_INCLUDED(vpmu_guest_exits)
VPMU_INCLUDED(vpmu_guest_multiplex)
VPMU_INCLUDED(vpmu_guest_sampling)
VPMU_INCLUDED(vpmu_guest_tick)
VPMU_INCLUDED(vpmu_page_frame)
VPMU_INCLUDED(vpmu_page_chart)
VPMU_INCLUDED(vpmu_page_script)

namespace vpmu::lab {
namespace {

struct Image {
  std::string_view name;
  const std::uint8_t* begin;
  const std::uint8_t* end;
};
const std::array images{
    Image{"exits", vpmu_guest_exits, vpmu_guest_exits_end},
    Image{"multiplex", vpmu_guest_multiplex, vpmu_guest_multiplex_end},
    Image{"sampling", vpmu_guest_sampling, vpmu_guest_sampling_end},
    Image{"tick", vpmu_guest_tick, vpmu_guest_tick_end},
};

std::string_view text(const std::uint8_t* begin, const std::uint8_t* end) {
  return {reinterpret_cast<const char*>(begin), static_cast<std::size_t>(end - begin)};
}

}  // namespace

std::span<const std::uint8_t> guest_image(std::string_view name) {
  for (const Image& image : images) {
    if (image.name == name) return {image.begin, image.end};
  }
  return {};
}

std::string_view page_frame() { return text(vpmu_page_frame, vpmu_page_frame_end); }
std::string_view page_chart_library() { return text(vpmu_page_chart, vpmu_page_chart_end); }
std::string_view page_script() { return text(vpmu_page_script, vpmu_page_script_end); }

}  // namespace vpmu::lab
