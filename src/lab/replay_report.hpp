// A replay as tables for a person and as JSON for a program.
#pragma once

#include <string>

#include "lab/replay.hpp"

namespace vpmu::lab {

std::string replay_text(const ReplayResult& result);
std::string replay_json(const ReplayResult& result);

}  // namespace vpmu::lab
