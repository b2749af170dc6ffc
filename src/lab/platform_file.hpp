// Platforms as JSON: what --platform takes, and what vpmu lab measure writes.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "host/model/platform.hpp"

namespace vpmu::lab {

/// {"name": .., "title": .., "vendor": "intel" or "amd", "figures": {KEY: {"value", "lo", "hi", "basis", "source"}}}.
/// A figure may be a number alone, and one that is left out is the generic platform's. Or, in one line, what is wrong.
std::expected<model::Platform, std::string> parse_platform(std::string_view text);

std::string platform_json(const model::Platform& platform);

/// "NAME, NAME, ...".
std::string platform_names();
/// "KEY, KEY, ...".
std::string platform_keys();

}  // namespace vpmu::lab
