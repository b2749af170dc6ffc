// The timeline's file: well-formed whatever is written, and bounded.
#include "lab/timeline.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "lab/timeline_file.hpp"

namespace vpmu::lab {
namespace {

using nlohmann::json;
using test::TimelineTrace;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class TimelineWriter : public testing::Test {
 protected:
  Timeline make(std::uint64_t max_events) {
    return Timeline{[this](std::string_view text) { text_ += text; }, max_events};
  }

  std::string text_;
  Timeline timeline_ = make(1000);
  Timeline::Process process_ = timeline_.add_process("guest");
  Timeline::Row row_ = timeline_.row(process_, 0, "row");
};

TEST_F(TimelineWriter, writes_exact_decimal_microseconds) {
  timeline_.slice(row_, 1'234'567'890'123'456'789, 1'234'567'890'123'456'790, "slice");
  timeline_.finish(0);
  EXPECT_THAT(text_, HasSubstr("\"ts\":1234567890123456.789,\"dur\":0.001,\"name\":\"slice\""));
}

TEST_F(TimelineWriter, names_processes_and_rows_and_sorts_them_by_their_places) {
  const Timeline::Row second = timeline_.row(process_, 7, "second");
  EXPECT_EQ(timeline_.row(process_, 7, "second"), second);
  const Timeline::Process other = timeline_.add_process("other guest");
  static_cast<void>(timeline_.row(other, 0, "row"));
  timeline_.finish(0);
  const json trace = json::parse(text_);
  EXPECT_EQ(trace["displayTimeUnit"], "ns");
  std::vector<std::string> named;
  std::vector<json> tids;
  for (const json& event : trace["traceEvents"]) {
    EXPECT_EQ(event["ph"], "M");
    if (event["name"] == "process_name") named.push_back(event["args"]["name"]);
    if (event["name"] == "thread_name") {
      named.push_back(event["args"]["name"]);
      tids.push_back(event["tid"]);
    }
  }
  EXPECT_THAT(named, ElementsAre("guest", "row", "second", "other guest", "row"));
  EXPECT_NE(tids.front(), tids.back());
}

TEST_F(TimelineWriter, escapes_names_and_keeps_bytes_that_are_no_text_out) {
  timeline_.instant(row_, 1, "a \"quoted\"\n\\ name \xFF", {{"key\"", "value\x01"}});
  timeline_.finish(2);
  const json event = json::parse(text_)["traceEvents"].back();
  EXPECT_EQ(event["name"], "a \"quoted\"\n\\ name \xEF\xBF\xBD");
  EXPECT_EQ(event["args"]["key\""], "value\x01");
}

TEST_F(TimelineWriter, closes_what_is_open_at_the_end) {
  timeline_.begin(row_, 10, "outer");
  timeline_.begin(row_, 20, "inner");
  timeline_.end(timeline_.row(process_, 1, "never opened"), 25);
  timeline_.finish(30);
  timeline_.instant(row_, 40, "late");
  const TimelineTrace trace{text_};
  EXPECT_EQ(trace.count("row"), 2);
  EXPECT_EQ(trace.of("row").front().name, "outer");
  EXPECT_EQ(trace.of("row").front().to, 30);
  EXPECT_EQ(trace.count("never opened"), 0);
}

TEST_F(TimelineWriter, takes_times_that_go_back_for_the_last) {
  timeline_.slice(row_, 100, 200, "first");
  timeline_.slice(row_, 150, 120, "second");
  timeline_.instant(row_, 0, "third");
  timeline_.slice(row_, std::numeric_limits<std::uint64_t>::max(), 0, "far");
  timeline_.finish(0);
  const TimelineTrace trace{text_};
  ASSERT_EQ(trace.count("row"), 4);
  EXPECT_EQ(trace.of("row")[1].from, 200);
  EXPECT_EQ(trace.of("row")[1].to, 200);
  EXPECT_EQ(trace.of("row")[2].from, 200);
}

TEST_F(TimelineWriter, leaves_out_what_comes_after_its_limit_and_says_from_when_on) {
  text_.clear();
  Timeline timeline = make(3);
  const Timeline::Process process = timeline.add_process("guest");
  const Timeline::Row window = timeline.row(process, 0, "window");
  const Timeline::Row exits = timeline.row(process, 1, "exits");
  timeline.begin(window, 5, "open");
  timeline.slice(exits, 10, 20, "first");
  EXPECT_EQ(timeline.cut_at(), std::nullopt);
  timeline.slice(exits, 20, 30, "second");
  timeline.slice(exits, 1030, 1040, "third");
  timeline.end(window, 2000);
  timeline.begin(window, 3000, "another");
  timeline.finish(4000);
  EXPECT_EQ(timeline.cut_at(), 1030);
  const TimelineTrace trace{text_};
  EXPECT_EQ(trace.count("exits"), 2);
  ASSERT_EQ(trace.count("window"), 1);
  EXPECT_EQ(trace.of("window").front().to, 1030);
  EXPECT_THAT(text_, HasSubstr("1.030 us on"));
  EXPECT_THAT(text_, Not(HasSubstr("third")));
}

}  // namespace
}  // namespace vpmu::lab
