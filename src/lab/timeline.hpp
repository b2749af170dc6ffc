// A Chrome trace ("Trace Event Format", JSON object form), as ui.perfetto.dev opens it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vpmu::lab {

/// Writes events as they come: memory grows with the rows alone. Times are ns; a row's events come in the order of
/// time, and an earlier time than the last is taken for that one.
class Timeline {
 public:
  using Write = std::function<void(std::string_view)>;
  using Args = nlohmann::ordered_json;
  static constexpr std::uint64_t default_events = 1'000'000;

  /// A process of the trace: a group of rows.
  enum class Process : std::uint32_t {};
  /// A thread of the trace.
  enum class Row : std::size_t {};

  /// `max_events` bounds the file: from the first event beyond it on, the rest of the run is left out.
  explicit Timeline(Write write, std::uint64_t max_events = default_events);

  Process add_process(const std::string& name);
  /// The row at this place, counted from 0, of the process; a new one has this name.
  Row row(Process process, std::uint32_t place, const std::string& name);

  /// What is true of the whole file.
  void note(const std::string& key, const Args& value) { notes_[key] = value; }

  void slice(Row row, std::uint64_t from, std::uint64_t to, std::string_view name, const Args& args = {});
  void instant(Row row, std::uint64_t at, std::string_view name, const Args& args = {});
  /// A slice whose end is not known yet; slices of a row nest.
  void begin(Row row, std::uint64_t at, std::string_view name, const Args& args = {});
  /// Ends the row's innermost one.
  void end(Row row, std::uint64_t at, const Args& args = {});

  /// Ends all that is open, and the file. What comes later is dropped.
  void finish(std::uint64_t at);
  /// The time from which on events are left out.
  [[nodiscard]] std::optional<std::uint64_t> cut_at() const { return cut_at_; }

 private:
  struct RowState {
    std::uint32_t pid;
    std::uint32_t tid;
    std::uint64_t last = 0;   // the end of its last event
    std::uint32_t depth = 0;  // slices open
  };

  /// Whether the event at this time is written.
  bool takes(std::uint64_t at);
  void close_all(std::uint64_t at);
  /// An event up to its args: `{"ph":"X","name":...`
  void open_event(char phase, const RowState& row, std::uint64_t at);
  void close_event(std::string_view name, const Args& args);
  void metadata(const char* what, std::uint32_t pid, std::uint32_t tid, const Args& args);

  Write write_;
  std::uint64_t events_left_;
  std::optional<std::uint64_t> cut_at_;
  bool finished_ = false;
  bool first_ = true;
  std::string line_;
  std::uint32_t processes_ = 0;
  std::vector<RowState> rows_;
  std::map<std::uint32_t, Row> by_tid_;
  Args notes_ = Args::object();
};

}  // namespace vpmu::lab
