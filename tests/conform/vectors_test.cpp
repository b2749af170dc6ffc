// The recorded vectors, all of them, under every policy.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <initializer_list>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/conform.hpp"
#include "lab/input_file.hpp"
#include "lab/options.hpp"

namespace vpmu::lab {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

struct File {
  const char* name;
  std::size_t passed;
  std::size_t differ;
  std::size_t unmodelled;

  friend void PrintTo(const File& file, std::ostream* out) { *out << file.name; }
};

constexpr File natural_files[]{{"intel-natural", 180, 0, 0}, {"amd-natural", 180, 0, 0}};
constexpr File other_files[]{
    {"intel-directed", 228, 1, 5}, {"amd-directed", 105, 0, 2}, {"intel-random", 194, 2, 4}, {"amd-random", 199, 0, 1}};

FileResult replay(const std::string& name, const Policy& policy) {
  const auto result = replay_file(std::string{VPMU_VECTORS} + "/" + name + ".jsonl.xz", policy, 1000);
  EXPECT_TRUE(result.has_value()) << result.error().what;
  return result.value_or(FileResult{});
}

std::string failures(const FileResult& result) {
  std::string text;
  for (const auto& [scenario, outcome] : result.failures) {
    const Mismatch& first = outcome.mismatches.front();
    text += scenario + ": op " + std::to_string(first.operation) + " " + first.what + ": expected " + first.expected +
            ", got " + first.got + "\n";
  }
  return text;
}

void expect_conforms(const File& file, const Policy& policy) {
  SCOPED_TRACE(file.name);
  const FileResult result = replay(file.name, policy);
  EXPECT_EQ(result.failed, 0) << failures(result);
  EXPECT_EQ(result.passed, file.passed);
  EXPECT_EQ(result.differ, file.differ);
  if (file.unmodelled == 0) {
    EXPECT_THAT(result.skipped, IsEmpty());
  } else {
    EXPECT_THAT(result.skipped, ElementsAre(Pair("unmodelled", file.unmodelled)));
  }
}

class Vectors : public testing::TestWithParam<NamedPolicy> {};

TEST_P(Vectors, natural_pass_all) {
  for (const File& file : natural_files) expect_conforms(file, GetParam().policy);
}

TEST_P(Vectors, directed_and_random_pass_but_for_the_unmodelled_and_the_expected_differences) {
  for (const File& file : other_files) expect_conforms(file, GetParam().policy);
}

INSTANTIATE_TEST_SUITE_P(Policies, Vectors, testing::ValuesIn(named_policies().begin(), named_policies().end()),
                         [](const auto& row) {
                           std::string name = row.param.name;
                           for (char& c : name) {
                             if (c == '-') c = '_';
                           }
                           return name;
                         });

std::vector<Policy> all_combinations() {
  std::vector<Policy> policies{Policy{}};
  const auto multiply = [&](std::initializer_list<const char*> settings) {
    std::vector<Policy> more;
    for (const Policy& policy : policies) {
      for (const char* setting : settings)
        more.push_back(parse_policy("best," + to_text(policy) + "," + setting).value());
    }
    policies = std::move(more);
  };
  multiply({"events=recreate", "events=keep", "events=soft"});
  multiply({"reload=reprogram", "reload=direct"});
  multiply({"release=never", "release=slice"});
  multiply({"pause=untracked", "pause=tracked"});
  multiply({"retire=walk", "retire=cached"});
  multiply({"fold=each", "fold=auto"});
  return policies;
}

TEST(VectorFiles, pass_under_every_combination_of_the_keys_of_emulated_mode) {
  const std::vector<Policy> policies = all_combinations();
  for (const char* name :
       {"intel-natural", "amd-natural", "intel-directed", "amd-directed", "intel-random", "amd-random"}) {
    auto input = InputFile::open(std::string{VPMU_VECTORS} + "/" + name + ".jsonl.xz", std::size_t{1} << 20);
    ASSERT_TRUE(input.has_value()) << input.error();
    std::string_view line;
    while (input->next(line) == InputFile::Next::line) {
      const auto scenario = parse_scenario(line);
      ASSERT_TRUE(scenario.has_value()) << scenario.error();
      for (const Policy& policy : policies) {
        ASSERT_NE(replay_scenario(*scenario, policy).outcome, ScenarioResult::Outcome::failed)
            << name << " " << scenario->name << " under " << to_text(policy);
      }
    }
  }
}

std::set<std::string> differing(const FileResult& result) {
  std::set<std::string> names;
  for (const auto& [scenario, outcome] : result.differences) names.insert(scenario);
  return names;
}

TEST(VectorFiles, mediated_hardware_accesses_are_the_recorded_ones_but_for_the_expected_differences) {
  for (const File& file : {File{"intel-mediated", 71, 3, 0}, File{"amd-mediated", 68, 2, 0}}) {
    expect_conforms(file, Policy{});
  }
  EXPECT_THAT(differing(replay("intel-mediated", Policy{})),
              ElementsAre("mediated/random/0", "mediated/random/2", "mediated/random/98"));
  EXPECT_THAT(differing(replay("amd-mediated", Policy{})), ElementsAre("mediated/random/82", "mediated/random/86"));
}

TEST(VectorFiles, mediated_guests_see_the_same_under_every_way_to_switch) {
  for (const char* text : {"best,switch=write", "best,switch=ownership", "before-s0"}) {
    SCOPED_TRACE(text);
    const Policy policy = parse_policy(text).value();
    EXPECT_EQ(replay("intel-mediated", policy).failed, 0) << failures(replay("intel-mediated", policy));
    EXPECT_EQ(replay("amd-mediated", policy).failed, 0) << failures(replay("amd-mediated", policy));
  }
}

TEST(VectorFiles, expected_differences_are_those_of_perfmon_v4) {
  std::set<std::string> directed;
  for (const auto& [scenario, result] : replay("intel-directed", Policy{}).differences) {
    directed.insert(scenario);
    EXPECT_EQ(result.mismatches.size(), 18);
  }
  EXPECT_THAT(directed, ElementsAre("global_status_ovf_ctrl_bits/v5"));

  std::set<std::string> random;
  for (const auto& [scenario, result] : replay("intel-random", Policy{}).differences) {
    random.insert(scenario);
    ASSERT_EQ(result.mismatches.size(), 1);
    EXPECT_EQ(result.mismatches[0].what, "rdmsr 0x391");
    EXPECT_EQ(result.mismatches[0].expected, "gp");
    EXPECT_EQ(result.mismatches[0].got, "0x0");
  }
  EXPECT_THAT(random, ElementsAre("random/121", "random/55"));
}

}  // namespace
}  // namespace vpmu::lab
