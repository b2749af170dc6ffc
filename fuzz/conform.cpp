// Any bytes as a vector file: lines are refused or replayed, and nothing worse happens.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lab/conform.hpp"

namespace {

// Bounds on the work of one input.
constexpr int max_lines = 4;
constexpr std::uint64_t max_emulated = 4096;

std::uint64_t emulated_by(const vpmu::lab::Scenario& scenario) {
  using vpmu::lab::Batch;
  std::uint64_t events = 0;
  for (const auto& operation : scenario.operations) {
    if (operation.verb != vpmu::lab::Verb::emulated) continue;
    events += operation.batch.counts[Batch::instructions] + operation.batch.counts[Batch::branches];
  }
  return events;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view text{reinterpret_cast<const char*>(data), size};
  for (int line = 0; line < max_lines && !text.empty(); ++line) {
    const std::size_t end = text.find('\n');
    const auto scenario = vpmu::lab::parse_scenario(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!scenario || emulated_by(*scenario) > max_emulated) continue;
    for (const auto& named : vpmu::named_policies()) {
      static_cast<void>(vpmu::lab::replay_scenario(*scenario, named.policy));
    }
  }
  return 0;
}
