// The guests on the soft machine: all pass, on every profile, the same each time; and they can fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "cli/run_command.hpp"
#include "seeds.hpp"
#include "vpmu/profile.hpp"

namespace vpmu {
namespace {

using test::CommandResult;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

CommandResult run_guest(const std::string& guest, const std::string& profile, const std::string& append = "",
                        const std::string& options = "") {
  return test::run(VPMU_COMMAND " run " VPMU_GUESTS "/" + guest + ".elf --timeout 120 --profile " + profile +
                   " --append '" + append + "' " + options);
}

/// How many checks of a kind ran, by the guest's line "kinds: counts N, registers N, ...".
int checks_of(const std::string& output, const std::string& kind) {
  const auto line = output.find("\nkinds:");
  const auto at = line == std::string::npos ? line : output.find(" " + kind + " ", line);
  return at == std::string::npos ? -1 : std::stoi(output.substr(at + kind.size() + 2));
}

std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const NamedProfile& named : named_profiles()) names.emplace_back(named.name);
  return names;
}

class Guest : public testing::TestWithParam<std::tuple<std::string, std::string>> {};

TEST_P(Guest, passes_and_ran_checks_of_each_kind) {
  const auto& [guest, profile] = GetParam();
  const CommandResult result = run_guest(guest, profile, "scale=20");
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex(guest + ": [1-9][0-9]* checks passed, 0 failed, [01] unavailable\n$"));
  const bool has_counters = find_profile(profile.c_str())->profile.present();
  for (const char* kind : {"counts", "registers", "faults", "interrupts"}) {
    if (!has_counters && kind == std::string{"counts"}) continue;
    EXPECT_GT(checks_of(result.out, kind), 0) << kind;
  }
}

TEST_P(Guest, passes_on_the_processors_own_pmu_without_an_exit) {
  const auto& [guest, profile] = GetParam();
  const CommandResult result = run_guest(guest, profile, "scale=5", "--pmu physical");
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, ContainsRegex(guest + ": [1-9][0-9]* checks passed, 0 failed, [01] unavailable\n$"));
  EXPECT_THAT(result.err, Not(ContainsRegex("\nexits .*(cpuid|port|rdmsr|wrmsr|rdpmc|mmio)")));
}

TEST_P(Guest, says_the_same_each_time) {
  const auto& [guest, profile] = GetParam();
  if (profile != "intel-v4" && profile != "amd-v2") GTEST_SKIP() << "two profiles are enough";
  EXPECT_EQ(run_guest(guest, profile, "scale=5").out, run_guest(guest, profile, "scale=5").out);
}

INSTANTIATE_TEST_SUITE_P(, Guest,
                         testing::Combine(testing::Values("counting", "exits", "hostile", "multiplex", "sampling",
                                                          "tick"),
                                          testing::ValuesIn(profile_names())),
                         [](const auto& param) {
                           std::string name = std::get<0>(param.param) + "_" + std::get<1>(param.param);
                           for (char& character : name) character = character == '-' ? '_' : character;
                           return name;
                         });

TEST(GuestPolicy, the_first_and_the_best_policy_give_the_same_counts) {
  for (const char* profile : {"intel-v2", "intel-v4", "amd-core", "amd-v2"}) {
    for (const char* policy : {"before-s0", "best"}) {
      for (const char* guest : {"counting", "sampling", "multiplex"}) {
        const CommandResult result = run_guest(guest, profile, "scale=5", std::string{"--policy "} + policy);
        EXPECT_EQ(result.status, 0) << guest << " " << profile << " " << policy << "\n" << result.out;
      }
    }
  }
}

TEST(Skid, samples_come_as_many_instructions_late_as_the_machine_says) {
  for (const char* profile : {"intel-v2", "intel-v5", "amd-k7", "amd-v2"}) {
    const CommandResult result = run_guest("sampling", profile, "only=user skid=3 scale=20", "--skid 3");
    EXPECT_EQ(result.status, 0) << profile << "\n" << result.out;
  }
}

TEST(Skid, is_noticed_by_a_guest_that_expects_none) {
  const CommandResult result = run_guest("sampling", "intel-v2", "only=user scale=20", "--skid 3");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("FAIL user [interrupts] address of a sample"));
}

TEST(Apic, guests_pass_by_msr_and_with_the_one_shot_timer) {
  for (const char* profile : {"intel-v2", "amd-v2"}) {
    for (const char* guest : {"sampling", "multiplex", "tick"}) {
      const CommandResult result = run_guest(guest, profile, "x2apic=1 deadline=0 scale=5");
      EXPECT_EQ(result.status, 0) << guest << " " << profile << "\n" << result.out;
    }
  }
}

TEST(Hostile, traffic_of_any_seed_is_answered_as_cpuid_says) {
  for (const std::uint64_t seed : test::seeds()) {
    for (const std::string& profile : profile_names()) {
      const CommandResult result = run_guest("hostile", profile, "ops=2000 seed=" + std::to_string(seed >> 1));
      EXPECT_EQ(result.status, 0) << profile << " seed=" << (seed >> 1) << "\n" << result.out;
    }
  }
}

TEST(Options, a_number_that_is_none_ends_the_guest) {
  const CommandResult result = run_guest("counting", "none", "scale=many");
  EXPECT_EQ(result.status, 1);
  EXPECT_THAT(result.out, HasSubstr("bad option scale=many"));
  EXPECT_THAT(result.out, Not(HasSubstr("checks passed")));
}

TEST(Options, events_that_the_machine_lacks_are_unavailable_and_not_guessed) {
  const CommandResult result = run_guest("counting", "amd-v2", "missing=branches,branch-misses scale=5");
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("unavailable exact: branches"));
  EXPECT_THAT(result.out, HasSubstr("unavailable modelled: branch-misses"));
}

}  // namespace
}  // namespace vpmu
