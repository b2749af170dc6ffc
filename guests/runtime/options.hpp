// The command line: words of the form key=value.
#pragma once

#include <cstdint>

#include "runtime/print.hpp"

namespace vpmu::guest {

/// Copies the command line out of the loader's memory.
void take_command_line(const char* line);

/// The value of the last `key=value`; empty if there is none.
Text option(Text key);

/// The same as a number, decimal or 0x...; `otherwise` if there is none. A value that is no number ends the guest.
std::uint64_t option(Text key, std::uint64_t otherwise);

/// Whether the comma-separated value of `key` holds the word.
bool option_lists(Text key, Text word);

/// How often a loop runs that normally runs `normal` times: scale=N is a percentage of that, 100 by default.
std::uint64_t scaled(std::uint64_t normal, std::uint64_t at_least = 1);

}  // namespace vpmu::guest
