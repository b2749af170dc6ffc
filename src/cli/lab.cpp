// vpmu lab: the published experiments, before and after.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <expected>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "cli/command.hpp"
#include "cli/output_file.hpp"
#include "host/model/platform.hpp"
#include "lab/experiments/experiment.hpp"
#include "lab/experiments/measure_platform.hpp"
#include "lab/experiments/section_report.hpp"
#include "lab/experiments/sweep.hpp"
#include "lab/experiments/sweep_merge.hpp"
#include "lab/experiments/sweep_run.hpp"
#include "lab/platform_file.hpp"

namespace vpmu::cli {
namespace {

constexpr auto interrupted = static_cast<ExitStatus>(130);

struct Options {
  std::vector<std::string> experiments;
  std::optional<std::string> platform;
  std::optional<std::string> json;
  std::optional<std::string> html;
  std::vector<std::string> sweeps;
  std::optional<std::string> point;
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

lab::Colour colour_of_output() { return ::isatty(STDOUT_FILENO) != 0 ? lab::Colour::yes : lab::Colour::no; }

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

/// Takes a value out of what was parsed.
template <class Value>
Value known(std::expected<Value, std::string> parsed) {
  if (!parsed) throw UseError{parsed.error()};
  return std::move(*parsed);
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

std::optional<OutputFile> create(const std::optional<std::string>& path) {
  if (!path) return std::nullopt;
  auto created = OutputFile::create(*path);
  if (!created) throw UseError{created.error()};
  return std::move(*created);
}

void finish(std::optional<OutputFile>& file, const std::string& text) {
  if (!file) return;
  file->write(text);
  if (const auto done = file->commit(); !done) throw UseError{done.error()};
}

/// To the file if there is one, else to standard output.
void put(std::optional<OutputFile>& file, const std::string& text) {
  if (file) {
    finish(file, text);
  } else {
    fmt::print("{}", text);
  }
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

ExitStatus measure(const std::optional<std::string>& path) {
  std::optional<OutputFile> json = create(path);
  catch_signals();
  try {
    const lab::MeasuredPlatform measured = lab::measure_platform(stop_requested);
    if (!measured.not_measured.empty()) {
      fmt::print(stderr, "vpmu: host calls are not measured, and stay those of generic: {}\n", measured.not_measured);
    }
    put(json, lab::platform_json(measured.platform));
  } catch (const lab::Interrupted&) {
    return say_interrupted();
  }
  return ExitStatus::success;
}

ExitStatus merge(const std::vector<std::string>& paths, const std::optional<std::string>& path) {
  // Read first: a signal while it waits for standard input leaves no file behind.
  const std::string merged = known(lab::merge_sweep(paths));
  std::optional<OutputFile> json = create(path);
  put(json, merged);
  return ExitStatus::success;
}

ExitStatus sweep(const Options& options, const lab::LabOptions& lab_options,
                 const std::vector<const lab::Experiment*>& experiments) {
  std::vector<lab::SweepKey> keys;
  keys.reserve(options.sweeps.size());
  for (const std::string& text : options.sweeps) keys.push_back(known(lab::parse_sweep_key(text)));
  const lab::Slice slice = !options.point ? lab::Slice{} : known(lab::parse_slice(*options.point));
  const auto sweep = known(lab::Sweep::create(experiments, std::move(keys), lab_options));
  std::optional<OutputFile> json = create(options.json);
  catch_signals();
  ProgressLine progress;
  std::vector<lab::SweepResult> results;
  try {
    results = lab::run_sweep(sweep, slice, options.threads, stop_requested,
                             [&progress](unsigned done, unsigned of) { progress.show("points", done, of); });
  } catch (const lab::Interrupted&) {
    progress.clear();
    return say_interrupted();
  }
  progress.clear();
  std::string lines;
  for (const lab::SweepResult& result : results) lines += result.line;
  put(json, lines);
  if (options.json) {
    constexpr std::size_t rows = 50;
    for (const lab::Table& table : lab::sweep_tables(sweep, results, rows)) {
      fmt::print("{}", lab::table_text(table, colour_of_output()));
    }
    if (results.size() > rows) fmt::print("... and {} more points in {}\n", results.size() - rows, *options.json);
  }
  const auto failed = std::ranges::count_if(results, [](const auto& result) { return result.figures.empty(); });
  if (failed == 0) return ExitStatus::success;
  fmt::print(stderr, "vpmu: a guest failed at {} of {} points: see \"failed\" in their lines\n", failed,
             results.size());
  return ExitStatus::failed;
}

ExitStatus run(const Options& options) {
  const std::vector<const lab::Experiment*> experiments = chosen(options.experiments);
  lab::LabOptions lab_options;
  lab_options.threads = options.threads;
  lab_options.ticks = options.ticks;
  if (options.no_measure) lab_options.measure = lab::LabOptions::Measure::no;
  if (options.platform) lab_options.platform = platform_of(*options.platform);
  if (!options.sweeps.empty()) return sweep(options, lab_options, experiments);
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
  const lab::Colour colour = colour_of_output();
  for (const lab::Section& section : sections) fmt::print("{}", lab::section_text(section, colour));
  if (sections.size() > 1) fmt::print("{}", lab::table_text(lab::headlines(sections), colour));
  if (options.html) fmt::print("\nThe page: {}\n", *options.html);
  return ExitStatus::success;
}

/// merge and measure have nothing to do with what else `lab` takes.
void refuse_arguments(const CLI::App& lab, const CLI::App& subcommand) {
  for (const CLI::Option* option : lab.get_options()) {
    if (option->count() == 0) continue;
    throw UseError{
        fmt::format("vpmu lab {} runs no experiment: leave {} out", subcommand.get_name(), option->get_name())};
  }
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
  CLI::Option* html = command->add_option("--html", options->html, "Also write one page with charts to this file");
  command->add_flag("--no-measure", options->no_measure, "Leave out what is measured on this machine");
  constexpr unsigned most_threads = 256;
  command->add_option("--threads", options->threads, "Guests at a time")
      ->check(CLI::Range(1U, most_threads))
      ->capture_default_str();
  constexpr unsigned most_ticks = 1'000'000;
  command->add_option("--ticks", options->ticks, "Ticks of the guest of experiment tick, for each T")
      ->check(CLI::Range(1U, most_ticks))
      ->capture_default_str();
  CLI::Option* sweep =
      command
          ->add_option("--sweep", options->sweeps,
                       "A point for each value of a platform, profile or policy key; several make all combinations. "
                       "Nothing is measured. A line of JSON a point, to standard output or --json's file")
          ->option_text("KEY=A,B,...")
          ->allow_extra_args(false)
          ->excludes(html);
  command->add_option("--point", options->point, "Of a sweep: points I, I + N, I + 2 N, ... alone")
      ->option_text("I/N")
      ->needs(sweep);
  auto files = std::make_shared<std::vector<std::string>>();
  auto merged = std::make_shared<std::optional<std::string>>();
  CLI::App* merging = command->add_subcommand("merge", "Join the slices of a sweep: as if one machine had run it");
  merging->add_option("file", *files, "What --sweep with --point wrote; - is standard input")->required();
  merging->add_option("--json", *merged, "To this file; without it, to standard output");
  merging->callback([command, merging, files, merged, &status] {
    refuse_arguments(*command, *merging);
    status = merge(*files, *merged);
  });
  auto measured = std::make_shared<std::optional<std::string>>();
  CLI::App* measuring = command->add_subcommand("measure", "Write this machine as a platform");
  measuring->add_option("--json", *measured, "To this file; without it, to standard output");
  measuring->callback([command, measuring, measured, &status] {
    refuse_arguments(*command, *measuring);
    status = measure(*measured);
  });
  command->callback([command, options, &status] {
    if (command->get_subcommands().empty()) status = run(*options);
  });
}

}  // namespace vpmu::cli
