// The slices of a sweep, joined.
#pragma once

#include <expected>
#include <string>
#include <vector>

namespace vpmu::lab {

/// Joins files of lines, as slices of one sweep wrote them: all points in order, as if one machine had run them. "-" is
/// standard input. Or, in one line, what is wrong: a file that cannot be read, a line that is no point, points of
/// another sweep, twice, or missing.
std::expected<std::string, std::string> merge_sweep(const std::vector<std::string>& paths);

}  // namespace vpmu::lab
