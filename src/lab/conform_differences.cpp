#include "lab/conform_differences.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace vpmu::lab {
namespace {

constexpr Answer gp{Answer::Kind::gp};
constexpr Answer value(std::uint64_t number) { return {Answer::Kind::value, number}; }

// The vectors' peer stops at the registers of perfmon v2. A guest of v4 and later has 0x391 and 0x392 and the status
// bits 55 and 58 to 60 (SDM volume 3, "Architectural Performance Monitoring Version 4"). Ordered by scenario.
constexpr std::array differences{
    ExpectedDifference{"random/121", 131, Verb::rdmsr, 0x391, 0, gp, value(0)},
    ExpectedDifference{"random/55", 18, Verb::rdmsr, 0x391, 0, gp, value(0)},
};

}  // namespace

std::span<const ExpectedDifference> expected_differences(const Scenario& scenario) {
  if (scenario.mediated || !scenario.profile.is_intel()) return {};
  const auto ours = std::ranges::equal_range(differences, std::string_view{scenario.name}, {},
                                             [](const auto& row) { return std::string_view{row.scenario}; });
  const bool all_there = std::ranges::all_of(ours, [&](const ExpectedDifference& row) {
    if (row.operation >= scenario.operations.size()) return false;
    const Operation& operation = scenario.operations[row.operation];
    return operation.verb == row.verb && operation.index == row.index && operation.value == row.value &&
           operation.answer == row.recorded;
  });
  if (!all_there) return {};
  return ours;
}

}  // namespace vpmu::lab
