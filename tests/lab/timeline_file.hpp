// A timeline's file as a viewer takes it: checks its form, and gives the events of each row.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace vpmu::test {

/// Every event of a row, with its times in ns; those that begin first come first. An instant ends where it begins.
class TimelineTrace {
 public:
  struct Event {
    std::string name;
    std::int64_t from = 0;
    std::int64_t to = 0;
    bool instant = false;
    nlohmann::json args;
  };

  explicit TimelineTrace(const std::string& text) : json_(nlohmann::json::parse(text)) {
    std::map<std::int64_t, Row> rows;
    for (const nlohmann::json& event : json_["traceEvents"]) take(event, rows);
    for (const auto& [tid, row] : rows) {
      EXPECT_TRUE(row.open.empty()) << row.name << ": " << row.open.size() << " slices have no end";
      EXPECT_TRUE(row.events.empty() || !row.name.empty()) << "a row without a name";
      events_[row.process + row.name] = row.events;
    }
  }

  [[nodiscard]] const nlohmann::json& json() const { return json_; }
  [[nodiscard]] const std::vector<Event>& of(const std::string& row) const {
    static const std::vector<Event> none;
    const auto found = events_.find(row);
    return found != events_.end() ? found->second : none;
  }
  [[nodiscard]] std::int64_t count(const std::string& row, const std::string& name = {}) const {
    return std::ranges::count_if(of(row), [&](const Event& event) { return name.empty() || event.name == name; });
  }
  /// The sum of a numeric argument over a row.
  [[nodiscard]] std::int64_t sum(const std::string& row, const char* argument) const {
    std::int64_t sum = 0;
    for (const Event& event : of(row)) sum += event.args.value(argument, std::int64_t{0});
    return sum;
  }
  /// Names of the rows whose names begin so.
  [[nodiscard]] std::vector<std::string> rows(const std::string& prefix) const {
    std::vector<std::string> names;
    for (const auto& [name, events] : events_) {
      if (name.starts_with(prefix) && !events.empty()) names.push_back(name);
    }
    return names;
  }

 private:
  struct Row {
    std::string process;  // of several: "NAME/"
    std::string name;
    std::int64_t pid = 0;
    std::int64_t last = 0;
    std::vector<std::size_t> open;
    std::vector<Event> events;
  };

  static std::int64_t ns(const nlohmann::json& microseconds) {
    EXPECT_TRUE(microseconds.is_number());
    return std::llround(microseconds.get<double>() * 1000);
  }

  void take(const nlohmann::json& event, std::map<std::int64_t, Row>& rows) {
    for (const char* key : {"ph", "ts", "pid", "tid"}) ASSERT_TRUE(event.contains(key)) << event;
    const std::string phase = event["ph"];
    const std::int64_t pid = event["pid"];
    if (phase == "M") {
      if (event["name"] == "process_name") processes_[pid] = event["args"]["name"];
      if (event["name"] == "thread_name") {
        Row& row = rows[event["tid"]];
        EXPECT_TRUE(row.name.empty()) << "two names";
        row.name = event["args"]["name"];
        row.process = processes_.size() > 1 ? processes_.at(pid) + "/" : "";
        row.pid = pid;
      }
      return;
    }
    Row& row = rows[event["tid"]];
    EXPECT_EQ(row.pid, pid) << event;
    const std::int64_t at = ns(event["ts"]);
    EXPECT_GE(at, row.last) << event;
    row.last = at;
    if (phase == "E") {
      ASSERT_FALSE(row.open.empty()) << event;
      row.events[row.open.back()].to = at;
      row.open.pop_back();
      return;
    }
    const nlohmann::json args = event.contains("args") ? event["args"] : nlohmann::json::object();
    row.events.push_back({.name = event["name"], .from = at, .to = at, .instant = phase == "i", .args = args});
    if (phase == "X") {
      row.last = row.events.back().to = at + ns(event["dur"]);
    } else if (phase == "B") {
      row.open.push_back(row.events.size() - 1);
    } else {
      EXPECT_EQ(phase, "i");
      EXPECT_EQ(event["s"], "t");
    }
  }

  nlohmann::json json_;
  std::map<std::int64_t, std::string> processes_;
  std::map<std::string, std::vector<Event>> events_;
};

}  // namespace vpmu::test
