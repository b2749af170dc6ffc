// The guests in mediated mode, unmodified: they pass, and say what they say in emulated mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "cli/run_command.hpp"

namespace vpmu {
namespace {

using test::CommandResult;
using test::TemporaryDirectory;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr std::array profiles{"intel-v4", "intel-v5", "amd-v2"};
constexpr std::array switches{"write", "elide", "ownership"};

CommandResult run_guest(const std::string& guest, const std::string& options) {
  return test::run(VPMU_COMMAND " run " VPMU_GUESTS "/" + guest + ".elf --timeout 120 " + options);
}

/// What a guest printed, but for what it measured: time differs between modes.
std::string without_figures(const std::string& output) {
  std::istringstream lines{output};
  std::string kept;
  for (std::string line; std::getline(lines, line);) {
    if (line.find("figure ") == std::string::npos) kept += line + "\n";
  }
  return kept;
}

class MediatedGuest : public testing::TestWithParam<std::string> {};

TEST_P(MediatedGuest, passes_under_every_switch_and_says_what_it_says_in_emulated_mode) {
  for (const std::string profile : profiles) {
    const std::string common = "--append scale=5 --profile " + profile;
    const CommandResult emulated = run_guest(GetParam(), common);
    ASSERT_EQ(emulated.status, 0) << emulated.out;
    for (const std::string how : switches) {
      const CommandResult result = run_guest(GetParam(), common + " --backing mediated --policy best,switch=" + how);
      EXPECT_EQ(result.status, 0) << profile << " " << how << "\n" << result.out << result.err;
      EXPECT_EQ(without_figures(result.out), without_figures(emulated.out)) << profile << " " << how;
      EXPECT_THAT(result.err, HasSubstr("all counters counted"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, MediatedGuest,
                         testing::Values("counting", "exits", "hostile", "multiplex", "sampling", "tick"),
                         [](const auto& param) { return param.param; });

nlohmann::json figures(const std::string& guest, const std::string& options) {
  const TemporaryDirectory directory;
  const std::string file = directory.file("figures");
  const CommandResult result = run_guest(guest, options + " --append scale=5 --json " + file);
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  return nlohmann::json::parse(test::read_file(file));
}

TEST(Mediated, registers_that_pass_cost_no_exit_and_those_of_the_event_filter_do) {
  for (const std::string profile : profiles) {
    const auto emulated = figures("sampling", "--profile " + profile);
    const auto mediated = figures("sampling", "--backing mediated --profile " + profile);
    EXPECT_EQ(emulated["hardware"]["by_switch"]["wrmsr"], 0);
    EXPECT_EQ(emulated["hardware"]["by_guest_without_exit"]["wrmsr"], 0);
    const auto& passed = mediated["hardware"]["by_guest_without_exit"];
    EXPECT_GT(passed["wrmsr"], 0) << profile;
    EXPECT_GT(passed["rdmsr"], 0) << profile;
    EXPECT_EQ(mediated["pmis"], emulated["pmis"]) << profile;
    const auto saved = [&](const char* kind) {
      return emulated["exits"][kind].get<int>() - mediated["exits"][kind].get<int>();
    };
    EXPECT_EQ(saved("wrmsr"), passed["wrmsr"].get<int>()) << profile;
    EXPECT_EQ(saved("rdmsr"), passed["rdmsr"].get<int>()) << profile;
    EXPECT_GT(mediated["exits"]["wrmsr"], 0) << profile << ": event selects exit";
    EXPECT_EQ(mediated["host_calls"]["open"], 0) << profile;
  }
}

TEST(Mediated, rdpmc_never_exits) {
  const auto emulated = figures("exits", "--profile intel-v4");
  const auto mediated = figures("exits", "--profile intel-v4 --backing mediated");
  EXPECT_GT(emulated["exits"]["rdpmc"], 0);
  EXPECT_EQ(mediated["exits"]["rdpmc"], 0);
  EXPECT_EQ(mediated["hardware"]["by_guest_without_exit"]["rdpmc"], emulated["exits"]["rdpmc"]);
}

TEST(Mediated, each_switch_policy_costs_less_than_the_one_before) {
  for (const std::string profile : profiles) {
    const auto with = [&](const std::string& how) {
      return figures("exits", "--profile " + profile + " --backing mediated --policy best,switch=" + how);
    };
    const auto write = with("write");
    const auto elide = with("elide");
    const auto ownership = with("ownership");
    EXPECT_LT(elide["hardware"]["by_switch"]["wrmsr"], write["hardware"]["by_switch"]["wrmsr"]) << profile;
    EXPECT_LT(elide["modelled_host_ns"], write["modelled_host_ns"]) << profile;
    EXPECT_LT(elide["tsc"], write["tsc"]) << profile << ": the guest's clock shows it";
    EXPECT_LT(ownership["modelled_host_ns"], elide["modelled_host_ns"].get<int>() / 2) << profile;
  }
}

TEST(Mediated, samples_come_as_late_as_the_machine_says) {
  for (const std::string profile : profiles) {
    const CommandResult result =
        run_guest("sampling", "--backing mediated --skid 3 --append 'only=user skid=3 scale=5' --profile " + profile);
    EXPECT_EQ(result.status, 0) << profile << "\n" << result.out;
  }
}

TEST(ReadZero, is_explained_for_counters_that_the_guest_had_on) {
  const TemporaryDirectory directory;
  const std::string filter = directory.write("filter", R"({"action":"deny","events":["0xc0"],"fixed":[0]})");
  for (const std::string backing : {"emulated", "mediated"}) {
    const std::string common = "--profile intel-v4 --append 'scale=5 pmu=counting' --backing " + backing;
    EXPECT_THAT(run_guest("exits", common + " --event-filter " + filter).err,
                HasSubstr("read 0        gp 0: the event filter denies its event"))
        << backing;
    EXPECT_THAT(run_guest("exits", common).err, Not(HasSubstr("read 0"))) << backing;
  }
}

TEST(Mediated, an_event_filter_holds) {
  const TemporaryDirectory directory;
  // Denies instructions: a guest that expects them notices.
  const std::string filter = directory.write("filter", R"({"action":"deny","events":["0xc0"],"fixed":[0]})");
  const CommandResult result =
      run_guest("counting", "--profile intel-v4 --backing mediated --append scale=5 --event-filter " + filter);
  EXPECT_EQ(result.status, 1) << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAIL exact [counts]"));
}

TEST(Ring0, the_freestanding_core_counts_exactly_the_guest_region_by_real_instructions) {
  for (const std::string profile : profiles) {
    const CommandResult result = run_guest("ring0", "--pmu physical --profile " + profile);
    EXPECT_EQ(result.status, 0) << profile << "\n" << result.out << result.err;
    EXPECT_THAT(result.out, ContainsRegex("ring0: [1-9][0-9][0-9] checks passed, 0 failed, 0 unavailable\n$"));
    for (const char* group : {"write", "elide", "ownership", "host", "guests", "interrupts", "own", "filter"}) {
      EXPECT_THAT(result.out, ContainsRegex(std::string{"group "} + group + ": [1-9]")) << profile;
    }
  }
}

TEST(Ring0, says_why_where_it_cannot) {
  EXPECT_THAT(run_guest("ring0", "--pmu physical --profile intel-v2").out,
              HasSubstr("unavailable mediated: the host's perfmon is older than version 4"));
  EXPECT_THAT(run_guest("ring0", "--profile intel-v4").out, HasSubstr("unavailable mediated: this machine is virtual"));
}

TEST(Mediated, other_profiles_are_refused_in_one_line_that_says_why) {
  const std::pair<const char*, const char*> cases[]{{"intel-v2", "perfmon is older than version 4"},
                                                    {"none", "perfmon is older than version 4"},
                                                    {"amd-core", "no PerfMonV2"},
                                                    {"amd-k7", "no PerfMonV2"},
                                                    {"intel-v4 --pmu physical", "leave out --pmu physical"}};
  for (const auto& [profile, why] : cases) {
    const CommandResult result = run_guest("counting", std::string{"--backing mediated --profile "} + profile);
    EXPECT_EQ(result.status, 2) << profile;
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(why));
  }
}

}  // namespace
}  // namespace vpmu
