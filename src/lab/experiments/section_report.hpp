// Sections as tables for a terminal, and as JSON.
#pragma once

#include <span>
#include <string>

#include "lab/experiments/section.hpp"

namespace vpmu::lab {

enum class Colour : std::uint8_t { no, yes };

std::string table_text(const Table& table, Colour colour);
std::string section_text(const Section& section, Colour colour);

/// {"experiments": {KEY: {..., "tables": {KEY: [{"policy": .., "modelled": {..}, "measured": {..}, ..}]}}}}. All that
/// differs from run to run stands under "measured", and "charts" of that origin.
std::string sections_json(std::span<const Section> sections);

/// One page that needs nothing else, and asks for nothing.
std::string sections_page(std::span<const Section> sections);

}  // namespace vpmu::lab
