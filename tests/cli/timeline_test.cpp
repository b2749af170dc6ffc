// vpmu run --timeline and vpmu replay --timeline: files that a viewer takes, and that say what the reports say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_command.hpp"
#include "lab/timeline_file.hpp"
#include "soft/images.hpp"

namespace vpmu {
namespace {

using nlohmann::json;
using soft::u32;
using soft::u8;
using soft::test::elf_program;
using test::CommandResult;
using test::TemporaryDirectory;
using test::TimelineTrace;
using testing::AllOf;
using testing::Ge;
using testing::HasSubstr;
using testing::Le;
using testing::StartsWith;
using Event = TimelineTrace::Event;

class RunTimeline : public testing::Test {
 protected:
  CommandResult run(const std::string& arguments) {
    return test::run(VPMU_COMMAND " run " + arguments + " --timeline " + file_ + " --json " + report_);
  }
  CommandResult run_guest(const std::string& arguments) { return run(VPMU_GUESTS "/" + arguments); }
  std::string write_image(const std::vector<u8>& code) {
    const std::vector<u8> image = elf_program(code);
    return files_.write("guest.elf", {image.begin(), image.end()});
  }
  [[nodiscard]] TimelineTrace trace() const { return TimelineTrace{test::read_file(file_)}; }
  [[nodiscard]] json report() const { return json::parse(test::read_file(report_)); }
  /// All of the report can be counted in the timeline.
  void expect_agreement(const std::string& arguments);

