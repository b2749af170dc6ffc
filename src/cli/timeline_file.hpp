// --timeline FILE: what happened when, for ui.perfetto.dev.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "cli/output_file.hpp"
#include "lab/timeline.hpp"

namespace vpmu::cli {

struct TimelineOptions {
  std::string path;  // empty: none is wanted
  std::uint64_t events = lab::Timeline::default_events;
};
void add_timeline_options(CLI::App& command, TimelineOptions& options);

/// A timeline on its way to its file. Uncommitted, it leaves nothing behind.
class TimelineFile {
 public:
  /// A null pointer if none is wanted. Throws UseError if the file cannot be written.
  static std::unique_ptr<TimelineFile> create(const TimelineOptions& options);

  [[nodiscard]] lab::Timeline& timeline() { return timeline_; }
  /// After Timeline::finish(). Throws UseError if the file could not be written; says on standard error if it is not
  /// all of the run.
  void commit();

 private:
  TimelineFile(OutputFile file, std::uint64_t events);

  OutputFile file_;
  lab::Timeline timeline_;
};

}  // namespace vpmu::cli
