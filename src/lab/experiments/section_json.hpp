// Parts of sections as JSON values, for the reports.
#pragma once

#include <nlohmann/json.hpp>

#include "lab/experiments/section.hpp"

namespace vpmu::lab {

using Json = nlohmann::ordered_json;

Json to_json(const Cell& cell);
Json to_json(const Chart& chart);

}  // namespace vpmu::lab