  TemporaryDirectory files_;
  std::string file_ = files_.file("timeline.json");
  std::string report_ = files_.file("report.json");
};

void RunTimeline::expect_agreement(const std::string& arguments) {
  SCOPED_TRACE(arguments);
  const TimelineTrace trace = this->trace();
  const json report = this->report();
  for (const auto& [kind, count] : report["exits"].items()) {
    EXPECT_EQ(trace.count("VM exits", kind), count) << kind;
  }
  EXPECT_EQ(trace.count("PMIs"), report["pmis"]);
  for (const auto& [call, name] : std::vector<std::pair<const char*, const char*>>{{"open", "open"},
                                                                                   {"close", "close"},
                                                                                   {"set_period", "set period"},
                                                                                   {"enable", "enable"},
                                                                                   {"disable", "disable"},
                                                                                   {"read", "read"},
                                                                                   {"free_read", "free read"}}) {
    EXPECT_EQ(trace.count("host calls", name), report["host_calls"][call]) << call;
  }
  EXPECT_EQ(trace.sum("host calls", "signals"), report["host_calls"]["signal"]);
  const json& hardware = report["hardware"];
  EXPECT_EQ(trace.sum("switches", "RDMSR"), hardware["by_switch"]["rdmsr"]);
  EXPECT_EQ(trace.sum("switches", "WRMSR"), hardware["by_switch"]["wrmsr"]);
  EXPECT_EQ(trace.sum("switches", "RDPMC"), hardware["by_switch"]["rdpmc"]);
  EXPECT_EQ(trace.sum("switches", "LVTPC write"), hardware["lvtpc_writes"]);
  EXPECT_EQ(trace.sum("switches", "host perf call"), hardware["host_perf_calls"]);

  // The host's work takes the modelled time, but for what is lost below a ns in each piece.
  std::int64_t worked = 0;
  for (const char* row : {"host calls", "switches"}) {
    for (const Event& event : trace.of(row)) worked += event.to - event.from;
  }
  const std::int64_t modelled = report["modelled_host_ns"];
  EXPECT_THAT(worked, AllOf(Le(modelled + 1), Ge(modelled - trace.count("host calls") - trace.count("switches"))));

  std::int64_t overflows = 0;
  for (const char* kind : {"gp ", "fixed "}) {
    for (const std::string& row : trace.rows(kind)) overflows += trace.count(row, "overflow");
  }
  EXPECT_GE(overflows, trace.count("PMIs"));
}

TEST_F(RunTimeline, says_what_the_report_says) {
  for (const std::string arguments : {
           "sampling.elf --append scale=2",
           "sampling.elf --append scale=2 --profile intel-v1",
           "sampling.elf --append scale=2 --profile amd-k7",
           "sampling.elf --append scale=2 --profile amd-v2 --policy before-s0",
           "sampling.elf --append scale=2 --policy before-s1 --skid 40",
           "multiplex.elf --append windows=3 --profile intel-v5 --policy before-s4",
           "counting.elf --append scale=2 --profile amd-core",
           "multiplex.elf --append windows=3 --policy best,release=never",
           "sampling.elf --append scale=2 --profile intel-v4 --backing mediated",
           "sampling.elf --append scale=2 --profile amd-v2 --backing mediated --policy best,switch=write",
           "multiplex.elf --append windows=3 --profile intel-v5 --backing mediated --policy best,switch=ownership",
       }) {
    const CommandResult result = run_guest(arguments);
    ASSERT_THAT(result.status, testing::AnyOf(0, 1)) << result.err;
    EXPECT_GT(report()["pmis"], 0) << arguments;
    expect_agreement(arguments);
  }
}

TEST_F(RunTimeline, changes_nothing_and_is_the_same_each_time) {
  for (const std::string more : {"", " --profile intel-v4 --backing mediated"}) {
    ASSERT_EQ(run_guest("sampling.elf --append scale=2" + more).status, 0);
    const std::string first = test::read_file(file_);
    json with = report();
    ASSERT_EQ(run_guest("sampling.elf --append scale=2" + more).status, 0);
    EXPECT_TRUE(first == test::read_file(file_));
    ASSERT_EQ(test::run(VPMU_COMMAND " run " VPMU_GUESTS "/sampling.elf --append scale=2" + more + " --json " + report_)
                  .status,
              0);
    json without = report();
    with.erase("wall");
    without.erase("wall");
    EXPECT_EQ(with, without);
  }
}

TEST_F(RunTimeline, is_whole_however_the_guest_ends) {
  const auto ended = [&](const std::string& arguments, int status) {
    EXPECT_EQ(run(arguments).status, status);
    expect_agreement(arguments);
  };
  ended(VPMU_GUESTS "/sampling.elf --max-instructions 700000", 4);
  ended(VPMU_GUESTS "/sampling.elf --max-instructions 700000 --profile intel-v4 --backing mediated", 4);
  ended(VPMU_GUESTS "/sampling.elf --max-instructions 1", 4);
  const std::vector<u8> crash{0x0F, 0x0B};
  ended(write_image(crash), 3);
  const std::vector<u8> halt{0x0F, 0xA2, 0xF4};
  ended(write_image(halt), 3);
  const std::vector<u8> forever{0xEB, 0xFE};
  ended(write_image(forever) + " --timeout 0.05", 4);
  const CommandResult result = test::run("timeout --preserve-status -s INT 0.3 " VPMU_COMMAND " run " +
                                         write_image(forever) + " --timeline " + file_ + " --json " + report_);
  EXPECT_EQ(result.status, 130) << result.err;
  expect_agreement("interrupted");
}

// --- What a row means ---

/// MOV ECX, msr; MOV EAX, value; XOR EDX, EDX; WRMSR.
std::vector<u8> write_msr(u32 msr, u32 value) {
  std::vector<u8> code;
  const auto mov = [&code](u8 opcode, u32 immediate) {
    code.push_back(opcode);
    for (unsigned shift = 0; shift < 32; shift += 8) code.push_back(static_cast<u8>(immediate >> shift));
  };
  mov(0xB9, msr);
  mov(0xB8, value);
  code.insert(code.end(), {0x31, 0xD2, 0x0F, 0x30});
  return code;
}

/// Counts instructions in GP 0 between two switches of GLOBAL_CTRL, twice, with a CPUID in the midst.
std::vector<u8> two_windows() {
  std::vector<u8> code;
  const auto add = [&code](const std::vector<u8>& more) { code.insert(code.end(), more.begin(), more.end()); };
  constexpr u32 global_ctrl = 0x38F;
  add(write_msr(global_ctrl, 0));
  add(write_msr(0x186, 0x4300C0));
  for (int i = 0; i < 2; ++i) {
    add(write_msr(global_ctrl, 1));
    add({0x90, 0x0F, 0xA2, 0x90});
    add(write_msr(global_ctrl, 0));
    add({0x90, 0x90});
  }
  add(write_msr(0x186, 0));
  add({0x31, 0xC0, 0x66, 0xBA, 0xF4, 0x00, 0xEF});  // end with 0
  return code;
}

TEST_F(RunTimeline, shows_each_window_in_which_a_counter_is_enabled_here_and_globally) {
  ASSERT_EQ(run(write_image(two_windows())).status, 0);
  const TimelineTrace trace = this->trace();
  ASSERT_EQ(trace.count("gp 0"), 2);
  std::vector<Event> switches;
  for (const Event& exit : trace.of("VM exits")) {
    if (exit.name == "wrmsr" && exit.args["register"] == "IA32_PERF_GLOBAL_CTRL") switches.push_back(exit);
  }
  ASSERT_EQ(switches.size(), 5U);
  EXPECT_EQ(switches[1].args["value"], "0x1");
  EXPECT_EQ(switches[1].args["index"], "0x38f");
  for (std::size_t i = 0; i < 2; ++i) {
    const Event& window = trace.of("gp 0")[i];
    EXPECT_EQ(window.name, "Instruction Retired");
    EXPECT_EQ(window.args["event select"], "0x4300c0");
    EXPECT_EQ(window.from, switches[1 + 2 * i].to);
    EXPECT_EQ(window.to, switches[2 + 2 * i].from);
  }
  EXPECT_EQ(trace.rows("gp").size(), 1U);
}

TEST_F(RunTimeline, shows_windows_that_a_guest_opens_without_an_exit) {
  ASSERT_EQ(run(write_image(two_windows()) + " --profile intel-v4 --backing mediated").status, 0);
  const TimelineTrace trace = this->trace();
  ASSERT_EQ(trace.count("gp 0"), 2);
  EXPECT_EQ(trace.count("VM exits", "wrmsr"), 2);  // of the event select
  for (std::size_t i = 0; i < 2; ++i) {
    const Event& window = trace.of("gp 0")[i];
    const auto within = std::ranges::count_if(
        trace.of("VM exits"), [&](const Event& exit) { return exit.from >= window.from && exit.to < window.to; });
    EXPECT_EQ(within, 1);  // the CPUID
  }
}

TEST_F(RunTimeline, shows_a_refused_access) {
  ASSERT_EQ(run(write_image(write_msr(0x38F, 0xFFFFFFFF))).status, 3);  // #GP, and no handler
  const std::vector<Event> exits = trace().of("VM exits");
  ASSERT_EQ(exits.size(), 2U);
  EXPECT_EQ(exits[0].name, "wrmsr");
  EXPECT_EQ(exits[0].args["answer"], "#GP");
  EXPECT_EQ(exits[1].name, "shutdown");
}

TEST_F(RunTimeline, shows_one_handler_for_each_sample_from_its_interrupt_to_its_return) {
  for (const std::string delivery : {"nmi", "vector"}) {
    ASSERT_EQ(
        run_guest("sampling.elf --append 'only=configured samples=60 period=20000 delivery=" + delivery + "'").status,
        0);
    const TimelineTrace trace = this->trace();
    const std::vector<Event>& handlers = trace.of("PMI handler");
    const std::vector<Event>& pmis = trace.of("PMIs");
    // One comes after the samples: of the group that every run has.
    ASSERT_EQ(handlers.size(), 61U);
    ASSERT_EQ(pmis.size(), 61U);
    EXPECT_EQ(trace.count("gp 0", "overflow"), 61);
    for (std::size_t i = 0; i + 1 < handlers.size(); ++i) {
      EXPECT_THAT(pmis[i].args["delivered as"], StartsWith(delivery == "nmi" ? "NMI" : "vector 0x"));
      EXPECT_GE(handlers[i].from, pmis[i].from);
      EXPECT_GT(handlers[i].to, handlers[i].from);
      EXPECT_LE(handlers[i].to, pmis[i + 1].from);
      // It acknowledges the overflow.
      const bool writes = std::ranges::any_of(trace.of("VM exits"), [&](const Event& exit) {
        return exit.name == "wrmsr" && exit.from >= handlers[i].from && exit.to <= handlers[i].to;
      });
      EXPECT_TRUE(writes);
    }
  }
}

TEST_F(RunTimeline, shows_the_hosts_work_within_the_exit_that_asks_for_it) {
  // Clocks of TSC ticks, ps and ns meet: each may be rounded.
  constexpr std::int64_t rounded = 2;
  for (const std::string more : {"--policy before-s0", "--policy best", "--profile intel-v4 --backing mediated"}) {
    ASSERT_EQ(run_guest("sampling.elf --append scale=2 " + more).status, 0);
    const TimelineTrace trace = this->trace();
    const std::vector<Event>& exits = trace.of("VM exits");
    std::size_t exit = 0;
    std::size_t outside = 0;
    for (const char* row : {"host calls", "switches"}) {
      for (const Event& call : trace.of(row)) {
        while (exit + 1 < exits.size() && exits[exit].to < call.to - rounded) ++exit;
        if (call.from < exits[exit].from - rounded || call.to > exits[exit].to + rounded) ++outside;
      }
    }
    EXPECT_LE(outside, 1U) << more;  // what the host does before the first entry
  }
}

// --- Replay ---

class ReplayTimeline : public testing::Test {
 protected:
  CommandResult replay(const std::string& arguments) {
    return test::run(VPMU_COMMAND " replay " + arguments + " --timeline " + file_ + " --json " + report_);
  }
  [[nodiscard]] TimelineTrace trace() const { return TimelineTrace{test::read_file(file_)}; }
  [[nodiscard]] json report() const { return json::parse(test::read_file(report_)); }

