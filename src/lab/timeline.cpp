#include "lab/timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace vpmu::lab {
namespace {

/// Rows of a process have thread ids of their own: viewers take an id that two processes share for one thread.
constexpr std::uint32_t ids_a_process = 100'000;
/// Viewers keep ns in 63 bits.
constexpr std::uint64_t last_time = std::uint64_t{1} << 62;

/// Decimal microseconds: exact, and digit for digit the same everywhere.
std::string microseconds(std::uint64_t ns) { return fmt::format("{}.{:03}", ns / 1000, ns % 1000); }

std::string to_json(const Timeline::Args& value) {
  return value.dump(-1, ' ', true, Timeline::Args::error_handler_t::replace);
}

}  // namespace

Timeline::Timeline(Write write, std::uint64_t max_events) : write_{std::move(write)}, events_left_{max_events} {
  write_("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[");
}

Timeline::Process Timeline::add_process(const std::string& name) {
  const std::uint32_t pid = ++processes_;
  metadata("process_name", pid, 0, {{"name", name}});
  metadata("process_sort_index", pid, 0, {{"sort_index", pid}});
  return Process{pid};
}

Timeline::Row Timeline::row(Process process, std::uint32_t place, const std::string& name) {
  const auto pid = static_cast<std::uint32_t>(process);
  const std::uint32_t tid = pid * ids_a_process + place;
  const auto [known, is_new] = by_tid_.try_emplace(tid, Row{rows_.size()});
  if (is_new) {
    rows_.push_back({.pid = pid, .tid = tid});
    metadata("thread_name", pid, tid, {{"name", name}});
    metadata("thread_sort_index", pid, tid, {{"sort_index", place}});
  }
  return known->second;
}

void Timeline::slice(Row row, std::uint64_t from, std::uint64_t to, std::string_view name, const Args& args) {
  RowState& state = rows_[static_cast<std::size_t>(row)];
  from = std::clamp(from, state.last, last_time);
  to = std::clamp(to, from, last_time);
  if (!takes(from)) return;
  state.last = to;
  open_event('X', state, from);
  line_ += ",\"dur\":" + microseconds(to - from);
  close_event(name, args);
}

void Timeline::instant(Row row, std::uint64_t at, std::string_view name, const Args& args) {
  RowState& state = rows_[static_cast<std::size_t>(row)];
  at = std::clamp(at, state.last, last_time);
  if (!takes(at)) return;
  state.last = at;
  open_event('i', state, at);
  line_ += ",\"s\":\"t\"";
  close_event(name, args);
}

void Timeline::begin(Row row, std::uint64_t at, std::string_view name, const Args& args) {
  RowState& state = rows_[static_cast<std::size_t>(row)];
  at = std::clamp(at, state.last, last_time);
  if (!takes(at)) return;
  state.last = at;
  ++state.depth;
  open_event('B', state, at);
  close_event(name, args);
}

void Timeline::end(Row row, std::uint64_t at, const Args& args) {
  RowState& state = rows_[static_cast<std::size_t>(row)];
  if (state.depth == 0) return;
  at = std::clamp(at, state.last, last_time);
  state.last = at;
  --state.depth;
  open_event('E', state, at);
  close_event({}, args);
}

void Timeline::finish(std::uint64_t at) {
  if (finished_) return;
  close_all(at);
  if (cut_at_) note("left out from", microseconds(*cut_at_) + " us on");
  finished_ = true;
  write_("\n],\"otherData\":" + to_json(notes_) + "}\n");
}

bool Timeline::takes(std::uint64_t at) {
  if (finished_ || cut_at_) return false;
  if (events_left_ != 0) {
    --events_left_;
    return true;
  }
  close_all(at);
  cut_at_ = at;
  return false;
}

void Timeline::close_all(std::uint64_t at) {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    while (rows_[i].depth != 0) end(Row{i}, at);
  }
}

void Timeline::open_event(char phase, const RowState& row, std::uint64_t at) {
  line_.clear();
  fmt::format_to(std::back_inserter(line_), "{}\n{{\"ph\":\"{}\",\"pid\":{},\"tid\":{},\"ts\":{}", first_ ? "" : ",",
                 phase, row.pid, row.tid, microseconds(at));
  first_ = false;
}

void Timeline::close_event(std::string_view name, const Args& args) {
  if (!name.empty()) line_ += ",\"name\":" + to_json(name);
  if (!args.empty()) line_ += ",\"args\":" + to_json(args);
  line_ += '}';
  write_(line_);
}

void Timeline::metadata(const char* what, std::uint32_t pid, std::uint32_t tid, const Args& args) {
  if (finished_) return;
  open_event('M', {.pid = pid, .tid = tid}, 0);
  close_event(what, args);
}

}  // namespace vpmu::lab
