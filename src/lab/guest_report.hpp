// A guest's run as a table for a person and as JSON for a program.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "lab/guest_run.hpp"

namespace vpmu::lab {

/// What only a clock on the wall can tell.
struct WallFigures {
  double seconds = 0;
};

/// The last line holds all that differs from run to run.
std::string guest_text(const GuestOptions& options, const GuestResult& result, const WallFigures& wall);
/// All that differs from run to run stands under `wall`.
std::string guest_json(const GuestOptions& options, const GuestResult& result, const WallFigures& wall);

/// What a guest and its PMU did, and what that costs the modelled host: no wall-clock figures.
nlohmann::ordered_json work_json(const GuestResult& result);

/// How a run ended, in one line.
std::string ending(const GuestResult& result);

}  // namespace vpmu::lab
