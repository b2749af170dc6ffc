// Replays a trace from a file.
#pragma once

#include <expected>
#include <string>

#include "lab/replay.hpp"

namespace vpmu::lab {

/// Replays a file, or standard input if `path` is "-". The error is one line that names the file and, if it has one,
/// the line.
std::expected<ReplayResult, std::string> replay_trace(const std::string& path, const ReplayOptions& options);

}  // namespace vpmu::lab
