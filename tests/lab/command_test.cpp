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
