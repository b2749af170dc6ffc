#include "lab/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "lab/options.hpp"
#include "lab/replay_report.hpp"
#include "replay/trace_builder.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::lab {
namespace {

using test::TraceBuilder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::uint64_t count_cycles = 0x3C | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;
constexpr std::uint64_t count_instructions = 0xC0 | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;

ReplayOptions options(std::initializer_list<const char*> policies = {"before-s0", "best"}) {
  ReplayOptions options;
  options.mhz = 1000;
  for (const char* policy : policies) options.policies.push_back({policy, parse_policy(policy).value()});
  return options;
}

ReplayResult replay(const std::string& text, const ReplayOptions& with = options()) {
  Replay replay{with};
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    const auto taken = replay.take(line);
    EXPECT_TRUE(taken.has_value()) << line << ": " << taken.error();
  }
  return replay.result();
}

std::string error_of(const std::string& text) {
  Replay replay{options()};
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    if (const auto taken = replay.take(line); !taken) return taken.error();
  }
  return "no error";
}

/// A guest that lets counter 0 overflow after `distance` cycles, and runs for `us` microseconds.
std::string overflow_after(std::uint64_t distance, std::uint64_t us) {
  TraceBuilder trace;
  trace.entry().write(0xC1, ((0 - distance) & 0x7FFFFFFF) | 0x80000000).write(0x186, count_cycles).write(0x38F, 1);
  trace.wait_us(us).exit("interrupt").entry().exit("interrupt").entry();
  return trace;
}

