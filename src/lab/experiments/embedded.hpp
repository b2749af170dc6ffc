// Files of the build that are part of the program, so that it can be copied anywhere.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace vpmu::lab {

/// The multiboot image of a guest: exits, multiplex, sampling or tick; empty if there is none of that name.
std::span<const std::uint8_t> guest_image(std::string_view name);

/// The parts of the page: its frame with @DATA@, @CHART@ and @SCRIPT@ where they go; Chart.js; the script that draws.
std::string_view page_frame();
std::string_view page_chart_library();
std::string_view page_script();

}  // namespace vpmu::lab
