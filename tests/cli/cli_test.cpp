// The vpmu command as its user meets it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cli/run_command.hpp"
#include "conform/scenario_builder.hpp"

namespace vpmu {
namespace {

using test::CommandResult;
using test::intel_scenario;
using test::run;
using test::TemporaryDirectory;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;

CommandResult vpmu(const std::string& arguments) { return run(VPMU_COMMAND " " + arguments); }

const std::string natural = VPMU_VECTORS "/amd-natural.jsonl.xz";

/// One line on standard error, nothing on standard output, exit status 2.
void expect_refused(const CommandResult& result, const std::string& expected) {
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, StartsWith("vpmu: "));
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(expected));
}

TEST(Command, says_its_version) {
  const CommandResult result = vpmu("--version");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, ContainsRegex("^vpmu [0-9]+\\.[0-9]+\\.[0-9]+\n$"));
}

TEST(Command, explains_itself_and_each_subcommand) {
  EXPECT_EQ(vpmu("--help").status, 0);
  EXPECT_THAT(vpmu("--help").out, HasSubstr("conform"));
  EXPECT_EQ(vpmu("conform --help").status, 0);
  EXPECT_THAT(vpmu("conform --help").out, HasSubstr("--policy"));
}

TEST(Command, bad_use_ends_with_2_and_one_line) {
  expect_refused(vpmu(""), "a subcommand is missing; there are: conform, info");
  expect_refused(vpmu("frobnicate"), "unknown subcommand frobnicate; there are: conform, info");
  expect_refused(vpmu("--frobnicate"), "unknown option --frobnicate; see vpmu --help");
  expect_refused(vpmu("conform"), "FILE is required; see vpmu conform --help");
  expect_refused(vpmu("conform --frobnicate"), "unknown option --frobnicate; see vpmu conform --help");
  expect_refused(vpmu("conform x --list-failures -1"), "a number from 0 is needed, not -1");
  expect_refused(vpmu("conform x --list-failures many"), "--list-failures");
  expect_refused(vpmu("conform x --policy fast"), "unknown policy 'fast'; policies: before-s0");
  expect_refused(vpmu("conform x --policy best,speed=9"), "unknown policy key 'speed'; keys: events");
  expect_refused(vpmu("conform x --policy best,events=all"), "takes recreate, keep or soft, not 'all'");
  expect_refused(vpmu("info everything"), "everything; see vpmu info --help");
}

TEST(Command, a_standard_output_that_cannot_be_written_is_an_error) {
  const CommandResult result = vpmu("info >/dev/full");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "vpmu: cannot write to standard output: No space left on device\n");
}

TEST(Info, lists_profiles_policies_hosts_and_machines) {
  const CommandResult result = vpmu("info");
  EXPECT_EQ(result.status, 0);
  for (const char* name : {"intel-v1", "amd-v2", "none", "before-s0", "best", "model", "linux_perf", "soft", "kvm"}) {
    EXPECT_THAT(result.out, HasSubstr(name));
  }
}

TEST(Conform, prints_a_line_a_file) {
  const CommandResult result = vpmu("conform " + natural + " " VPMU_VECTORS "/amd-directed.jsonl.xz");
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_EQ(result.out, natural +
                            ": 180 passed, 0 expected differences, 0 skipped, 0 failed\n" VPMU_VECTORS
                            "/amd-directed.jsonl.xz: 105 passed, 0 expected differences, 2 skipped (2 unmodelled), 0 "
                            "failed\n");
}

TEST(Conform, reads_plain_files_too) {
  const TemporaryDirectory directory;
  EXPECT_EQ(vpmu("conform " + directory.write("v.jsonl", intel_scenario(R"(["entry"])") + "\n")).status, 0);
  EXPECT_EQ(vpmu("conform " + directory.write("v.jsonl", intel_scenario(R"(["entry"])"))).status, 0);
}

