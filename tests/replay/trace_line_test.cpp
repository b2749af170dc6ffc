#include "lab/trace_line.hpp"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <string_view>

namespace vpmu::lab {
namespace {

using Kind = TraceLine::Kind;

struct Form {
  const char* what;
  std::string_view line;
  std::string_view task;
  std::uint32_t thread;
  std::uint32_t cpu;
  std::uint64_t time;
  std::string_view event;
  std::string_view fields;
  TraceTime::Unit unit = TraceTime::Unit::ns;
};
std::ostream& operator<<(std::ostream& out, const Form& form) { return out << form.what; }

class Forms : public testing::TestWithParam<Form> {};

TEST_P(Forms, are_taken_apart) {
  const Form& form = GetParam();
  const TraceLine line = parse_trace_line(form.line);
  ASSERT_EQ(line.kind, Kind::event) << line.why;
  EXPECT_EQ(line.task, form.task);
  EXPECT_EQ(line.thread, form.thread);
  EXPECT_EQ(line.cpu, form.cpu);
  EXPECT_EQ(line.time.value, form.time);
  EXPECT_EQ(line.time.unit, form.unit);
  EXPECT_EQ(line.event, form.event);
  EXPECT_EQ(line.fields, form.fields);
}

constexpr auto none = ~0U;
constexpr auto ticks = TraceTime::Unit::ticks;

INSTANTIATE_TEST_SUITE_P(
    Ftrace, Forms,
    testing::Values(Form{"five flags",
                         "           vmm-101     [000] d..1.    10.133755: kvm_entry: vcpu 0, rip 0x1000000", "vmm",
                         101, 0, 10'133'755'000, "kvm_entry", "vcpu 0, rip 0x1000000"},
                    Form{"four flags, before 6.0", "           a.out-20024 [001] .... 2323301.154933: kvm_fpu: load",
                         "a.out", 20024, 1, 2'323'301'154'933'000, "kvm_fpu", "load"},
                    Form{"six flags", " vmm-7 [011] d.h1.. 1.000001: kvm_msr: msr_read 38f = 0x0", "vmm", 7, 11,
                         1'000'001'000, "kvm_msr", "msr_read 38f = 0x0"},
                    Form{"seven flags, real-time", " vmm-7 [011] dNh1.11 1.000001: kvm_msr: x", "vmm", 7, 11,
                         1'000'001'000, "kvm_msr", "x"},
                    Form{"no flags, before 2.6.39 or without irq-info",
                         "             kvm-5664  [000] 11906.220178: kvm_entry: vcpu 0", "kvm", 5664, 0,
                         11'906'220'178'000, "kvm_entry", "vcpu 0"},
                    Form{"with the process", " CPU 0/KVM-12345   (  12340) [003] d..1.  5.000000: kvm_entry: vcpu 0",
                         "CPU 0/KVM", 12345, 3, 5'000'000'000, "kvm_entry", "vcpu 0"},
                    Form{"with an unknown process", " vmm-12345   (-------) [003] d..1.  5.000000: kvm_entry: vcpu 0",
                         "vmm", 12345, 3, 5'000'000'000, "kvm_entry", "vcpu 0"},
                    Form{"an unknown task", "           <...>-101     [000] d..1.    1.5: kvm_entry: vcpu 0", "<...>",
                         101, 0, 1'500'000'000, "kvm_entry", "vcpu 0"},
                    Form{"an idle task",
                         "          <idle>-0       [001] dNh2.  2.000000: sched_switch: prev_comm=a ==> next_comm=b",
                         "<idle>", 0, 1, 2'000'000'000, "sched_switch", "prev_comm=a ==> next_comm=b"},
                    Form{"the clock x86-tsc", " vmm-1 [000] d..1. 123456789012: kvm_entry: vcpu 0", "vmm", 1, 0,
                         123456789012, "kvm_entry", "vcpu 0", ticks},
                    Form{"the function tracer", " vmm-1 [000] .... 1.000000: vmx_vcpu_run <-vcpu_enter_guest", "vmm", 1,
                         0, 1'000'000'000, "(no event name)", "vmx_vcpu_run <-vcpu_enter_guest"},
                    Form{"an event without fields", " vmm-1 [000] .... 1.000000: kvm_foo:", "vmm", 1, 0, 1'000'000'000,
                         "kvm_foo", ""}));

INSTANTIATE_TEST_SUITE_P(
    TraceCmd, Forms,
    testing::Values(Form{"plain, name padded",
                         " qemu-system-x86-31218 [000] 159269.806542: kvm_exit:             reason EPT_MISCONFIG rip "
                         "0x133025 info 0 0",
                         "qemu-system-x86", 31218, 0, 159'269'806'542'000, "kvm_exit",
                         "reason EPT_MISCONFIG rip 0x133025 info 0 0"},
                    Form{"nanoseconds", " vmm-9 [002] 1.123456789: kvm_entry: vcpu 0", "vmm", 9, 2, 1'123'456'789,
                         "kvm_entry", "vcpu 0"},
                    Form{"with flags", " vmm-9 [002] d..1. 1.123456789: kvm_entry: vcpu 0", "vmm", 9, 2, 1'123'456'789,
                         "kvm_entry", "vcpu 0"},
                    Form{"latency format", "qemu-sys-31218   0d..1 159269.806542: kvm_entry: vcpu 0", "qemu-sys", 31218,
                         0, 159'269'806'542'000, "kvm_entry", "vcpu 0"},
                    Form{"latency format, two-digit CPU", "  vmm-31218  12.N.1. 1.5: kvm_entry: vcpu 0", "vmm", 31218,
                         12, 1'500'000'000, "kvm_entry", "vcpu 0"}));

INSTANTIATE_TEST_SUITE_P(
    PerfScript, Forms,
    testing::Values(Form{"thread", " qemu-system-x86 12346 [003]  1234.567890: kvm:kvm_exit: vcpu 0 reason msr rip 0x1",
                         "qemu-system-x86", 12346, 3, 1'234'567'890'000, "kvm_exit", "vcpu 0 reason msr rip 0x1"},
                    Form{"process and thread",
                         "CPU 0/KVM 12345/12346 [003]  1234.567890:          kvm:kvm_entry: vcpu 0, rip 0x2",
                         "CPU 0/KVM", 12346, 3, 1'234'567'890'000, "kvm_entry", "vcpu 0, rip 0x2"},
                    Form{"a name that ends in a number",
                         "       fc_vcpu 1  599500 [039] 1377662.550600: kvm:kvm_entry:  vcpu 1 rip 0x3", "fc_vcpu 1",
                         599500, 39, 1'377'662'550'600'000, "kvm_entry", "vcpu 1 rip 0x3"},
                    Form{"nanoseconds", "vmm 7 [000] 5.000000001: kvm:kvm_entry: vcpu 0", "vmm", 7, 0, 5'000'000'001,
                         "kvm_entry", "vcpu 0"},
                    Form{"a period", "vmm 7 [000] 5.000000:          1 kvm:kvm_entry: vcpu 0", "vmm", 7, 0,
                         5'000'000'000, "kvm_entry", "vcpu 0"},
                    Form{"no task", "    [001]   770.850287:                      kvm:kvm_entry: vcpu 0, rip 0x100146",
                         "", none, 1, 770'850'287'000, "kvm_entry", "vcpu 0, rip 0x100146"},
                    Form{"no CPU", "vmm 7/8  5.000001: kvm:kvm_entry: vcpu 0", "vmm", 8, none, 5'000'001'000,
                         "kvm_entry", "vcpu 0"}));

INSTANTIATE_TEST_SUITE_P(Names, Forms,
                         testing::Values(Form{"blanks", "  my vm monitor-42 [001] d..1. 1.5: kvm_entry: vcpu 0",
                                              "my vm monitor", 42, 1, 1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"dashes", "  a-1-b-2-42 [001] d..1. 1.5: kvm_entry: vcpu 0", "a-1-b-2",
                                              42, 1, 1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"ends in a dash", "  vm--42 [001] d..1. 1.5: kvm_entry: vcpu 0", "vm-",
                                              42, 1, 1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"brackets", "  [kvm] [7] x-42 [001] d..1. 1.5: kvm_entry: vcpu 0",
                                              "[kvm] [7] x", 42, 1, 1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"colons", "  a: b: 3.5: c-42 [001] d..1. 1.5: kvm_entry: vcpu 0",
                                              "a: b: 3.5: c", 42, 1, 1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"parentheses", "  (sd-pam)-42 [001] d..1. 1.5: kvm_entry: vcpu 0",
                                              "(sd-pam)", 42, 1, 1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"a hash in front", "  #vm-42 [001] d..1. 1.5: kvm_entry: vcpu 0", "#vm",
                                              42, 1, 1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"letters beyond ASCII",
                                              "  v\xC3\xA4m-42 [001] d..1. 1.5: kvm_entry: vcpu 0", "v\xC3\xA4m", 42, 1,
                                              1'500'000'000, "kvm_entry", "vcpu 0"},
                                         Form{"empty", "  -42 [001] d..1. 1.5: kvm_entry: vcpu 0", "", 42, 1,
                                              1'500'000'000, "kvm_entry", "vcpu 0"}));

TEST(TraceLine, fields_may_look_like_a_line) {
  const TraceLine line =
      parse_trace_line(" a-1 [000] .... 1.5: tracing_mark_write: b-2 [001] .... 2.5: kvm_entry: vcpu 9");
  EXPECT_EQ(line.thread, 1U);
  EXPECT_EQ(line.event, "tracing_mark_write");
}

TEST(TraceLine, what_tools_print_around_events_is_skipped) {
  for (const std::string_view text :
       {"", "   ", "# tracer: nop", "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION",
        "##### CPU 1 buffer started ####", "cpus=4", "version = 6", "CPU 3 is empty", " => kvm_vcpu_ioctl+0x1",
        "=> kvm_vcpu_ioctl (ffffffffc0a1b2c3)", "\tffffffffc0a1b2c3 kvm_vcpu_ioctl+0x1 ([kvm])",
        "            7f3a1b2c3d4e ioctl+0xb (/usr/lib/x86_64-linux-gnu/libc.so.6)"}) {
    EXPECT_EQ(parse_trace_line(text).kind, Kind::skipped) << text;
  }
}

TEST(TraceLine, lost_events_are_counted) {
  const TraceLine counted = parse_trace_line("CPU:1 [LOST 23 EVENTS]");
  EXPECT_EQ(counted.kind, Kind::lost);
  EXPECT_EQ(counted.lost, 23U);
  EXPECT_EQ(parse_trace_line("CPU:0 [23 EVENTS DROPPED]").lost, 23U);
  const TraceLine uncounted = parse_trace_line("CPU:1 [LOST EVENTS]");
  EXPECT_EQ(uncounted.kind, Kind::lost);
  EXPECT_EQ(uncounted.lost, 0U);
  EXPECT_EQ(parse_trace_line("CPU:1 [EVENTS DROPPED]").kind, Kind::lost);
}

TEST(TraceLine, anything_else_is_malformed) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {"hello"sv,
                                      "hello: world"sv,
                                      "error 12: something"sv,
                                      "{\"op\": \"rdmsr\"}"sv,
                                      "\0\1\2\3"sv,
                                      "\x7F"
                                      "ELF\2\1\1\0"sv,
                                      " vmm-1 [000]"sv,
                                      " vmm-1 [000] d..1."sv,
                                      " vmm-1 [000] d..1. 1.5"sv,
                                      " vmm-1 [000] d..1. 1.5:"sv,
                                      " vmm-1 [000] d..1. 1.5: :"sv,
                                      " vmm-1 [000 d..1. 1.5: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [x] d..1. 1.5: kvm_entry: vcpu 0"sv,
                                      " vmm [000] d..1. 1.5: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [000] d.1 1.5: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [000] d..1.!? 1.5: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [000] d..1. 1.1234567890: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [000] d..1. 1,5: kvm_entry: vcpu 0"sv,
                                      " vmm-99999999999 [000] d..1. 1.5: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [99999999999] d..1. 1.5: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [000] d..1. 99999999999999999999.5: kvm_entry: vcpu 0"sv,
                                      " vmm-1 [000] d..1. 18446744073709551615.5: kvm_entry: vcpu 0"sv,
                                      " 0)   1.234 us    |  kvm_vcpu_ioctl();"sv,
                                      "CPU:1 [LOST"sv}) {
    const TraceLine line = parse_trace_line(text);
    EXPECT_EQ(line.kind, Kind::malformed) << text;
    EXPECT_STRNE(line.why, "");
  }
}

TEST(TraceLine, no_part_of_a_line_crashes) {
  const std::string line = " CPU 0/KVM-12345   (  12340) [003] d..1.  5.000000: kvm:kvm_entry: vcpu 0, rip 0x1";
  for (std::size_t from = 0; from < line.size(); ++from) {
    for (std::size_t length = 0; length <= line.size() - from; ++length) {
      static_cast<void>(parse_trace_line(std::string_view{line}.substr(from, length)));
    }
  }
}

}  // namespace
}  // namespace vpmu::lab
