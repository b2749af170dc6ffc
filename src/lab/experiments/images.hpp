// The guests that the experiments run, as built: part of the program, so that it can be copied anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace vpmu::lab {

/// The multiboot image of a guest: exits, multiplex, sampling or tick; empty if there is none of that name.
std::span<const std::uint8_t> guest_image(std::string_view name);

}  // namespace vpmu::lab
