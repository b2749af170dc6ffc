// vpmu lab: the published experiments, before and after.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.hpp"
#include "cli/output_file.hpp"
#include "host/model/platform.hpp"
#include "lab/experiments/experiment.hpp"
#include "lab/experiments/measure_platform.hpp"
#include "lab/experiments/section_report.hpp"
#include "lab/platform_file.hpp"

namespace vpmu::cli {
namespace {

constexpr auto interrupted = static_cast<ExitStatus>(130);

struct Options {
  std::vector<std::string> experiments;
  std::string platform;
  std::string json;
  std::string html;
  bool no_measure = false;
  unsigned threads = 2;
  unsigned ticks = 10'000;
};

std::atomic<bool> stop_requested{false};

void on_signal(int) { stop_requested.store(true, std::memory_order_relaxed); }

/// One line on standard error that says how far things are, if somebody is there to see it.
class ProgressLine {
 public:
  void show(const std::string& what, unsigned done, unsigned of) {
    if (!on_) return;
    const std::scoped_lock lock{mutex_};
    fmt::print(stderr, "\r{}: {} of {}\x1b[K", what, done, of);
  }
  void clear() const {
    if (on_) fmt::print(stderr, "\r\x1b[K");
  }

 private:
  bool on_ = ::isatty(STDERR_FILENO) != 0;
  std::mutex mutex_;
};

std::vector<const lab::Experiment*> chosen(const std::vector<std::string>& names) {
  std::vector<const lab::Experiment*> list;
  for (const lab::Experiment& experiment : lab::experiments()) {
    if (names.empty()) list.push_back(&experiment);
  }
  for (const std::string& name : names) {
    const lab::Experiment* experiment = lab::find_experiment(name);
    if (experiment == nullptr) {
      throw UseError{fmt::format("unknown experiment {}; there are: {}", name, lab::experiment_names())};
    }
    if (std::ranges::find(list, experiment) == list.end()) list.push_back(experiment);
  }
  return list;
}

/// A platform by its name, or from a file.
model::Platform platform_of(const std::string& text) {
  if (const model::Platform* named = model::find_platform(text)) return *named;
  if (!text.ends_with(".json") && text.find('/') == std::string::npos) {
    throw UseError{fmt::format("unknown platform {}; a file's name ends in .json, and there are: {}", text,
                               lab::platform_names())};
  }
  std::ifstream file{text};
  std::ostringstream content;
  if (!file || !(content << file.rdbuf())) throw UseError{fmt::format("cannot read {}: does it exist?", text)};
  const auto platform = lab::parse_platform(content.str());
  if (!platform) throw UseError{fmt::format("{}: {}", text, platform.error())};
  return *platform;
}

std::optional<OutputFile> create(const std::string& path) {
  if (path.empty()) return std::nullopt;
  auto created = OutputFile::create(path);
  if (!created) throw UseError{created.error()};
  return std::move(*created);
}

void finish(std::optional<OutputFile>& file, const std::string& text) {
  if (!file) return;
  file->write(text);
  if (const auto done = file->commit(); !done) throw UseError{done.error()};
}

void catch_signals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

ExitStatus say_interrupted() {
  fmt::print(stderr, "vpmu: interrupted; nothing was written\n");
  return interrupted;
}

ExitStatus measure(const std::string& path) {
  std::optional<OutputFile> json = create(path);
  catch_signals();
  try {
    const lab::MeasuredPlatform measured = lab::measure_platform(stop_requested);
    if (!measured.not_measured.empty()) {
      fmt::print(stderr, "vpmu: host calls are not measured, and stay those of generic: {}\n", measured.not_measured);
    }
    const std::string text = lab::platform_json(measured.platform);
    if (json) {
      finish(json, text);
    } else {
      fmt::print("{}", text);
    }
  } catch (const lab::Interrupted&) {
    return say_interrupted();
  }
  return ExitStatus::success;
}

ExitStatus run(const Options& options) {
  const std::vector<const lab::Experiment*> experiments = chosen(options.experiments);
  lab::LabOptions lab_options;
  lab_options.threads = options.threads;
  lab_options.ticks = options.ticks;
  if (options.no_measure) lab_options.measure = lab::LabOptions::Measure::no;
  if (!options.platform.empty()) lab_options.platform = platform_of(options.platform);
  std::optional<OutputFile> json = create(options.json);
  std::optional<OutputFile> html = create(options.html);
  catch_signals();
  ProgressLine progress;
  std::vector<lab::Section> sections;
  try {
    sections = lab::run_lab(
        experiments, lab_options, stop_requested,
        [&progress](const std::string& what, unsigned done, unsigned of) { progress.show(what, done, of); });
  } catch (const lab::Interrupted&) {
    progress.clear();
    return say_interrupted();
  } catch (const lab::LabError& error) {
    progress.clear();
    fmt::print(stderr, "vpmu: the lab failed: {}\n", error.what());
    return ExitStatus::failed;
  }
  progress.clear();
  finish(json, lab::sections_json(sections));
  finish(html, lab::sections_page(sections));
  const lab::Colour colour = ::isatty(STDOUT_FILENO) != 0 ? lab::Colour::yes : lab::Colour::no;
  for (const lab::Section& section : sections) fmt::print("{}", lab::section_text(section, colour));
  if (sections.size() > 1) fmt::print("{}", lab::table_text(lab::headlines(sections), colour));
  if (html) fmt::print("\nThe page: {}\n", options.html);
  return ExitStatus::success;
}

}  // namespace

void add_lab(CLI::App& app, ExitStatus& status) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("lab", "Run the published experiments, before and after");
  command->footer(
      "Modelled figures are the same on each run and machine; measured ones are this machine's.\n"
      "Exit status: 0, 1 a guest failed, 2 bad usage, 130 interrupted.");
  command->add_option("experiment", options->experiments, "Of: " + lab::experiment_names() + "; without it, all");
  command->add_option("--platform", options->platform,
                      "Whose costs are modelled: a name, or a JSON file; without it, each publication's machine");
  command->add_option("--json", options->json, "Also write all figures to this file");
  command->add_option("--html", options->html, "Also write one page with charts to this file");
  command->add_flag("--no-measure", options->no_measure, "Leave out what is measured on this machine");
  constexpr unsigned most_threads = 256;
  command->add_option("--threads", options->threads, "Guests at a time")
      ->check(CLI::Range(1U, most_threads))
      ->capture_default_str();
  constexpr unsigned most_ticks = 1'000'000;
  command->add_option("--ticks", options->ticks, "Ticks of the guest of experiment tick, for each T")
      ->check(CLI::Range(1U, most_ticks))
      ->capture_default_str();
  auto measured = std::make_shared<std::string>();
  CLI::App* measuring = command->add_subcommand("measure", "Write this machine as a platform");
  measuring->add_option("--json", *measured, "To this file; without it, to standard output");
  measuring->callback([measured, &status] { status = measure(*measured); });
  command->callback([command, options, &status] {
    if (command->get_subcommands().empty()) status = run(*options);
  });
}

}  // namespace vpmu::cli
