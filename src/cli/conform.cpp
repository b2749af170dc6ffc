// vpmu conform: replays recorded vectors and compares the answers.
#include <fmt/format.h>

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"
#include "lab/conform.hpp"

namespace vpmu::cli {
namespace {

struct Options {
  std::vector<std::string> files;
  Policy policy;
  std::size_t list_failures = 10;
};

void print_listed(const char* kind, const lab::FileResult::Listed& listed, const char* expected, const char* got) {
  for (const lab::Mismatch& mismatch : listed.result.mismatches) {
    fmt::print("  {} {}: op {} {}: {} {}, {} {}{}{}\n", kind, listed.scenario, mismatch.operation, mismatch.what,
               expected, mismatch.expected, got, mismatch.got, mismatch.reason.empty() ? "" : ": ", mismatch.reason);
  }
}

void print(const std::string& file, const lab::FileResult& result) {
  std::size_t skipped = 0;
  std::string tags;
  for (const auto& [tag, count] : result.skipped) {
    tags += fmt::format("{}{} {}", tags.empty() ? " (" : ", ", count, tag);
    skipped += count;
  }
  if (!tags.empty()) tags += ')';
  fmt::print("{}: {} passed, {} expected differences, {} skipped{}, {} failed\n", file, result.passed, result.differ,
             skipped, tags, result.failed);
  for (const std::string_view rule : result.rules) fmt::print("  in all scenarios: {}\n", rule);
  for (const auto& listed : result.differences) print_listed("expected difference", listed, "recorded", "ours");
  for (const auto& listed : result.failures) print_listed("failed", listed, "expected", "got");
  if (result.failed > result.failures.size()) {
    fmt::print("  and {} more failed; --list-failures {} lists all\n", result.failed - result.failures.size(),
               result.failed);
  }
}

ExitStatus run(const Options& options) {
  ExitStatus status = ExitStatus::success;
  for (const std::string& file : options.files) {
    const auto result = lab::replay_file(file, options.policy, options.list_failures);
    if (!result) throw UseError{result.error().what};
    print(file, *result);
    if (result->failed != 0) status = ExitStatus::failed;
  }
  return status;
}

}  // namespace

void add_conform(CLI::App& app, ExitStatus& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("conform", "Replay conformance vectors and compare every answer");
  command->add_option("FILE", options->files, "Vectors: .jsonl, plain or .xz")->required();
  command->add_option("--list-failures", options->list_failures, "How many failing scenarios of a file to list")
      ->option_text("N [10]")
      ->check([](const std::string& text) {
        return text.starts_with('-') ? "a number from 0 is needed, not " + text : std::string{};
      });
  add_policy_option(*command, options->policy);
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace vpmu::cli
