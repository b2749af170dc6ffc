// vpmu replay: what the PMU accesses of a recorded guest would cost under several policies.
#include <fmt/format.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/output_file.hpp"
#include "cli/timeline_file.hpp"
#include "host/model/platform.hpp"
#include "lab/options.hpp"
#include "lab/replay_file.hpp"
#include "lab/replay_report.hpp"

namespace vpmu::cli {
namespace {

constexpr auto interrupted = static_cast<ExitStatus>(130);

std::atomic<bool> stop_requested{false};

void on_signal(int) { stop_requested.store(true, std::memory_order_relaxed); }

/// So that files half-written go.
void catch_signals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

struct Options {
  std::string trace;
  std::string backing = "emulated";
  std::vector<std::string> policies;
  std::string profile;
  std::string platform;
  std::string json;
  std::optional<double> mhz;
  double ipc = 1.0;
  TimelineOptions timeline;
};

std::string platform_names() {
  std::string names;
  for (const model::Platform& platform : model::platforms()) names += (names.empty() ? "" : ", ") + platform.name;
  return names;
}

lab::ReplayOptions checked(const Options& options) {
  lab::ReplayOptions replay;
  constexpr std::size_t max_policies = 16;
  if (options.policies.size() > max_policies) throw UseError{fmt::format("more than {} policies", max_policies)};
  const bool mediated = options.backing == "mediated";
  if (mediated) replay.backing = lab::ReplayOptions::Backing::mediated;
  std::vector<std::string> policies = options.policies;
  if (policies.empty()) {
    policies = mediated ? std::vector<std::string>{"best,switch=write", "best,switch=elide", "best,switch=ownership"}
                        : std::vector<std::string>{"before-s0", "best"};
  }
  for (const std::string& text : policies) {
    const auto policy = lab::parse_policy(text);
    if (!policy) throw UseError{policy.error()};
    replay.policies.push_back({text, *policy});
  }
  if (!options.profile.empty()) {
    const auto profile = lab::parse_profile(options.profile);
    if (!profile) throw UseError{profile.error()};
    replay.profile = *profile;
  }
  if (!options.platform.empty()) {
    const model::Platform* platform = model::find_platform(options.platform);
    if (platform == nullptr) {
      throw UseError{fmt::format("unknown platform {}; there are: {}", options.platform, platform_names())};
    }
    replay.platform = *platform;
  }
  if (options.mhz && !(*options.mhz >= 1 && *options.mhz <= 10'000))
    throw UseError{"--mhz takes a number from 1 to 10000"};
  replay.mhz = options.mhz;
  if (!(options.ipc >= 0.001 && options.ipc <= 1)) throw UseError{"--ipc takes a number from 0.001 to 1"};
  replay.ipc = options.ipc;
  return replay;
}

ExitStatus run(const Options& options) {
  lab::ReplayOptions replay = checked(options);
  replay.stop = &stop_requested;
  catch_signals();
  // Before the work, so that a path that can't be written does not cost it.
  std::optional<OutputFile> json;
  const bool to_output = options.json == "-";
  if (!options.json.empty() && !to_output) {
    auto created = OutputFile::create(options.json);
    if (!created) throw UseError{created.error()};
    json.emplace(std::move(*created));
  }
  const std::unique_ptr<TimelineFile> timeline = TimelineFile::create(options.timeline);
  if (timeline != nullptr) replay.timeline = &timeline->timeline();
  const auto result = lab::replay_trace(options.trace, replay);
  if (!result && stop_requested) {
    fmt::print(stderr, "vpmu: interrupted; nothing was written\n");
    return interrupted;
  }
  if (!result) throw UseError{result.error()};
  if (json) {
    json->write(lab::replay_json(*result));
    if (const auto done = json->commit(); !done) throw UseError{done.error()};
  }
  if (timeline != nullptr) timeline->commit();
  fmt::print("{}", to_output ? lab::replay_json(*result) : lab::replay_text(*result));
  return ExitStatus::success;
}

}  // namespace

void add_replay(CLI::App& app, ExitStatus& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("replay", "Replay the PMU accesses of a recorded guest, and show what each policy would cost");
  command
      ->add_option("TRACE", options->trace,
                   "kvm:* events as text of ftrace, trace-cmd report or perf script, plain or .xz; - is standard input")
      ->required();
  command
      ->add_option("--policy", options->policies,
                   "May be repeated. Presets: " + lab::policy_names() + "; keys: " + lab::policy_keys())
      ->option_text("PRESET[,KEY=VALUE...] [before-s0 and best; mediated: best with each switch=]")
      ->allow_extra_args(false);
  command
      ->add_option("--backing", options->backing,
                   "emulated: on events of the host; mediated: on its counters, switched at each VM exit")
      ->check(CLI::IsMember({"emulated", "mediated"}))
      ->capture_default_str();
  command
      ->add_option("--profile", options->profile,
                   "The guest's PMU. Names: " + lab::profile_names() + "; keys: " + lab::profile_keys())
      ->option_text("NAME[,KEY=VALUE...] [from the guest's CPUID in the trace, else intel-v2]");
  command->add_option("--platform", options->platform, "Whose costs to model: " + platform_names())
      ->option_text("NAME [generic]");
  command->add_option("--mhz", options->mhz, "The guest's clock, which makes cycles of the time between timestamps")
      ->option_text("NUMBER [the platform's]");
  command->add_option("--ipc", options->ipc, "Instructions that the guest retires a cycle")->option_text("NUMBER [1]");
  command
      ->add_option("--json", options->json,
                   "Also write the results as JSON; - is standard output, in place of the tables")
      ->option_text("FILE");
  add_timeline_options(*command, options->timeline);
  command->callback([options, &status] { status = run(*options); });
}

}  // namespace vpmu::cli
