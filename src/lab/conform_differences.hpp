// Where vpmu answers differently from the recorded vectors, on purpose.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "lab/conform_scenario.hpp"

namespace vpmu::lab {

/// One operation of one scenario.
struct ExpectedDifference {
  std::string_view scenario;
  std::size_t operation;
  Verb verb;
  std::uint32_t index;
  std::uint64_t value;
  Answer recorded;
  Answer ours;
  std::string_view reason = "the recorded peer stops at perfmon v2";
};

/// Those of this scenario; none if it is not exactly the one that they were written for.
std::span<const ExpectedDifference> expected_differences(const Scenario& scenario);

}  // namespace vpmu::lab
