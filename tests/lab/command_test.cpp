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

TEST(LabSweep, slices_merged_are_the_whole_byte_for_byte) {
  const TemporaryDirectory directory;
  const std::string sweep = "emulation switch --sweep fold=0,auto --sweep exit_cycles=1000,2000";
  const CommandResult whole = lab(sweep);
  EXPECT_EQ(whole.status, 0) << whole.err;
  EXPECT_EQ(whole.err, "");
  EXPECT_EQ(std::ranges::count(whole.out, '\n'), 8);
  std::string files;
  for (const char* slice : {"3", "1", "2"}) {
    const std::string file = directory.file(slice);
    EXPECT_EQ(lab(sweep + " --point " + slice + "/3 --json " + file).status, 0);
    files += " " + file;
  }
  EXPECT_EQ(lab("merge" + files).out, whole.out);
  EXPECT_EQ(lab("merge" + files + " --json " + directory.file("all")).out, "");
  EXPECT_EQ(test::read_file(directory.file("all")), whole.out);
  EXPECT_EQ(run("cat" + files + " | " VPMU_COMMAND " lab merge -").out, whole.out);
}

TEST(LabSweep, shows_a_table_where_the_lines_go_to_a_file) {
  const TemporaryDirectory directory;
  const CommandResult result = lab("emulation --sweep policy=before-s2,best --json " + directory.file("f"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("counting exit_ns"));
  EXPECT_THAT(result.out, HasSubstr("before-s2"));
  EXPECT_THAT(result.out, Not(HasSubstr("{")));
}

TEST(LabSweep, a_slice_without_points_is_an_empty_file) {
  const TemporaryDirectory directory;
  const CommandResult result = lab("emulation --sweep fold=0 --point 2/2 --json " + directory.file("f"));
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(directory.entries(), 1);
  EXPECT_EQ(test::read_file(directory.file("f")), "");
}

TEST(LabSweep, bad_use_is_one_line_and_writes_nothing) {
  const TemporaryDirectory directory;
  const std::string to = " --json " + directory.file("f");
  expect_refused(lab("pmi --sweep speed=1" + to), "unknown key 'speed'; keys: platform, profile, policy, backing; ");
  expect_refused(lab("pmi --sweep fold=0,x" + to), "fold takes each, auto or a number of events, not 'x'");
  expect_refused(lab("pmi --sweep fold=0 --point 2/1" + to), "--point takes I/N");
  expect_refused(lab("pmi --point 1/2" + to), "--point requires --sweep");
  expect_refused(lab("pmi --sweep fold=0 --point ''" + to), "--point takes I/N, I from 1 to N, not ''");
  expect_refused(lab("pmi --sweep fold=0 --json ''"), "cannot write a file without a name");
  expect_refused(lab("pmi --sweep fold=0 --html " + directory.file("f")), "--html excludes --sweep");
  expect_refused(lab("pmi --sweep fold=0 --json /no/such/folder/f"), "cannot write /no/such/folder/f");
  expect_refused(lab("merge"), "file is required");
  expect_refused(lab("merge " + directory.file("none") + to), "cannot read");
  expect_refused(lab("merge " + directory.file("") + to), "Is a directory");
  expect_refused(lab("merge /dev/null" + to), "there is no point");
  expect_refused(lab("--sweep fold=0 merge /dev/null" + to), "vpmu lab merge runs no experiment: leave --sweep out");
  expect_refused(lab("pmi measure" + to), "vpmu lab measure runs no experiment: leave experiment out");
  EXPECT_EQ(directory.entries(), 0);
}

TEST(LabSweep, a_guest_that_fails_is_told_apart_from_bad_use) {
  const CommandResult result = lab("emulation --sweep profile=intel-none,intel-v2 --platform generic");
  EXPECT_EQ(result.status, 1);
  EXPECT_EQ(std::ranges::count(result.out, '\n'), 2);
  EXPECT_EQ(result.err, "vpmu: a guest failed at 1 of 2 points: see \"failed\" in their lines\n");
}

TEST(LabSweep, interrupted_says_so_and_leaves_no_file) {
  const TemporaryDirectory directory;
  const CommandResult result =
      run("timeout --preserve-status -s INT 1 " VPMU_COMMAND " lab tick --sweep fold=0,1,2 --ticks 1000000 --json " +
          directory.file("f"));
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.out, "");
  EXPECT_EQ(result.err, "vpmu: interrupted; nothing was written\n");
  EXPECT_EQ(directory.entries(), 0);
}

TEST(LabSweep, a_merge_interrupted_while_it_waits_for_input_leaves_no_file) {
  const TemporaryDirectory directory;
  const CommandResult result =
      run("sleep 1 | timeout --preserve-status -s INT 0.5 " VPMU_COMMAND " lab merge - --json " + directory.file("f"));
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(directory.entries(), 0);
}

}  // namespace
}  // namespace vpmu
