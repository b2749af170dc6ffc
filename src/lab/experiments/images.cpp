#include "lab/experiments/images.hpp"

#include <array>

// Each is a file of the build, included by images.S.
#define VPMU_INCLUDED(name)             \
  extern "C" const std::uint8_t name[]; \
  extern "C" const std::uint8_t name##_end[];

VPMU_INCLUDED(vpmu_guest_exits)
VPMU_INCLUDED(vpmu_guest_multiplex)
VPMU_INCLUDED(vpmu_guest_sampling)
VPMU_INCLUDED(vpmu_guest_tick)

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

}  // namespace

std::span<const std::uint8_t> guest_image(std::string_view name) {
  for (const Image& image : images) {
    if (image.name == name) return {image.begin, image.end};
  }
  return {};
}

}  // namespace vpmu::lab
