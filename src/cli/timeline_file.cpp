#include "cli/timeline_file.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

#include "cli/command.hpp"

namespace vpmu::cli {

void add_timeline_options(CLI::App& command, TimelineOptions& options) {
  CLI::Option* file =
      command.add_option("--timeline", options.path, "Also write what happened when to this file, for ui.perfetto.dev");
  file->option_text("FILE");
  command
      .add_option("--timeline-events", options.events,
                  "Leave out what comes after that many events; one takes some 150 bytes")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->needs(file)
      ->capture_default_str();
}

std::unique_ptr<TimelineFile> TimelineFile::create(const TimelineOptions& options) {
  if (options.path.empty()) return nullptr;
  auto file = OutputFile::create(options.path);
  if (!file) throw UseError{file.error()};
  return std::unique_ptr<TimelineFile>{new TimelineFile{std::move(*file), options.events}};
}

TimelineFile::TimelineFile(OutputFile file, std::uint64_t events)
    : file_{std::move(file)}, timeline_{[this](std::string_view text) { file_.write(text); }, events} {}

void TimelineFile::commit() {
  if (const auto done = file_.commit(); !done) throw UseError{done.error()};
  if (const auto cut = timeline_.cut_at()) {
    fmt::print(stderr,
               "timeline: full from {:.6f} ms on: the rest is left out; --timeline-events takes a higher limit\n",
               static_cast<double>(*cut) / 1e6);
  }
}

}  // namespace vpmu::cli