TEST(Replay, counts_guest_time_between_entry_and_exit) {
  TraceBuilder trace;
  trace.entry().wait_us(99).exit("interrupt").wait_us(1000).entry().wait_us(49).exit("interrupt");
  const ReplayResult result = replay(trace);
  EXPECT_EQ(result.guest_ns, 150'000U);
  EXPECT_EQ(result.span_ns, 1'151'000U);
  EXPECT_EQ(result.entries, 2U);
  EXPECT_EQ(result.vcpus, 1U);
}

TEST(Replay, signals_a_pmi_once_the_cycles_of_guest_time_reach_the_overflow) {
  for (const PolicyResult& policy : replay(overflow_after(50'000, 100)).policies)
    EXPECT_EQ(policy.pmis, 1U) << policy.name;
  for (const PolicyResult& policy : replay(overflow_after(150'000, 100)).policies)
    EXPECT_EQ(policy.pmis, 0U) << policy.name;
}

TEST(Replay, the_clock_makes_the_cycles) {
  ReplayOptions slow = options();
  slow.mhz = 100;
  EXPECT_EQ(replay(overflow_after(50'000, 100), slow).policies.front().pmis, 0U);
}

TEST(Replay, instructions_follow_the_stated_rate) {
  TraceBuilder trace;
  trace.entry().write(0xC1, 0xFFFFFFFF - 60'000).write(0x186, count_instructions).write(0x38F, 1);
  trace.wait_us(100).exit("interrupt").entry();
  EXPECT_EQ(replay(trace).policies.front().pmis, 1U);
  ReplayOptions half = options();
  half.ipc = 0.5;
  EXPECT_EQ(replay(trace, half).policies.front().pmis, 0U);
}

TEST(Replay, an_instruction_that_exits_is_counted_after_its_effect) {
  // Nothing but the exits' own instructions: entry and exit carry the same time. The counter needs two events: the
  // WRMSR that enables it is one (FACTS: it counts itself), CPUID the other.
  const char* const lines =
      " vmm-1 [000] d..1. 1.000000: kvm_exit: vcpu 0 reason msr rip 0x8000000000001000 info1 0x0 info2 0x0\n"
      " vmm-1 [000] d..1. 1.000000: kvm_msr: msr_write c1 = 0xfffffffe\n"
      " vmm-1 [000] d..1. 1.000000: kvm_entry: vcpu 0, rip 0x8000000000001002\n"
      " vmm-1 [000] d..1. 1.000000: kvm_exit: vcpu 0 reason msr rip 0x8000000000001002 info1 0x0 info2 0x0\n"
      " vmm-1 [000] d..1. 1.000000: kvm_msr: msr_write 38f = 0x1\n"
      " vmm-1 [000] d..1. 1.000000: kvm_entry: vcpu 0, rip 0x8000000000001004\n"
      " vmm-1 [000] d..1. 1.000000: kvm_exit: vcpu 0 reason msr rip 0x8000000000001004 info1 0x0 info2 0x0\n"
      " vmm-1 [000] d..1. 1.000000: kvm_msr: msr_write 186 = 0x5300c0\n"
      " vmm-1 [000] d..1. 1.000000: kvm_entry: vcpu 0, rip 0x8000000000001006\n";
  const std::string cpuid =
      " vmm-1 [000] d..1. 1.000000: kvm_exit: vcpu 0 reason cpuid rip 0x8000000000001006 info1 0x0 info2 0x0\n";
  const std::string done = " vmm-1 [000] d..1. 1.000000: kvm_entry: vcpu 0, rip 0x8000000000001008\n";
  const std::string again = " vmm-1 [000] d..1. 1.000000: kvm_entry: vcpu 0, rip 0x8000000000001006\n";
  EXPECT_EQ(replay(lines).policies.front().pmis, 0U);
  EXPECT_EQ(replay(lines + cpuid + done).policies.front().pmis, 1U);
  EXPECT_EQ(replay(lines + cpuid + done).retired, 4U);
  EXPECT_EQ(replay(lines + cpuid + again).policies.front().pmis, 0U);
}

TEST(Replay, emulated_device_accesses_are_completed_instructions_and_filled_pages_are_not) {
  TraceBuilder trace;
  trace.entry().exit("npf").entry().exit("npf").skip(6).entry();
  EXPECT_EQ(replay(trace).retired, 1U);
}

TEST(Replay, emulated_instructions_count_unless_they_failed) {
  TraceBuilder trace;
  trace.entry().exit("EXCEPTION_NMI").line("kvm_emulate_insn: 0:1007:ee (real)").skip(0x100).entry();
  trace.exit("EXCEPTION_NMI")
      .line("kvm_emulate_insn: 0:1007:ee (real)")
      .line("kvm_emulate_insn: 0:1007:ee (real) failed");
  trace.entry();
  EXPECT_EQ(replay(trace).retired, 1U);
}

TEST(Replay, counts_exits_by_reason_and_accesses_by_register) {
  TraceBuilder trace;
  trace.entry().write(0x38F, 3).write(0x38F, 0).read(0x38E).read(0).read(0x40000001).exit("io").skip(1).entry();
  const ReplayResult result = replay(trace);
  EXPECT_EQ(result.exits.total(), 6U);
  EXPECT_EQ(result.exits.sorted().front().name, "msr");
  ASSERT_EQ(result.registers.size(), 4U);
  EXPECT_EQ(result.registers[0].name, "IA32_PERF_GLOBAL_CTRL");
  EXPECT_EQ(result.registers[0].writes, 2U);
  EXPECT_EQ(result.registers[1].name, "IA32_PERF_GLOBAL_STATUS");
  EXPECT_EQ(result.registers[2].name, "RDPMC 0");
  EXPECT_EQ(result.registers[3].name, "RDPMC fixed 1");
  EXPECT_EQ(result.pmu_accesses(), 5U);
}

TEST(Replay, msrs_of_hyper_v_are_not_taken_for_rdpmc) {
  TraceBuilder trace;
  trace.entry().write(0x40000000, 1).read(0x40000001);
  const ReplayResult result = replay(trace);
  EXPECT_TRUE(result.registers.empty());
  EXPECT_EQ(result.other_msrs, 2U);
}

TEST(Replay, msrs_that_belong_to_no_pmu_are_counted_apart) {
  TraceBuilder trace;
  trace.entry().read(0xFE).write(0xC0000103, 0).read(0xCE);
  EXPECT_EQ(replay(trace).other_msrs, 3U);
  EXPECT_EQ(replay(trace).pmu_accesses(), 0U);
}

TEST(Replay, answers_that_differ_in_kind_are_named) {
  TraceBuilder trace;
  trace.entry().read(0x391).read_fault(0x38F);  // 0x391 needs perfmon v4
  const ReplayResult result = replay(trace);
  ASSERT_EQ(result.registers.size(), 2U);
  EXPECT_EQ(result.registers[0].name, "IA32_PERF_GLOBAL_CTRL");
  EXPECT_EQ(result.registers[0].faulted_there, 1U);
  EXPECT_EQ(result.registers[1].faulted_here, 1U);
  EXPECT_THAT(replay_text(result), HasSubstr("IA32_PERF_GLOBAL_STATUS_SET get #GP here, none in the trace"));
  EXPECT_THAT(replay_text(result), HasSubstr("IA32_PERF_GLOBAL_CTRL got #GP in the trace, none here"));
}

TEST(Replay, a_faulting_access_completes_no_instruction) {
  TraceBuilder trace;
  trace.entry().read_fault(0x3A);
  EXPECT_EQ(replay(trace).retired, 0U);
}

TEST(Replay, takes_the_profile_from_the_guests_cpuid) {
  TraceBuilder trace;
  trace.entry().line("kvm_cpuid: func 0 idx 0 rax d rbx 756e6547 rcx 6c65746e rdx 49656e69, cpuid entry found");
  trace.line("kvm_cpuid: func a idx 0 rax 7300402 rbx 7a rcx 0 rdx 603, cpuid entry found").write(0x38F, 0x70000000F);
  const ReplayResult result = replay(trace);
  EXPECT_EQ(result.profile_from, ReplayResult::ProfileFrom::cpuid);
  EXPECT_EQ(result.profile.gp_counters, 4);
  EXPECT_EQ(result.registers.front().faulted_here, 0U);
}

TEST(Replay, the_profile_stays_once_the_pmu_is_used) {
  TraceBuilder trace;
  trace.entry().write(0x38F, 0xFF);
  trace.line("kvm_cpuid: func a idx 0 rax 7300402 rbx 7a rcx 0 rdx 603, cpuid entry found").write(0x38F, 0xFF);
  const ReplayResult result = replay(trace);
  EXPECT_EQ(result.profile_from, ReplayResult::ProfileFrom::fallback);
  EXPECT_EQ(result.registers.front().faulted_here, 0U);
}

TEST(Replay, an_asked_for_profile_is_used) {
  ReplayOptions with = options();
  with.profile = find_profile("intel-v4")->profile;
  TraceBuilder trace;
  trace.entry().line("kvm_cpuid: func a idx 0 rax 7300402 rbx 7a rcx 0 rdx 603, cpuid entry found").write(0x391, 1);
  const ReplayResult result = replay(trace, with);
  EXPECT_EQ(result.profile_from, ReplayResult::ProfileFrom::option);
  EXPECT_EQ(result.registers.front().faulted_here, 0U);
}

TEST(Replay, amd_registers_make_an_amd_guest) {
  TraceBuilder trace;
  trace.entry().write(0xC0010200, 0x530076).write(0xC0000301, 1).wait_us(10).read(0);
  const ReplayResult result = replay(trace);
  EXPECT_EQ(result.profile_from, ReplayResult::ProfileFrom::registers);
  EXPECT_FALSE(result.profile.is_intel());
  EXPECT_EQ(result.pmu_accesses(), 3U);
  EXPECT_EQ(result.policies.front().use.calls.open, 1U);
}

TEST(Replay, each_policy_asks_its_own_way) {
  TraceBuilder trace;
  trace.entry().write(0x186, count_cycles).write(0x38F, 1);
  for (int i = 0; i < 50; ++i) trace.write(0x38F, 0).write(0x38F, 1);
  const ReplayResult result = replay(trace, options({"before-s0", "before-s1", "before-s2", "best"}));
  ASSERT_EQ(result.policies.size(), 4U);
  EXPECT_EQ(result.policies[0].use.calls.open, 51U);
  EXPECT_EQ(result.policies[1].use.calls.open, 1U);
  EXPECT_EQ(result.policies[3].use.calls.open, 1U);
  for (std::size_t i = 1; i < 4; ++i)
    EXPECT_LE(result.policies[i].use.cost_ps, result.policies[i - 1].use.cost_ps) << i;
  EXPECT_EQ(result.differing_answers, 0U);
}

TEST(Replay, a_halt_ends_the_time_slice) {
  TraceBuilder trace;
  trace.entry().write(0x186, count_cycles).write(0x38F, 1).write(0x38F, 0);
  trace.exit("hlt").skip(1).entry().exit("hlt").skip(1).entry();
  EXPECT_EQ(replay(trace, options({"best"})).policies.front().use.calls.close, 1U);
  EXPECT_EQ(replay(trace, options({"best,release=never"})).policies.front().use.calls.close, 0U);
}

TEST(Replay, a_switch_to_another_task_ends_the_time_slice) {
  TraceBuilder trace;
  const char* const away = "sched_switch: prev_comm=vmm prev_pid=101 prev_state=R ==> next_comm=sh next_pid=7";
  trace.entry().write(0x186, count_cycles).write(0x38F, 1).write(0x38F, 0);
  trace.exit("interrupt").line(away).entry().exit("interrupt").line(away).entry();
  EXPECT_EQ(replay(trace, options({"best"})).policies.front().use.calls.close, 1U);
}

TEST(Replay, each_thread_is_a_vcpu_also_where_two_vms_number_theirs_alike) {
  TraceBuilder one{101, 0};
  TraceBuilder other{202, 0};
  one.entry().write(0x38F, 1);
  other.entry().write(0x38F, 1);
  EXPECT_EQ(replay(one.text() + other.text()).vcpus, 2U);
}

TEST(Replay, without_threads_the_cpu_tells_whose_an_event_is) {
  const std::string trace =
      "[001]   1.000000: kvm:kvm_entry: vcpu 0, rip 0x100\n"
      "[002]   1.000001: kvm:kvm_entry: vcpu 1, rip 0x100\n"
      "[001]   1.000002:  kvm:kvm_exit: reason MSR_WRITE rip 0x100 info 0 0\n"
      "[001]   1.000003:   kvm:kvm_msr: msr_write 38f = 0x1\n"
      "[001]   1.000004: kvm:kvm_entry: vcpu 0, rip 0x102\n"
      "[002]   1.000005:  kvm:kvm_exit: reason HLT rip 0x100 info 0 0\n";
  const ReplayResult result = replay(trace);
  EXPECT_EQ(result.vcpus, 2U);
  EXPECT_EQ(result.retired, 1U);
  EXPECT_EQ(result.exits_without_entry, 0U);
}

TEST(Replay, too_many_vcpus_are_refused) {
  std::string trace;
  for (std::uint32_t i = 0; i <= Replay::max_vcpus; ++i) trace += TraceBuilder{i + 1, i}.entry().text();
  EXPECT_EQ(error_of(trace), "more than 256 vCPUs");
}

TEST(Replay, unknown_events_are_counted_and_do_no_harm) {
  TraceBuilder trace;
  trace.entry().line("kvm_new_thing: with some=fields").line("irq_handler_entry: irq=1 name=x").exit("io");
  const ReplayResult result = replay(trace);
  EXPECT_EQ(result.events.total(), 4U);
  EXPECT_THAT(replay_text(result), HasSubstr("2 events played no part: irq_handler_entry, kvm_new_thing"));
}

TEST(Replay, doubts_are_told) {
  TraceBuilder trace;
  trace.exit("io").entry().entry().exit("io");
  const std::string lost = trace.text() + "CPU:0 [LOST 5 EVENTS]\n";
  const std::string back =
      " vmm-101 [000] d..1. 0.500000: kvm_entry: vcpu 0, rip 0x1\n"
      " vmm-101 [000] d..1. 0.400000: kvm_exit: vcpu 0 reason io rip 0x1 info1 0x0\n";
  const ReplayResult result = replay(lost + back);
  EXPECT_EQ(result.exits_without_entry, 1U);
  EXPECT_EQ(result.entries_without_exit, 1U);
  EXPECT_EQ(result.lost_events, 5U);
  EXPECT_EQ(result.backward_times, 1U);
  const std::string text = replay_text(result);
  EXPECT_THAT(text, HasSubstr("lost events"));
  EXPECT_THAT(text, HasSubstr("the clock went backwards"));
}

TEST(Replay, absurd_times_do_no_harm) {
  const std::string trace =
      " vmm-1 [000] d..1. 1.000000: kvm_exit: vcpu 0 reason msr rip 0x1000 info1 0x0\n"
      " vmm-1 [000] d..1. 1.000000: kvm_msr: msr_write 186 = 0x5300c0\n"
      " vmm-1 [000] d..1. 1.000000: kvm_msr: msr_write 38f = 0x1\n"
      " vmm-1 [000] d..1. 1.000000: kvm_entry: vcpu 0, rip 0x1002\n"
      " vmm-1 [000] d..1. 18446744072.999999: kvm_exit: vcpu 0 reason io rip 0x1002 info1 0x0\n"
      " vmm-1 [000] d..1. 1.000000: kvm_entry: vcpu 0, rip 0x1002\n"
      " vmm-1 [000] d..1. 18446744072.999999: kvm_exit: vcpu 0 reason io rip 0x1002 info1 0x0\n";
  EXPECT_LE(replay(trace).guest_ns, 1'000'000'000'000'000'000U);
}

TEST(Replay, ticks_of_the_tsc_are_time) {
  const std::string trace =
      " vmm-1 [000] d..1. 5000000: kvm_entry: vcpu 0, rip 0x1002\n"
      " vmm-1 [000] d..1. 5100000: kvm_exit: vcpu 0 reason io rip 0x1002 info1 0x0\n";
  EXPECT_EQ(replay(trace).guest_ns, 100'000U);
}

TEST(Replay, malformed_lines_are_refused) {
  EXPECT_THAT(error_of("hello\n"), HasSubstr("not a line of ftrace, trace-cmd or perf script: hello"));
  EXPECT_EQ(error_of(TraceBuilder{}.line("kvm_exit: vcpu 0 reason").text()),
            "fields of kvm_exit not understood: vcpu 0 reason");
  EXPECT_EQ(error_of(TraceBuilder{}.line("kvm_entry: PC: 0x1").text()), "fields of kvm_entry not understood: PC: 0x1");
  for (const char* event : {"kvm_msr: msr_read", "kvm_pio: pio_read", "kvm_cpuid: func", "kvm_emulate_insn: 0:"}) {
    EXPECT_THAT(error_of(TraceBuilder{}.line(event).text()), HasSubstr("not understood")) << event;
  }
  EXPECT_THAT(
      error_of(" vmm-1 [000] d..1. 5000000: kvm_entry: vcpu 0\n vmm-1 [000] d..1. 5.000000: kvm_entry: vcpu 0\n"),
      HasSubstr("timestamps of another clock"));
  EXPECT_EQ(error_of(TraceBuilder{}.line("kvm_exit: \x1B[31m" + std::string(100, 'x')).text()),
            "fields of kvm_exit not understood: ?[31m" + std::string(55, 'x') + "...");
}

TEST(Replay, without_policies_the_trace_is_still_described) {
  EXPECT_EQ(replay(overflow_after(50'000, 100), options({})).pmu_accesses(), 3U);
}

}  // namespace
}  // namespace vpmu::lab
