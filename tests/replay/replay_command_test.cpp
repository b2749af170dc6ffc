// vpmu replay as its user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/run_command.hpp"
#include "replay/trace_builder.hpp"

namespace vpmu {
namespace {

using test::CommandResult;
using test::read_file;
using test::run;
using test::TemporaryDirectory;
using test::TraceBuilder;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string recorded = VPMU_TRACES "/linux-6.1-guest-intel-v2.trace.xz";

CommandResult replay(const std::string& arguments) { return run(VPMU_COMMAND " replay " + arguments); }

/// One line on standard error, nothing on standard output, exit status 2.
void expect_refused(const CommandResult& result, const std::string& expected) {
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("vpmu: "));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(expected));
}

std::string small_trace() {
  TraceBuilder trace;
  return trace.entry().write(0x186, 0x53003C).write(0x38F, 1).wait_us(100).write(0x38F, 0).text();
}

class ReplayCommand : public testing::Test {
 protected:
  std::string write(const std::string& text) { return directory_.write("trace", text); }
  TemporaryDirectory directory_;
};

TEST_F(ReplayCommand, shows_the_recorded_guest_under_two_policies) {
  const CommandResult result = replay(recorded);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.err, "");
  for (const char* part : {"VM exits", "110,831", "PMU accesses", "IA32_PERF_GLOBAL_CTRL", "1,224", "before-s0", "best",
                           "PMIs", "no measurement"}) {
    EXPECT_THAT(result.out, HasSubstr(part));
  }
  EXPECT_THAT(result.out, Not(HasSubstr("#GP")));
}

TEST_F(ReplayCommand, reads_standard_input_plain_and_xz) {
  const CommandResult file = replay(recorded);
  const std::string head = "standard input";
  const CommandResult xz = run("cat " + recorded + " | " VPMU_COMMAND " replay -");
  const CommandResult plain = run("xz -dc " + recorded + " | " VPMU_COMMAND " replay -");
  EXPECT_EQ(xz.out, head + file.out.substr(recorded.size()));
  EXPECT_EQ(plain.out, xz.out);
}

TEST_F(ReplayCommand, takes_policies_platform_and_clock) {
  const CommandResult result = replay(
      write(small_trace()) + " --policy before-s1 --policy best,fold=each --platform epyc-milan --mhz 2000 --ipc 0.5");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("before-s1"));
  EXPECT_THAT(result.out, HasSubstr("best,fold=each"));
  EXPECT_THAT(result.out, HasSubstr("platform epyc-milan"));
  EXPECT_THAT(result.out, HasSubstr("Guest at 2000 MHz, 0.5 instructions a cycle"));
}

TEST_F(ReplayCommand, writes_json) {
  const std::string json = directory_.file("out.json");
  const CommandResult result = replay(write(small_trace()) + " --json " + json);
  EXPECT_EQ(result.status, 0) << result.err;
  const auto parsed = nlohmann::json::parse(read_file(json));
  EXPECT_EQ(parsed["exits"]["msr"], 3);
  EXPECT_EQ(parsed["policies"][0]["policy"], "before-s0");
  EXPECT_EQ(directory_.entries(), 2U);
}

TEST_F(ReplayCommand, writes_json_in_place_of_the_tables) {
  const CommandResult result = replay(write(small_trace()) + " --policy best --json -");
  EXPECT_EQ(result.status, 0) << result.err;
  const auto parsed = nlohmann::json::parse(result.out);
  ASSERT_EQ(parsed["policies"].size(), 1U);
  EXPECT_EQ(parsed["policies"][0]["policy"], "best");
  EXPECT_EQ(directory_.entries(), 1U);
}

TEST_F(ReplayCommand, bad_use_is_refused) {
  const std::string trace = write(small_trace());
  expect_refused(replay(""), "TRACE is required");
  expect_refused(replay(trace + " --policy fast"), "unknown policy 'fast'; policies: before-s0");
  expect_refused(replay(trace + " --profile pentium"), "unknown profile 'pentium'");
  expect_refused(replay(trace + " --platform vax"), "unknown platform vax; there are: generic");
  expect_refused(replay(trace + " --mhz 0"), "--mhz takes a number from 1 to 10000");
  expect_refused(replay(trace + " --ipc 2"), "--ipc takes a number from 0.001 to 1");
  expect_refused(replay(trace + " --ipc nan"), "--ipc takes a number from 0.001 to 1");
}

TEST_F(ReplayCommand, files_that_are_no_traces_are_refused) {
  expect_refused(replay(directory_.file("missing")), "missing: No such file or directory");
  expect_refused(replay("/"), "/: Is a directory");
  expect_refused(replay(write("")), "no kvm events: record with -e 'kvm:*'");
  expect_refused(replay(write("# tracer: nop\n#\n")), "no kvm events");
  expect_refused(replay(write("hello\n")), "trace:1: not a line of ftrace, trace-cmd or perf script: hello");
  expect_refused(replay(write(std::string("\0\1\2\n", 4))), "trace:1: binary data");
  expect_refused(replay(write(std::string("\x17\x08\x44tracing6\0", 12))), "give the output of trace-cmd report");
  expect_refused(replay(write("PERFILE2 and more")), "give the output of perf script");
  expect_refused(replay(write("\x1F\x8B\x08 and more")), "compressed with gzip");
  expect_refused(replay(VPMU_COMMAND), "vpmu:1: ");
}

TEST_F(ReplayCommand, a_malformed_line_is_named_by_its_number) {
  const std::string good = small_trace();
  expect_refused(replay(write(good + " vmm-101 [000] d..1. 9.000000: kvm_exit: vcpu 0 reason\n")),
                 "trace:" + std::to_string(std::ranges::count(good, '\n') + 1) + ": fields of kvm_exit not understood");
  expect_refused(replay(write(good + std::string(100'000, 'x') + "\n")), ": a line of more than 64 KiB");
}

TEST_F(ReplayCommand, cut_files_are_refused) {
  const std::string good = small_trace();
  expect_refused(replay(write(good.substr(0, good.size() - 5))), ": the last line has no end: the file is cut off");
  expect_refused(run("head -c 100000 " + recorded + " | " VPMU_COMMAND " replay -"), "cut off");
  EXPECT_EQ(replay(write(good)).status, 0);
}

TEST_F(ReplayCommand, an_output_that_cannot_be_written_is_found_before_the_work) {
  // The trace is bad too: what is reported was found first.
  expect_refused(replay(write("hello\n") + " --json /nonexistent/out.json"), "/nonexistent/out.json");
}

TEST_F(ReplayCommand, nothing_half_written_is_left) {
  const std::string json = directory_.write("out.json", "old");
  expect_refused(replay(write("hello\n") + " --json " + json), "trace:1:");
  EXPECT_EQ(read_file(json), "old");
  EXPECT_EQ(directory_.entries(), 2U);
}

}  // namespace
}  // namespace vpmu