  TemporaryDirectory files_;
  std::string file_ = files_.file("timeline.json");
  std::string report_ = files_.file("report.json");
};

const std::string recorded = VPMU_TRACES "/linux-6.1-guest-intel-v2.trace.xz";

std::int64_t overflows_of(const TimelineTrace& trace, const std::string& process) {
  std::int64_t overflows = 0;
  for (const char* kind : {"gp ", "fixed "}) {
    for (const std::string& row : trace.rows(process + "/vCPU 0: " + kind)) overflows += trace.count(row, "overflow");
  }
  return overflows;
}

TEST_F(ReplayTimeline, shows_the_recorded_exits_and_what_each_policy_asks_of_the_host) {
  ASSERT_EQ(replay(recorded).status, 0);
  const TimelineTrace trace = this->trace();
  const json report = this->report();
  for (const auto& [reason, count] : report["exits"].items()) {
    EXPECT_EQ(trace.count("recorded/vCPU 0: VM exits", reason), count);
  }
  for (const json& policy : report["policies"]) {
    const std::string row = policy["policy"].get<std::string>() + "/vCPU 0: ";
    EXPECT_EQ(trace.count(row + "PMIs"), policy["pmis"]);
    EXPECT_EQ(trace.count(row + "host calls", "open"), policy["host_calls"]["open"]);
    EXPECT_EQ(trace.count(row + "host calls", "set period"), policy["host_calls"]["set_period"]);
    EXPECT_GE(overflows_of(trace, policy["policy"]), policy["pmis"]);
  }
}

TEST_F(ReplayTimeline, shows_switches_and_every_overflow_in_mediated_mode) {
  ASSERT_EQ(replay(recorded + " --profile intel-v2 --backing mediated --policy best").status, 0);
  const TimelineTrace trace = this->trace();
  const json report = this->report();
  for (const json& policy : report["policies"]) {
    const std::string row = policy["policy"].get<std::string>() + "/vCPU 0: ";
    EXPECT_EQ(trace.count(row + "PMIs"), policy["pmis"]);
    EXPECT_GE(overflows_of(trace, policy["policy"]), policy["pmis"]);
  }
}

TEST_F(ReplayTimeline, is_the_same_each_time) {
  ASSERT_EQ(replay(recorded + " --policy best").status, 0);
  const std::string first = test::read_file(file_);
  ASSERT_EQ(replay(recorded + " --policy best").status, 0);
  EXPECT_TRUE(first == test::read_file(file_));
}

TEST_F(ReplayTimeline, has_the_times_of_the_trace_and_a_row_for_each_vcpu) {
  const std::string text =
      "a-1 [000] 5.000000: kvm_entry: vcpu 0, rip 0x10\n"
      "b-2 [001] 5.000010: kvm_entry: vcpu 1, rip 0x10\n"
      "a-1 [000] 5.000100: kvm_exit: reason MSR_WRITE rip 0x10 info 0 0\n"
      "a-1 [000] 5.000101: kvm_msr: msr_write 186 = 0x4300c0\n"
      "a-1 [000] 5.000103: kvm_entry: vcpu 0, rip 0x12\n"
      "b-2 [001] 5.000200: kvm_exit: reason HLT rip 0x10 info 0 0\n"
      "a-1 [000] 5.000300: kvm_exit: reason MSR_WRITE rip 0x12 info 0 0\n"
      "a-1 [000] 5.000301: kvm_msr: msr_write 38f = 0x0\n"
      "a-1 [000] 5.000303: kvm_entry: vcpu 0, rip 0x14\n";
  const CommandResult result = replay(files_.write("trace", text) + " --profile intel-v2 --policy best");
  ASSERT_EQ(result.status, 0) << result.err;
  const TimelineTrace trace = this->trace();
  const std::vector<Event> first = trace.of("recorded/vCPU 0: VM exits");
  const std::vector<Event> second = trace.of("recorded/vCPU 1: VM exits");
  ASSERT_EQ(first.size(), 2U);
  EXPECT_EQ(first[0].name, "MSR_WRITE");
  EXPECT_EQ(first[0].from, 5'000'100'000);
  EXPECT_EQ(first[0].to, 5'000'103'000);
  EXPECT_EQ(first[0].args["register"], "IA32_PERFEVTSEL0");
  EXPECT_EQ(first[0].args["value"], "0x4300c0");
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].name, "HLT");
  EXPECT_EQ(second[0].to, 5'000'303'000);  // open to the end
  const std::vector<Event> window = trace.of("best/vCPU 0: gp 0");
  ASSERT_EQ(window.size(), 1U);
  EXPECT_EQ(window[0].name, "Instruction Retired");
  EXPECT_EQ(window[0].from, 5'000'103'000);
  EXPECT_EQ(window[0].to, 5'000'300'000);
  EXPECT_EQ(trace.count("best/vCPU 0: host calls", "open"), 1);
}

TEST_F(ReplayTimeline, leaves_nothing_if_interrupted_or_if_the_trace_is_bad) {
  const CommandResult result =
      test::run("mkfifo " + files_.file("pipe") + "; (exec 3>" + files_.file("pipe") + "; sleep 2) & timeout " +
                "--preserve-status -s INT 0.3 " VPMU_COMMAND " replay " + files_.file("pipe") + " --timeline " + file_);
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.err, "vpmu: interrupted; nothing was written\n");
  EXPECT_EQ(files_.entries(), 1U);
  EXPECT_EQ(replay(files_.write("trace", "kvm_entry: no trace\n")).status, 2);
  EXPECT_EQ(files_.entries(), 2U);
}

// --- The file ---

TEST_F(RunTimeline, leaves_out_what_comes_after_the_limit_and_says_so) {
  const CommandResult result = run_guest("sampling.elf --append scale=2 --timeline-events 500");
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.err, testing::ContainsRegex("\ntimeline: full from [0-9.]+ ms on: the rest is left out"));
  const TimelineTrace trace = this->trace();
  EXPECT_TRUE(trace.json()["otherData"].contains("left out from"));
  EXPECT_LE(trace.json()["traceEvents"].size(), 600U);
}

TEST_F(RunTimeline, is_refused_in_one_line_where_there_is_nothing_to_show_or_nowhere_to_write) {
  const auto refused = [&](const std::string& arguments, const std::string& what) {
    const CommandResult result = test::run(VPMU_COMMAND " run " VPMU_GUESTS "/sampling.elf " + arguments);
    EXPECT_EQ(result.status, 2) << arguments;
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
    EXPECT_THAT(result.err, HasSubstr(what));
  };
  const std::string timeline = "--timeline " + file_;
  refused(timeline + " --machine kvm", "--timeline is for --machine soft: leave it out");
  refused(timeline + " --pmu physical", "--timeline shows a virtual PMU: leave out --pmu physical");
  refused("--timeline " + files_.file("no/such/folder"), "No such file or directory");
  refused("--timeline-events 10", "--timeline");
  refused(timeline + " --timeline-events 0", "--timeline-events");
  EXPECT_EQ(files_.entries(), 0U);
  const CommandResult full =
      test::run(VPMU_COMMAND " run " VPMU_GUESTS "/sampling.elf --append scale=1 --timeline /dev/full");
  EXPECT_EQ(full.status, 2);
  EXPECT_THAT(full.err, testing::EndsWith("vpmu: cannot write /dev/full: No space left on device\n"));
}

}  // namespace
}  // namespace vpmu