TEST(Conform, lists_failures_and_ends_with_1) {
  const TemporaryDirectory directory;
  std::string lines;
  for (const char* name : {"a", "b", "c"}) lines += intel_scenario(R"(["rdmsr","0xc1","0x5"])", {}, name) + "\n";
  const std::string file = directory.write("v.jsonl", lines);
  const CommandResult all = vpmu("conform " + file);
  EXPECT_EQ(all.status, 1);
  EXPECT_EQ(all.out, file +
                         ": 0 passed, 0 expected differences, 0 skipped, 3 failed\n"
                         "  failed a: op 0 rdmsr 0xc1: expected 0x5, got 0x0\n"
                         "  failed b: op 0 rdmsr 0xc1: expected 0x5, got 0x0\n"
                         "  failed c: op 0 rdmsr 0xc1: expected 0x5, got 0x0\n");
  const CommandResult one = vpmu("conform --list-failures 1 " + file);
  EXPECT_EQ(one.status, 1);
  EXPECT_THAT(one.out, HasSubstr("failed a"));
  EXPECT_THAT(one.out, HasSubstr("  and 2 more failed; --list-failures 3 lists all\n"));
}

TEST(Conform, a_failure_in_one_file_does_not_hide_behind_the_next) {
  const TemporaryDirectory directory;
  const std::string bad = directory.write("bad.jsonl", intel_scenario(R"(["rdmsr","0xc1","0x5"])"));
  EXPECT_EQ(vpmu("conform " + bad + " " + natural).status, 1);
}

TEST(Conform, bad_files_end_with_2_and_one_line_that_names_them) {
  const TemporaryDirectory directory;
  const std::string good = intel_scenario(R"(["entry"])") + "\n";
  const std::string vectors = test::read_file(natural);
  const std::pair<std::string, std::string> cases[]{
      {directory.file("missing.jsonl"), "missing.jsonl: No such file or directory"},
      {directory.file(""), "Is a directory"},
      {directory.write("empty.jsonl", ""), "empty.jsonl: no scenarios"},
      {directory.write("cut.jsonl", good + good.substr(0, 300)), "cut.jsonl:2: not a complete JSON value"},
      {directory.write("blank.jsonl", good + "\n" + good), "blank.jsonl:2: not a complete JSON value"},
      {directory.write("foreign.json", R"({"traceEvents":[]})"), "foreign.json:1: no field \"name\""},
      {directory.write("text.txt", "# Conformance\n"), "text.txt:1: not a complete JSON value"},
      {directory.write("binary", std::string("\0\x01\x02\xFF\n", 5)), "binary:1: not a complete JSON value"},
      {directory.write("cut.xz", vectors.substr(0, vectors.size() / 2)), "cut.xz:"},
      {directory.write("head.xz", vectors.substr(0, 8)), "head.xz:"},
      {directory.write("tail.xz", vectors + "rubbish"), "tail.xz:"},
      {directory.write("damaged.xz", std::string{vectors}.replace(9000, 4, "\x55\xAA\x55\xAA")), "damaged.xz:"},
      {directory.write("deep.jsonl", std::string(100'000, '[')), "deep.jsonl:1: JSON nested too deeply"},
      {directory.write("long.jsonl", std::string(5'000'000, ' ')), "long.jsonl:1: line longer than 4194304 bytes"},
      {directory.write("huge.jsonl", good + intel_scenario(R"(["pmi",1e308])")),
       "huge.jsonl:2: operation 0: the count of interrupts is not an integer from 0 to 9007199254740991"},
      {directory.write("bad.jsonl", intel_scenario(R"(["rdmsr","0xzz","0x0"])")),
       "bad.jsonl:1: operation 0: the MSR is not a hex string from 0x0 to 0xffffffff"},
  };
  for (const auto& [path, expected] : cases) {
    SCOPED_TRACE(path);
    expect_refused(vpmu("conform " + path), expected);
  }
}

TEST(Conform, a_compressed_file_that_swells_is_refused_in_little_memory) {
  const TemporaryDirectory directory;
  const std::string bomb = directory.file("bomb.xz");
  ASSERT_EQ(run("head -c 300000000 /dev/zero | xz -0 >" + bomb).status, 0);
  expect_refused(vpmu("conform " + bomb), "line longer than 4194304 bytes");
  // No program that this test ran needed as much memory as the text in the file.
  struct rusage usage{};
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &usage), 0);
  EXPECT_LT(usage.ru_maxrss, 250'000);  // KiB
}

}  // namespace
}  // namespace vpmu
