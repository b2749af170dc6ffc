// What counts as passing, and how failures are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "conform/scenario_builder.hpp"
#include "lab/conform.hpp"
#include "lab/input_file.hpp"

namespace vpmu::lab {
namespace {

using test::intel_scenario;
using Outcome = ScenarioResult::Outcome;

Scenario parse(std::string_view line) {
  auto scenario = parse_scenario(line);
  EXPECT_TRUE(scenario.has_value()) << scenario.error();
  return scenario.value_or(Scenario{});
}

ScenarioResult replay(const std::string& line) { return replay_scenario(parse(line), Policy{}); }

std::vector<Scenario> read(const std::string& name) {
  std::vector<Scenario> scenarios;
  auto input = InputFile::open(std::string{VPMU_VECTORS} + "/" + name + ".jsonl.xz", std::size_t{1} << 20);
  std::string_view line;
  while (input->next(line) == InputFile::Next::line) scenarios.push_back(parse(line));
  EXPECT_FALSE(scenarios.empty());
  return scenarios;
}

std::string first_mismatch(const ScenarioResult& result) {
  if (result.outcome != Outcome::failed || result.mismatches.size() != 1) return "no failure";
  const Mismatch& first = result.mismatches[0];
  return std::to_string(first.operation) + " " + first.what + ": expected " + first.expected + ", got " + first.got;
}

// A counter that is enabled, then read: 2 is right.
const std::string counting =
    R"(["wrmsr","0x186","0x4200c0","ok"],["emulated",{"instructions":2,"branches":0,"cpl":0}],["rdmsr","0xc1",)";

TEST(Replay, passes_if_all_answers_are_the_recorded_ones) {
  EXPECT_EQ(replay(intel_scenario(counting + R"("0x2"])")).outcome, Outcome::passed);
}

TEST(Replay, reports_the_first_wrong_answer) {
  EXPECT_EQ(first_mismatch(replay(intel_scenario(counting + R"("0x3"],["rdmsr","0xc2","0x9"])"))),
            "2 rdmsr 0xc1: expected 0x3, got 0x2");
  EXPECT_EQ(first_mismatch(replay(intel_scenario(R"(["wrmsr","0x186","0x200000","ok"])"))),
            "0 wrmsr 0x186 0x200000: expected ok, got gp");
  EXPECT_EQ(first_mismatch(replay(intel_scenario(R"(["host_rdmsr","0x10","0x0"])"))),
            "0 host_rdmsr 0x10: expected 0x0, got err");
  EXPECT_EQ(first_mismatch(replay(intel_scenario(R"(["pmi",3])"))), "0 pmi: expected 3, got 0");
  EXPECT_EQ(first_mismatch(replay(intel_scenario(R"(["rdpmc","0x99","any"])"))), "0 rdpmc 0x99: expected any, got gp");
  EXPECT_EQ(first_mismatch(
                replay(intel_scenario(R"(["filter",{"action":9,"flags":0,"fixed_bitmap":"0x0","events":[]},"ok"])"))),
            "0 filter: expected ok, got einval");
}

TEST(Replay, any_takes_every_value) {
  EXPECT_EQ(replay(intel_scenario(R"(["rdpmc","0x0","any"])")).outcome, Outcome::passed);
}

TEST(Replay, where_the_manuals_answer_is_given_only_that_one_passes) {
  const std::string manual_2 = R"(,"manual":[[2,["rdmsr","0xc1","0x2"]]])";
  const std::string manual_9 = R"(,"manual":[[2,["rdmsr","0xc1","0x9"]]])";
  EXPECT_EQ(replay(intel_scenario(counting + R"("0x7"])", manual_2)).outcome, Outcome::passed);
  EXPECT_EQ(first_mismatch(replay(intel_scenario(counting + R"("0x2"])", manual_9))),
            "2 rdmsr 0xc1: expected 0x9, got 0x2");
}

TEST(Replay, exact_rearm_passes_as_a_whole_or_not_at_all) {
  const std::string reads = R"("0x2"],["rdmsr","0xc1",)";
  const std::string rearm = R"(,"exact_rearm":[[3,["rdmsr","0xc1","0x2"]]])";
  EXPECT_EQ(replay(intel_scenario(counting + reads + R"("0x7"])", rearm)).outcome, Outcome::passed);
  EXPECT_EQ(replay(intel_scenario(counting + reads + R"("0x2"])", rearm)).outcome, Outcome::passed);
  // Right in one place by the recorded answers, and in the other by the replacement.
  const std::string two = R"(,"exact_rearm":[[2,["rdmsr","0xc1","0x2"]],[3,["rdmsr","0xc1","0x8"]]])";
  EXPECT_EQ(replay(intel_scenario(counting + R"("0x7"],["rdmsr","0xc1","0x2"])", two)).outcome, Outcome::failed);
}

TEST(Replay, exact_rearm_and_the_manual_combine_and_the_manual_wins) {
  const std::string reads = R"("0x7"],["rdmsr","0xc1","0x7"],["rdmsr","0xc1","0x2"])";
  EXPECT_EQ(replay(intel_scenario(counting + reads,
                                  R"(,"exact_rearm":[[2,["rdmsr","0xc1","0x2"]],[3,["rdmsr","0xc1","0x9"]]],)"
                                  R"("manual":[[3,["rdmsr","0xc1","0x2"]]])"))
                .outcome,
            Outcome::passed);
}

TEST(Replay, of_the_tags_only_unmodelled_skips) {
  const std::string wrong = counting + R"("0x3"])";
  const ScenarioResult skipped = replay(intel_scenario(wrong, {}, "test", R"("unmodelled")"));
  EXPECT_EQ(skipped.outcome, Outcome::skipped);
  EXPECT_EQ(skipped.skipped_as, "unmodelled");
  for (const char* tag : {R"("mock_judgement")", R"("backend_specific")", R"("late_overflow_on_running_write")"}) {
    EXPECT_EQ(replay(intel_scenario(wrong, {}, "test", tag)).outcome, Outcome::failed) << tag;
  }
}

TEST(Replay, an_interrupt_counts_once_for_each_entry_that_reports_it) {
  EXPECT_EQ(
      replay(intel_scenario(R"(["wrmsr","0x186","0x5200c0","ok"],["wrmsr","0xc1","0xffffffff","ok"],)"
                            R"(["run",{"instructions":3,"cpl":0}],["pmi",0],["entry"],["entry"],["pmi",1],["pmi",0],)"
                            R"(["rdmsr","0x38e","0x1"])"))
          .outcome,
      Outcome::passed);
}

TEST(Replay, a_wrong_answer_anywhere_is_found_by_its_number) {
  std::size_t broken = 0;
  for (const char* name :
       {"intel-natural", "amd-natural", "intel-directed", "amd-directed", "intel-random", "amd-random"}) {
    for (Scenario& scenario : read(name)) {
      const auto before = replay_scenario(scenario, Policy{}).outcome;
      if (before != Outcome::passed) continue;
      // Some operations of each scenario; the alternatives must go along, or they would still hold.
      for (std::size_t at = broken % 5; at < scenario.operations.size(); at += 1 + scenario.operations.size() / 3) {
        Scenario wrong = scenario;
        Answer& answer = wrong.operations[at].answer;
        if (answer.kind == Answer::Kind::none || answer.kind == Answer::Kind::any) continue;
        answer = {Answer::Kind::value, 0xBAD0BAD0BAD0};
        std::erase_if(wrong.exact_rearm, [&](const auto& entry) { return entry.first == at; });
        std::erase_if(wrong.manual, [&](const auto& entry) { return entry.first == at; });
        const ScenarioResult result = replay_scenario(wrong, Policy{});
        ASSERT_EQ(result.outcome, Outcome::failed) << name << " " << scenario.name << " op " << at;
        EXPECT_EQ(result.mismatches.at(0).operation, at) << name << " " << scenario.name;
        EXPECT_EQ(result.mismatches.at(0).expected, "0xbad0bad0bad0");
        ++broken;
      }
    }
  }
  EXPECT_GT(broken, 1000);
}

TEST(Replay, an_expected_difference_excuses_nothing_else) {
  std::size_t seen = 0;
  for (const char* name : {"intel-directed", "intel-random"}) {
    for (const Scenario& scenario : read(name)) {
      if (replay_scenario(scenario, Policy{}).outcome != Outcome::passed_but_differs) continue;
      ++seen;
      for (std::size_t at = 0; at < scenario.operations.size(); at += 7) {
        Scenario wrong = scenario;
        Answer& answer = wrong.operations[at].answer;
        if (answer.kind == Answer::Kind::none) continue;
        answer = {Answer::Kind::value, 0xBAD0BAD0BAD0};
        std::erase_if(wrong.manual, [&](const auto& entry) { return entry.first == at; });
        EXPECT_EQ(replay_scenario(wrong, Policy{}).outcome, Outcome::failed) << scenario.name << " op " << at;
      }
    }
  }
  EXPECT_EQ(seen, 3);
}

TEST(Replay, an_expected_difference_belongs_to_its_scenario_alone) {
  // A scenario of the same name with other operations is like any other one.
  const std::string line = intel_scenario(R"(["rdmsr","0x391","gp"])", {}, "random/55");
  EXPECT_EQ(replay(line).outcome, Outcome::passed);
  EXPECT_EQ(first_mismatch(replay(intel_scenario(R"(["rdmsr","0x391","0x0"])", {}, "random/55"))),
            "0 rdmsr 0x391: expected 0x0, got gp");
}

}  // namespace
}  // namespace vpmu::lab
