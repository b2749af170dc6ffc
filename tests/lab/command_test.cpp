// vpmu lab as its user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "cli/run_command.hpp"

namespace vpmu {
namespace {

using test::CommandResult;
using test::run;
using test::TemporaryDirectory;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

CommandResult lab(const std::string& arguments) { return run(VPMU_COMMAND " lab " + arguments); }

void expect_refused(const CommandResult& result, const std::string& expected) {
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("vpmu: "));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(expected));
}

TEST(LabCommand, refuses_what_it_does_not_know_in_one_line) {
  expect_refused(lab("pmis"), "unknown experiment pmis; there are: pmi, sampling, emulation, switch, tick");
  expect_refused(lab("switch --platform cray"), "unknown platform cray");
  expect_refused(lab("switch --json /no/such/folder/f.json"), "cannot write /no/such/folder/f.json");
  expect_refused(lab("switch --ticks 0"), "--ticks");
}

TEST(LabCommand, takes_a_platform_from_a_file_and_refuses_a_malformed_one) {
  const TemporaryDirectory directory;
  const std::string good = directory.write("good.json", R"({"name": "mine", "figures": {"exit_cycles": 2000}})");
  const CommandResult result = lab("switch --no-measure --platform " + good);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("mine"));
  const std::string bad = directory.write("bad.json", R"({"name": "mine", "figures": {"exit_cycles": "fast"}})");
  expect_refused(lab("switch --platform " + bad), "bad.json: figure exit_cycles must be a number or an object");
  expect_refused(lab("switch --platform " + directory.file("none.json")), "cannot read");
}

TEST(LabCommand, measures_this_machine_as_a_platform) {
  const TemporaryDirectory directory;
  const CommandResult result = lab("measure --json " + directory.file("here.json"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(lab("switch --no-measure --platform " + directory.file("here.json")).status, 0);
  expect_refused(lab("measure --json /no/such/folder/f.json"), "cannot write /no/such/folder/f.json");
}

TEST(LabCommand, writes_one_page) {
  const TemporaryDirectory directory;
  EXPECT_EQ(lab("switch --no-measure --html " + directory.file("lab.html")).status, 0);
  const std::string page = test::read_file(directory.file("lab.html"));
  EXPECT_THAT(page, StartsWith("<!DOCTYPE html>"));
  for (const char* mark : {"@DATA@", "@CHART@", "@SCRIPT@"}) EXPECT_THAT(page, Not(HasSubstr(mark)));
}

TEST(LabCommand, writes_tables_and_json_and_nothing_else_where_no_terminal_is) {
  const TemporaryDirectory directory;
  const CommandResult result = lab("switch --no-measure --json " + directory.file("f.json"));
  EXPECT_EQ(result.status, 0);
  EXPECT_EQ(result.err, "");
  EXPECT_THAT(result.out, StartsWith("== switch: "));
  EXPECT_THAT(result.out, Not(HasSubstr("\x1b")));
  EXPECT_THAT(test::read_file(directory.file("f.json")), HasSubstr("\"before-s3,switch=elide\""));
}

TEST(LabCommand, interrupted_says_so_and_leaves_no_file) {
  const TemporaryDirectory directory;
  const CommandResult result =
      run("timeout --preserve-status -s INT 1 " VPMU_COMMAND " lab tick --no-measure --ticks 1000000 --json " +
          directory.file("f.json"));
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "vpmu: interrupted; nothing was written\n");
  EXPECT_EQ(directory.entries(), 0);
}

}  // namespace
}  // namespace vpmu
