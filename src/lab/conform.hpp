// Conformance: replays recorded scenarios against a virtual PMU and compares its answers.
#pragma once

#include <cstddef>
#include <expected>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/conform_scenario.hpp"
#include "vpmu/policy.hpp"

namespace vpmu::lab {

/// An answer that differs from the one expected.
struct Mismatch {
  std::size_t operation = 0;
  std::string what;  // the operation, in one line
  std::string expected;
  std::string got;
  std::string_view reason;  // of an expected difference
};

/// What became of one scenario.
struct ScenarioResult {
  enum class Outcome : std::uint8_t {
    passed,
    passed_but_differs,  // nothing but its expected differences
    skipped,
    failed,
  };
  Outcome outcome = Outcome::passed;
  std::string skipped_as;
  /// failed: the first one. passed_but_differs: all, `expected` being the recorded answer.
  std::vector<Mismatch> mismatches;
};

/// What became of the scenarios of one file.
struct FileResult {
  std::size_t passed = 0;
  std::size_t differ = 0;
  std::size_t failed = 0;
  std::map<std::string, std::size_t> skipped;  // by tag

  struct Listed {
    std::string scenario;
    ScenarioResult result;
  };
  std::vector<Listed> differences;
  std::vector<Listed> failures;
  /// Differences that all scenarios of the file have, one line each.
  std::span<const std::string_view> rules;
};

/// Bad input: one line that names the file, the line if there is one, and what is wrong.
struct InputError {
  std::string what;
};

ScenarioResult replay_scenario(const Scenario& scenario, const Policy& policy);

/// Replays a file, keeping at most `max_failures` failures.
std::expected<FileResult, InputError> replay_file(const std::string& path, const Policy& policy,
                                                  std::size_t max_failures);

}  // namespace vpmu::lab
