// Event filters as files: what they say, what they may not say, and what a guest notices.
#include "lab/filter_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

#include "cli/run_command.hpp"
#include "soft/images.hpp"
#include "vpmu/event_filter.hpp"

namespace vpmu::lab {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

EventFilter loaded(Vendor vendor, const std::string& text) {
  const auto filter = parse_filter(vendor, text);
  EXPECT_TRUE(filter) << text << ": " << filter.error();
  return filter.value_or(EventFilter{});
}

std::string events(const std::string& list, const std::string& action = "deny") {
  return R"({"action":")" + action + R"(","events":[)" + list + "]}";
}

TEST(FilterFile, takes_events_by_code_as_a_number_or_as_text) {
  for (const char* code : {"\"0x01c2\"", "\"0X1C2\"", "\"450\"", "450"}) {
    const EventFilter deny = loaded(Vendor::intel, events(code));
    EXPECT_FALSE(deny.allows(0x01C2)) << code;
    EXPECT_TRUE(deny.allows(0x02C2)) << "another unit mask";
    const EventFilter allow = loaded(Vendor::intel, events(code, "allow"));
    EXPECT_TRUE(allow.allows(0x01C2)) << code;
    EXPECT_FALSE(allow.allows(0x02C2)) << "another unit mask";
  }
  const EventFilter amd = loaded(Vendor::amd, events("\"0x1000001c2\""));
  EXPECT_FALSE(amd.allows(0x1000001C2)) << "AMD's event select has 12 bits";
  EXPECT_TRUE(amd.allows(0x1C2));
}

TEST(FilterFile, takes_the_names_that_libpfm4_has_on_any_host) {
  const std::pair<const char*, std::uint64_t> intel[]{{"UNHALTED_CORE_CYCLES", 0x003C},
                                                      {"INSTRUCTION_RETIRED", 0x00C0},
                                                      {"LLC_REFERENCES", 0x4F2E},
                                                      {"LLC_MISSES", 0x412E},
                                                      {"BRANCH_INSTRUCTIONS_RETIRED", 0x00C4},
                                                      {"MISPREDICTED_BRANCH_RETIRED", 0x00C5},
                                                      {"LONGEST_LAT_CACHE:MISS", 0x412E}};
  for (const auto& [name, code] : intel) {
    EXPECT_FALSE(loaded(Vendor::intel, events("\"" + std::string{name} + "\"")).allows(code)) << name;
  }
  const std::pair<const char*, std::uint64_t> amd[]{{"RETIRED_INSTRUCTIONS", 0x00C0}, {"CYCLES_NOT_IN_HALT", 0x0076}};
  for (const auto& [name, code] : amd) {
    EXPECT_FALSE(loaded(Vendor::amd, events("\"" + std::string{name} + "\"")).allows(code)) << name;
  }
}

TEST(FilterFile, takes_masked_entries) {
  const EventFilter all_of_c2 = loaded(Vendor::intel, events(R"({"select":"0xc2","mask":0})"));
  EXPECT_FALSE(all_of_c2.allows(0x55C2));
  EXPECT_TRUE(all_of_c2.allows(0x55C3));
  const EventFilter but_one =
      loaded(Vendor::intel,
             events(R"({"select":"0xc2","mask":"0xf0","match":"0x40"},{"select":194,"match":65,"exclude":true})"));
  EXPECT_FALSE(but_one.allows(0x42C2));
  EXPECT_TRUE(but_one.allows(0x41C2)) << "excluded";
  EXPECT_TRUE(but_one.allows(0x52C2));
}

TEST(FilterFile, takes_fixed_counters_apart_from_the_events) {
  const EventFilter deny = loaded(Vendor::intel, R"({"action":"deny","fixed":[0,"0x2"]})");
  EXPECT_FALSE(deny.allows_fixed(0));
  EXPECT_TRUE(deny.allows_fixed(1));
  EXPECT_FALSE(deny.allows_fixed(2));
  EXPECT_TRUE(deny.allows(0x00C0));
  const EventFilter allow = loaded(Vendor::intel, R"({"action":"allow","fixed":[1]})");
  EXPECT_FALSE(allow.allows_fixed(0));
  EXPECT_TRUE(allow.allows_fixed(1));
  EXPECT_FALSE(allow.allows(0x00C0));
}

TEST(FilterFile, takes_300_events_and_no_more) {
  std::string list;
  for (int i = 0; i < 300; ++i) list += (i == 0 ? "" : ",") + std::to_string((i % 256) << 8 | (0xC0 + i / 256));
  EXPECT_FALSE(loaded(Vendor::intel, events(list)).allows(0xFFC0));
  EXPECT_EQ(parse_filter(Vendor::intel, events(list + ",1")).error(), "301 events; at most 300 are possible");
}

TEST(FilterFile, says_which_entry_is_wrong_and_why) {
  const std::string good = "\"0x00c0\",";
  const std::pair<std::string, std::string> cases[]{
      {"", "not JSON: see line 1"},
      {"{\"action\":\"deny\",\n\"events\":[1,]}", "not JSON: see line 2"},
      {"# A text", "not JSON: see line 1"},
      {std::string(1000, '['), "not JSON: see line 1"},
      {std::string(100'000, '[') + std::string(100'000, ']'), "JSON nested too deeply"},
      {events("[[[1]]]"), "event 0: must be a code, a name or a masked entry"},
      {R"({"action":"deny","events":)" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
       "JSON nested too deeply"},
      {std::string((1U << 20) + 1, ' '), "larger than 1048576 bytes"},
      {"[1]", "not a JSON object"},
      {"{}", "action must be \"allow\" or \"deny\""},
      {R"({"action":"drop"})", "action must be \"allow\" or \"deny\""},
      {R"({"action":1})", "action must be \"allow\" or \"deny\""},
      {R"({"traceEvents":[]})", "unknown key 'traceEvents'; there are: action, fixed, events"},
      {R"({"action":"deny","a\nb":1})", "unknown key 'a?b'; there are: action, fixed, events"},
      {R"({"action":"deny","events":[1],"events":[2]})", "key 'events' is repeated"},
      {R"({"action":"deny","fixed":1})", "fixed must be a list of counter numbers"},
      {R"({"action":"deny","fixed":[0,8]})", "fixed counter 1: must be a number from 0 to 7"},
      {R"({"action":"deny","fixed":[-1]})", "fixed counter 0: must be a number from 0 to 7"},
      {R"({"action":"deny","fixed":["cycles"]})", "fixed counter 0: must be a number from 0 to 7"},
      {R"({"action":"deny","events":"0xc0"})", "events must be a list"},
      {events(good + "true"), "event 1: must be a code, a name or a masked entry"},
      {events(good + "1.5"), "event 1: must be a code, a name or a masked entry"},
      {events(good + "-1"), "event 1: must be a code, a name or a masked entry"},
      {events(good + "1e999"), "not JSON: a number is too large"},
      {events(good + "18446744073709551616"), "event 1: must be a code, a name or a masked entry"},
      {events(good + "\"0x100c0\""), "event 1: 0x100c0 has bits beyond event select and unit mask"},
      {events(good + "\"0x1000000c0\""), "event 1: 0x1000000c0 has bits beyond event select and unit mask"},
      {events(good + "\"0x\""), "event 1: '0x' is neither a number nor a name that libpfm4 knows"},
      {events(good + "\"\""), "event 1: '' is neither a number nor a name that libpfm4 knows"},
      {events(good + "\"CYCLE\""), "event 1: 'CYCLE' is neither a number nor a name that libpfm4 knows"},
      {events(good + "\"RETIRED_INSTRUCTIONS\""),
       "event 1: 'RETIRED_INSTRUCTIONS' is neither a number nor a name that libpfm4 knows"},
      {events(good + "\"INSTRUCTION_RETIRED\\u0000junk\""),
       "event 1: 'INSTRUCTION_RETIRED?junk' is neither a number nor a name that libpfm4 knows"},
      {events(good + "\"" + std::string(5000, 'x') + "\""),
       "event 1: '" + std::string(60, 'x') + "...' is neither a number nor a name that libpfm4 knows"},
      {events(good + "\"INSTRUCTION_RETIRED:u\""),
       "event 1: 'INSTRUCTION_RETIRED:u' says more than an event and a unit mask, all that a filter looks at"},
      {events(good + "\"UOPS_EXECUTED:STALL_CYCLES\""),
       "event 1: 'UOPS_EXECUTED:STALL_CYCLES' says more than an event and a unit mask, all that a filter looks at"},
      {events(good + "\"UNHALTED_REFERENCE_CYCLES\""),
       "event 1: 'UNHALTED_REFERENCE_CYCLES' is counted by a fixed counter alone; list that under fixed"},
      {events(good + "{}"), "event 1: select must be a number up to 0xff"},
      {events(good + R"({"select":256})"), "event 1: select must be a number up to 0xff"},
      {events(good + R"({"select":1,"mask":"0x100"})"), "event 1: mask and match must be numbers up to 0xff"},
      {events(good + R"({"select":1,"match":null})"), "event 1: mask and match must be numbers up to 0xff"},
      {events(good + R"({"select":1,"exclude":1})"), "event 1: exclude must be true or false"},
      {events(good + R"({"select":1,"umask":1})"),
       "event 1: unknown key 'umask'; there are: select, mask, match, exclude"},
      {events(good + R"({"select":1,"select":2})"), "key 'select' is repeated"},
  };
  for (const auto& [text, expected] : cases) {
    SCOPED_TRACE(text.substr(0, 80));
    const auto filter = parse_filter(Vendor::intel, text);
    ASSERT_FALSE(filter);
    EXPECT_EQ(filter.error(), expected);
  }
  EXPECT_EQ(parse_filter(Vendor::amd, events(R"({"select":4096})")).error(),
            "event 0: select must be a number up to 0xfff");
}

// --- The command ---

using Code = std::vector<std::uint8_t>;

Code& operator+=(Code& code, const Code& more) {
  code.insert(code.end(), more.begin(), more.end());
  return code;
}

Code four_bytes(std::uint32_t value) {
  return {static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(value >> 8),
          static_cast<std::uint8_t>(value >> 16), static_cast<std::uint8_t>(value >> 24)};
}

Code write_msr(std::uint32_t msr, std::uint32_t low, std::uint32_t high = 0) {
  Code code{0xB9};
  code += four_bytes(msr);
  code += Code{0xB8};
  code += four_bytes(low);
  code += Code{0xBA};
  code += four_bytes(high);
  code += Code{0x0F, 0x30};
  return code;
}

/// A guest that counts instructions on counter 0 and branches on counter 1, in the kernel, over 10 iterations, and ends
/// with the low half of an MSR.
Code counting_guest(std::uint32_t msr) {
  Code code = write_msr(0x38F, 0);
  code += write_msr(0x186, 0x4200C0);
  code += write_msr(0x187, 0x4200C4);
  code += write_msr(0x38D, 1);  // fixed counter 0: instructions, in the kernel
  code += write_msr(0x38F, 3, 1);
  code += Code{0xB9, 10, 0, 0, 0, 0x90, 0xE2, 0xFD};  // mov ecx, 10; nop; loop
  code += write_msr(0x38F, 0);
  code += Code{0xB9};
  code += four_bytes(msr);
  code += Code{0x0F, 0x32, 0x66, 0xBA, 0xF4, 0x00, 0xEF};  // rdmsr; mov dx, 0xf4; out dx, eax
  return soft::test::elf_program(code);
}

class FilteredRun : public testing::Test {
 protected:
  /// What the guest finds in an MSR at the end.
  std::string find(std::uint32_t msr, const std::string& filter) {
    const Code image = counting_guest(msr);
    const std::string path = files_.write("image", {image.begin(), image.end()});
    const std::string option = filter.empty() ? "" : " --event-filter " + files_.write("filter", filter);
    const std::string err = test::run(VPMU_COMMAND " run " + path + option).err;
    const std::string before = "result        the guest ended with ";
    EXPECT_THAT(err, StartsWith(before));
    return err.substr(before.size(), err.find('\n') - before.size());
  }

  static constexpr std::uint32_t instructions = 0xC1;
  static constexpr std::uint32_t branches = 0xC2;
  static constexpr std::uint32_t fixed_instructions = 0x309;
  static constexpr std::uint32_t instructions_selector = 0x186;
  test::TemporaryDirectory files_;
};

TEST_F(FilteredRun, a_denied_event_does_not_count_and_others_do) {
  // MOV ECX, ten times NOP and LOOP, three MOVs; and of the WRMSRs the one that starts counting, since an emulated
  // instruction counts after it took effect.
  EXPECT_EQ(find(instructions, ""), "25");
  EXPECT_EQ(find(branches, ""), "10");
  const std::string deny = events("\"INSTRUCTION_RETIRED\"");
  EXPECT_EQ(find(instructions, deny), "0");
  EXPECT_EQ(find(branches, deny), "10");
  EXPECT_EQ(find(fixed_instructions, deny), "25") << "fixed counters are judged apart";
  const std::string allow = events("\"0xc0\"", "allow");
  EXPECT_EQ(find(instructions, allow), "25");
  EXPECT_EQ(find(branches, allow), "0");
  EXPECT_EQ(find(fixed_instructions, allow), "0");
  EXPECT_EQ(find(fixed_instructions, R"({"action":"deny","fixed":[0]})"), "0");
}

TEST_F(FilteredRun, a_guest_reads_back_the_selector_of_a_denied_event) {
  EXPECT_EQ(find(instructions_selector, events("\"0xc0\"")), std::to_string(0x4200C0));
}

TEST_F(FilteredRun, a_bad_filter_ends_with_2_and_one_line_that_names_file_and_entry) {
  const Code image = counting_guest(instructions);
  const std::string path = files_.write("image", {image.begin(), image.end()});
  const std::string filter = files_.write("filter.json", events("1,\"CYCLE\""));
  const test::CommandResult result = test::run(VPMU_COMMAND " run " + path + " --event-filter " + filter);
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.err, "vpmu: " + filter + ": event 1: 'CYCLE' is neither a number nor a name that libpfm4 knows\n");
  const std::string large = files_.write("large.json", std::string(2U << 20, '['));
  EXPECT_THAT(test::run(VPMU_COMMAND " run " + path + " --event-filter " + large).err,
              HasSubstr("larger than 1048576"));
}

}  // namespace
}  // namespace vpmu::lab
