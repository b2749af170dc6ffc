#include "lab/conform_scenario.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "conform/scenario_builder.hpp"

namespace vpmu::lab {
namespace {

using test::intel_scenario;
using testing::HasSubstr;
using testing::Not;

Scenario parse(const std::string& line) {
  auto scenario = parse_scenario(line);
  EXPECT_TRUE(scenario.has_value()) << scenario.error();
  return scenario.value_or(Scenario{});
}

std::string error_of(const std::string& line) {
  const auto scenario = parse_scenario(line);
  return scenario ? "no error" : scenario.error();
}

/// The scenario line with one piece of text put in the place of another.
std::string with(const std::string& what, const std::string& instead) {
  std::string line = intel_scenario(R"(["entry"])");
  const auto at = line.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return line.replace(at, what.size(), instead);
}

TEST(Scenario, takes_its_profile_from_host_pmu_and_derived) {
  const Scenario scenario = parse(intel_scenario(R"(["entry"])"));
  Profile expected = find_profile("intel-v2")->profile;
  EXPECT_EQ(scenario.profile, expected);
}

TEST(Scenario, a_width_is_the_smaller_one_of_guest_and_host) {
  EXPECT_EQ(parse(with(R"("gp_width":48,"fixed_width":48,"tsx")", R"("gp_width":40,"fixed_width":44,"tsx")"))
                .profile.gp_width,
            40);
  EXPECT_EQ(parse(with(R"("gp_width":48,"events_len")", R"("gp_width":36,"events_len")")).profile.gp_width, 36);
}

TEST(Scenario, the_save_list_follows_the_host) {
  const Scenario small = parse(with(R"("gp":8,"fixed":3,"gp_width":48,"fixed_width":48,"tsx")",
                                    R"("gp":4,"fixed":1,"gp_width":48,"fixed_width":48,"tsx")"));
  EXPECT_EQ(small.profile.save_list.gp, 4);
  EXPECT_EQ(small.profile.save_list.fixed, 1);
  const Scenario large = parse(with(R"("gp":8,"fixed":3,"gp_width":48,"fixed_width":48,"tsx")",
                                    R"("gp":16,"fixed":4,"gp_width":48,"fixed_width":48,"tsx")"));
  EXPECT_EQ(large.profile.save_list.gp, 8);
  EXPECT_EQ(large.profile.save_list.fixed, 3);
}

TEST(Scenario, reads_every_kind_of_operation) {
  const Scenario scenario = parse(intel_scenario(
      R"(["wrmsr","0x186","0x4200c0","ok"],["rdmsr","0xc1","gp"],["host_wrmsr","0x38e","0x1","err"],)"
      R"(["host_rdmsr","0x38e","0x1"],["rdpmc","0x40000000","any"],["mode",{"cpl":3,"cr4_pce":1,"cr0_pe":0}],)"
      R"(["run",{"cycles":7,"cpl":3}],["emulated",{"instructions":2,"branches":1,"cpl":0}],["entry"],["pmi",2],)"
      R"(["filter",{"action":"deny","flags":1,"fixed_bitmap":"0x5","events":["0xc0"]},"einval"],["sched"],)"
      R"(["vm_enable_pmu",false],["perf_fail",3])"));
  ASSERT_EQ(scenario.operations.size(), 14);
  EXPECT_EQ(scenario.operations[0].verb, Verb::wrmsr);
  EXPECT_EQ(scenario.operations[0].index, 0x186);
  EXPECT_EQ(scenario.operations[0].value, 0x4200C0);
  EXPECT_EQ(scenario.operations[0].answer, Answer{Answer::Kind::ok});
  EXPECT_EQ(scenario.operations[1].answer, Answer{Answer::Kind::gp});
  EXPECT_EQ(scenario.operations[2].answer, Answer{Answer::Kind::err});
  EXPECT_EQ(scenario.operations[3].answer, (Answer{Answer::Kind::value, 1}));
  EXPECT_EQ(scenario.operations[4].answer, Answer{Answer::Kind::any});
  EXPECT_EQ(scenario.operations[5].access.cpl, 3);
  EXPECT_TRUE(scenario.operations[5].access.cr4_pce);
  EXPECT_FALSE(scenario.operations[5].access.cr0_pe);
  EXPECT_EQ(scenario.operations[6].batch.counts[Batch::cycles], 7);
  EXPECT_EQ(scenario.operations[6].batch.counts[Batch::instructions], 0);
  EXPECT_EQ(scenario.operations[6].batch.cpl, 3);
  EXPECT_EQ(scenario.operations[7].batch.counts[Batch::branches], 1);
  EXPECT_EQ(scenario.operations[9].answer, (Answer{Answer::Kind::count, 2}));
  EXPECT_EQ(scenario.operations[10].answer, Answer{Answer::Kind::einval});
  ASSERT_EQ(scenario.filters.size(), 1);
  EXPECT_EQ(scenario.filters[0].action, FilterRequest::deny);
  EXPECT_EQ(scenario.filters[0].flags, 1);
  EXPECT_EQ(scenario.filters[0].fixed_bitmap, 5);
  EXPECT_EQ(scenario.operations[13].value, 3);
}

TEST(Scenario, a_numeric_filter_action_is_kept) {
  const Scenario scenario =
      parse(intel_scenario(R"(["filter",{"action":7,"flags":0,"fixed_bitmap":"0x0","events":[]},"einval"])"));
  EXPECT_EQ(scenario.filters.at(0).action, 7);
}

TEST(Scenario, a_mediated_one_has_a_host_and_what_the_hardware_was_asked) {
  std::string line = intel_scenario(
      R"(["hw_preset","0x38e","0x5"],["entry"],["hw_trace",[["host","load_guest_context"],["wrmsr","0x38f","0x0"],)"
      R"(["rdpmc","0x40000000","0x1"],["vmcs_global_ctrl","0xff"]]],["hw_view",{"eventsel_hw":["0x1","0x2"],)"
      R"("fixed_ctr_ctrl_hw":"0xb","intercept_global":false,"intercept_rdpmc":true}],["sched"],)"
      R"(["hw_view",{"eventsel_hw":[],"fixed_ctr_ctrl_hw":"0x0","intercept_global":true,"intercept_rdpmc":true}])");
  const std::string_view mode = "\"emulated\"";
  line.replace(line.find(mode), mode.size(), "\"mediated\"");
  const Scenario scenario = parse(line);
  EXPECT_TRUE(scenario.mediated);
  EXPECT_EQ(scenario.host.version, 5);
  EXPECT_EQ(scenario.operations[0].index, 0x38E);
  EXPECT_EQ(scenario.operations[0].value, 5);
  using Kind = model::HardwareAccess::Kind;
  EXPECT_EQ(scenario.traces.at(0), (HardwareTrace{{Kind::leave_host_perf, 0, 0},
                                                  {Kind::wrmsr, 0x38F, 0},
                                                  {Kind::rdpmc, 0x40000000, 1},
                                                  {Kind::set_entry_field, 0x38F, 0xFF}}));
  EXPECT_EQ(scenario.views.at(0).selectors, (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(scenario.views.at(0).fixed_ctrl, 0xB);
  EXPECT_FALSE(scenario.views.at(0).intercept_global);
  EXPECT_EQ(scenario.operations[3].value, 1) << "directly after an entry";
  EXPECT_EQ(scenario.operations[5].value, 0);
}

TEST(Scenario, bad_operations_are_refused_by_number_and_reason) {
  const std::pair<const char*, const char*> cases[]{
      {R"("entry")", "operation 1: not a list"},
      {R"([])", "operation 1: not a list"},
      {R"([1])", "operation 1: its name is not a string"},
      {R"(["jump"])", "operation 1: unknown operation \"jump\""},
      {R"(["jump\n\u0007"])", "operation 1: unknown operation \"jump??\""},
      {R"(["hw_trace",[["wrmsr","0x1"]]])", "operation 1: unknown access \"wrmsr\""},
      {R"(["hw_trace",[["host","rest"]]])", "operation 1: unknown host call \"rest\""},
      {R"(["hw_trace",[[]]])", "operation 1: an access is not a list"},
      {R"(["hw_view",{}])", "operation 1: no field \"eventsel_hw\""},
      {R"(["entry",1])", "operation 1: entry with 1 arguments instead of 0"},
      {R"(["wrmsr","0x186","0x0"])", "operation 1: wrmsr with 2 arguments instead of 3"},
      {R"(["wrmsr","0x186","0x0","gq"])", "neither \"ok\" nor \"gp\""},
      {R"(["wrmsr","0x186","0x0","err"])", "neither \"ok\" nor \"gp\""},
      {R"(["host_wrmsr","0x186","0x0","gp"])", "neither \"ok\" nor \"err\""},
      {R"(["rdmsr","0x186","any"])", "neither a hex string nor \"gp\""},
      {R"(["rdmsr","186","0x0"])", "the MSR is not a hex string"},
      {R"(["rdmsr","0x","0x0"])", "the MSR is not a hex string"},
      {R"(["rdmsr","0x1g","0x0"])", "the MSR is not a hex string"},
      {R"(["rdmsr","0x-1","0x0"])", "the MSR is not a hex string"},
      {R"(["rdmsr","0x100000000","0x0"])", "the MSR is not a hex string from 0x0 to 0xffffffff"},
      {R"(["rdmsr",390,"0x0"])", "the MSR is not a hex string"},
      {R"(["wrmsr","0x186","0x10000000000000000","ok"])", "the value is not a hex string"},
      {R"(["rdpmc","0x1ffffffff","0x0"])", "ECX is not a hex string"},
      {R"(["pmi",-1])", "the count of interrupts is not an integer from 0"},
      {R"(["pmi",1.5])", "the count of interrupts is not an integer from 0"},
      {R"(["pmi",1e308])", "the count of interrupts is not an integer from 0"},
      {R"(["pmi",18446744073709551616])", "the count of interrupts is not an integer from 0"},
      {R"(["pmi",9007199254740992])", "from 0 to 9007199254740991"},
      {R"(["run",{"cycles":9007199254740992,"cpl":0}])", "cycles is not an integer"},
      {R"(["run",{"cycles":"0x1","cpl":0}])", "cycles is not an integer"},
      {R"(["run",{"cycles":1}])", "no field \"cpl\""},
      {R"(["run",{"cycles":1,"cpl":4}])", "cpl is not an integer from 0 to 3"},
      {R"(["run",{"joules":1,"cpl":0}])", "unknown event \"joules\""},
      {R"(["run",[]])", "an object with \"cpl\" is missing"},
      {R"(["emulated",{"instructions":1048577,"branches":0,"cpl":0}])", "instructions is not an integer from 0 to"},
      {R"(["emulated",{"instructions":1048576,"branches":1,"cpl":0}])", "more than 1048576 emulated events"},
      {R"(["mode",{"cpl":0,"cr4_pce":2,"cr0_pe":1}])", "cr4_pce is not an integer from 0 to 1"},
      {R"(["mode",{"cpl":0,"cr4_pce":1}])", "no field \"cr0_pe\""},
      {R"(["filter",{"action":"drop","flags":0,"fixed_bitmap":"0x0","events":[]},"ok"])", "unknown action \"drop\""},
      {R"(["filter",{"action":-1,"flags":0,"fixed_bitmap":"0x0","events":[]},"ok"])", "action is not an integer"},
      {R"(["filter",{"action":"deny","flags":-1,"fixed_bitmap":"0x0","events":[]},"ok"])", "flags is not an integer"},
      {R"(["filter",{"action":"deny","flags":0,"fixed_bitmap":0,"events":[]},"ok"])", "fixed_bitmap is not a hex"},
      {R"(["filter",{"action":"deny","flags":0,"fixed_bitmap":"0x0","events":"0xc0"},"ok"])", "events is not a list"},
      {R"(["filter",{"action":"deny","flags":0,"fixed_bitmap":"0x0","events":[192]},"ok"])", "an event is not a hex"},
      {R"(["filter",{"action":"deny","flags":0,"fixed_bitmap":"0x0","events":[]},"gp"])", "none of \"ok\""},
      {R"(["refresh",{},{}])", "operation 1: no field \"version\""},
      {R"(["refresh",1,2])", "operation 1: an object with \"version\" is missing"},
      {R"(["vm_enable_pmu",1])", "neither true nor false"},
      {R"(["perf_fail","2"])", "the count of failures is not an integer"},
  };
  for (const auto& [operation, expected] : cases) {
    EXPECT_THAT(error_of(intel_scenario(std::string{R"(["entry"],)"} + operation)), HasSubstr(expected)) << operation;
  }
}

TEST(Scenario, bad_fields_are_refused) {
  EXPECT_THAT(error_of(""), HasSubstr("not a complete JSON value"));
  EXPECT_THAT(error_of("{"), HasSubstr("not a complete JSON value"));
  EXPECT_THAT(error_of("\xEF\xBB\xBF"), HasSubstr("not a complete JSON value"));
  EXPECT_THAT(error_of("{\"name\":\"\xFF\"}"), HasSubstr("not a complete JSON value"));
  EXPECT_THAT(error_of(std::string("{\0}", 3)), HasSubstr("not a complete JSON value"));
  EXPECT_THAT(error_of("{\"name\":1e999}"), HasSubstr("not a complete JSON value"));
  EXPECT_EQ(error_of("[1,2]"), "not a JSON object");
  EXPECT_EQ(error_of("null"), "not a JSON object");
  EXPECT_EQ(error_of(R"({"traceEvents":[]})"), "no field \"name\"");
  EXPECT_EQ(error_of(with(R"("test")", "5")), "name is not a string");
  EXPECT_EQ(error_of(with(R"("vendor":"intel")", R"("vendor":"via")")), "unknown vendor \"via\"");
  EXPECT_EQ(error_of(with(R"("mode":"emulated")", R"("mode":"dreamt")")), "unknown mode \"dreamt\"");
  EXPECT_EQ(error_of(with(R"("tags":[])", R"("tags":"x")")), "tags is not a list");
  EXPECT_EQ(error_of(with(R"("tags":[])", R"("tags":[1])")), "a tag is not a string");
  EXPECT_EQ(error_of(with(R"("ops":[["entry"]])", R"("ops":[])")), "no operations");
  EXPECT_EQ(error_of(with(R"("ops":[["entry"]])", R"("ops":{})")), "ops is not a list");
  EXPECT_EQ(error_of(with(R"("derived":{"version":2)", R"("derived":{"version":256)")),
            "version is not an integer from 0 to 255");
  EXPECT_EQ(error_of(with(R"("derived":{"version":2)", R"("derived":{"version":6)")),
            "Intel perfmon versions are 1 to 5");
  EXPECT_EQ(error_of(with(R"("derived":{"version":2,"gp":8)", R"("derived":{"version":2,"gp":17)")),
            "more than 16 general-purpose counters");
  EXPECT_EQ(error_of(with(R"("fixed":3,"in_tx")", R"("fixed":9,"in_tx")")), "more than 8 fixed counters");
  EXPECT_THAT(error_of(with(R"("gp_width":48,"events_len")", R"("gp_width":0,"events_len")")), HasSubstr("bits wide"));
  EXPECT_EQ(error_of(with(R"("perf_capabilities":"0x2000")", R"("perf_capabilities":8192)")),
            "perf_capabilities is not a hex string from 0x0 to 0xffffffffffffffff");
}

TEST(Scenario, deep_nesting_is_refused_before_it_costs_anything) {
  EXPECT_EQ(error_of(std::string(1'000'000, '[')), "JSON nested too deeply");
  EXPECT_EQ(error_of(intel_scenario("[[[[[[[[]]]]]]]]")), "JSON nested too deeply");
  EXPECT_THAT(error_of(with("test", "[[[[[[[[[[[[ \\\" [[[[")), Not(HasSubstr("nested")));
}

TEST(Scenario, messages_quote_at_most_a_few_printable_characters) {
  const std::string error =
      error_of(with(R"("vendor":"intel")", R"("vendor":")" + std::string(10'000, 'x') + R"(\n")"));
  EXPECT_LT(error.size(), 100);
  EXPECT_THAT(error, Not(HasSubstr("\n")));
}

TEST(Scenario, a_replacement_must_be_the_same_operation_with_another_answer) {
  const std::string operations = R"(["entry"],["rdmsr","0x38e","0x0"])";
  const std::pair<const char*, const char*> cases[]{
      {R"("manual":{})", "manual is not a list"},
      {R"("manual":[1])", "manual: not a pair"},
      {R"("manual":[[2,["rdmsr","0x38e","0x1"]]])", "manual is not an integer from 0 to 1"},
      {R"("manual":[[1,["rdmsr","0x38f","0x1"]]])", "operation 1: a replacement is not the same operation"},
      {R"("manual":[[0,["entry"]]])", "operation 0: a replacement is not the same operation"},
      {R"("manual":[[1,["rdmsr","0x38e","no"]]])", "operation 1: the answer is neither"},
      {R"("exact_rearm":[[1,[]]])", "operation 1: a replacement is not the same operation"},
  };
  for (const auto& [field, expected] : cases) {
    EXPECT_THAT(error_of(intel_scenario(operations, std::string{","} + field)), HasSubstr(expected)) << field;
  }
  const Scenario good = parse(intel_scenario(operations, R"(,"manual":[[1,["rdmsr","0x38e","0x1"]]])"));
  EXPECT_EQ(good.manual, (Replacements{{1, {Answer::Kind::value, 1}}}));
}

TEST(Scenario, unknown_fields_and_tags_do_not_matter) {
  EXPECT_EQ(error_of(intel_scenario(R"(["entry"])", R"(,"peer_warns":0,"new":{"x":1})", "test", R"("mock_judgement")")),
            "no error");
}

}  // namespace
}  // namespace vpmu::lab
