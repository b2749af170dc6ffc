// The small parts that a replay is made of.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lab/replay_exit.hpp"
#include "lab/replay_names.hpp"
#include "lab/replay_registers.hpp"
#include "lab/replay_work.hpp"

namespace vpmu::lab {
namespace {

using model::Event;

TEST(NameCounts, the_most_frequent_comes_first_then_by_name) {
  NameCounts counts;
  for (const char* name : {"b", "a", "c", "c"}) counts.add(name);
  const auto sorted = counts.sorted();
  ASSERT_EQ(sorted.size(), 3U);
  EXPECT_EQ(sorted[0].name, "c");
  EXPECT_EQ(sorted[0].count, 2U);
  EXPECT_EQ(sorted[1].name, "a");
  EXPECT_EQ(counts.total(), 4U);
}

TEST(NameCounts, names_beyond_the_bound_are_counted_together) {
  NameCounts counts;
  for (int i = 0; i < 100'000; ++i) counts.add("event" + std::to_string(i));
  EXPECT_EQ(counts.size(), NameCounts::max_names + 1);
  EXPECT_EQ(counts.total(), 100'000U);
  EXPECT_EQ(counts.sorted().back().name, NameCounts::others);
  EXPECT_EQ(counts.sorted().back().count, 100'000U - NameCounts::max_names);
}

TEST(NameCounts, a_name_may_be_that_of_the_rest) {
  NameCounts counts;
  counts.add(NameCounts::others);
  for (int i = 0; i < 1000; ++i) counts.add(std::to_string(i));
  EXPECT_EQ(counts.total(), 1001U);
}

TEST(NameCounts, names_are_bounded_and_printable) {
  NameCounts counts;
  counts.add(std::string(1000, 'x'));
  counts.add("\x1B[31mred\xC3");
  EXPECT_EQ(counts[0].name, std::string(NameCounts::max_length, 'x'));
  EXPECT_EQ(counts[1].name, "?[31mred?");
  EXPECT_EQ(counts.add("\x1B[31mred\xC3"), 1U);
}

TEST(ExitKind, is_told_from_the_names_of_both_vendors_and_of_all_times) {
  for (const char* name :
       {"msr", "MSR_READ", "MSR_WRITE", "msr_read", "io", "IO_INSTRUCTION", "cpuid", "CPUID", "VMCALL", "vmmcall",
        "write_cr4", "read_cr0", "CR_ACCESS", "cr0_sel_write", "XSETBV", "WBINVD"}) {
    EXPECT_EQ(exit_kind(name), ExitKind::instruction) << name;
  }
  for (const char* name : {"interrupt", "EXTERNAL_INTERRUPT", "vintr", "INTERRUPT_WINDOW", "PENDING_INTERRUPT",
                           "NMI_WINDOW", "PREEMPTION_TIMER", "APIC_WRITE"}) {
    EXPECT_EQ(exit_kind(name), ExitKind::asynchronous) << name;
  }
  EXPECT_EQ(exit_kind("hlt"), ExitKind::halt);
  EXPECT_EQ(exit_kind("HLT"), ExitKind::halt);
  EXPECT_EQ(exit_kind("RDPMC"), ExitKind::rdpmc);
  for (const char* name : {"npf", "EPT_VIOLATION", "EXCEPTION_NMI", "PF excp", "UNKNOWN (99)", "0x80000021", ""}) {
    EXPECT_EQ(exit_kind(name), ExitKind::memory) << name;
  }
  EXPECT_EQ(exit_kind("MSR_WRITE FAILED_VMENTRY"), ExitKind::instruction);
}

std::uint32_t completed(ExitKind kind, std::uint64_t from, std::uint64_t to, std::uint32_t emulated = 0) {
  return completed_instructions({.kind = kind, .exit_rip = from, .faulted = false, .emulated = emulated}, &to);
}

TEST(CompletedInstructions, an_instruction_is_complete_once_rip_is_behind_it) {
  EXPECT_EQ(completed(ExitKind::instruction, 0x1000, 0x1002), 1U);
  EXPECT_EQ(completed(ExitKind::instruction, 0x1000, 0x1000), 0U);  // it faulted, or a REP goes on
  EXPECT_EQ(completed(ExitKind::halt, 0x1000, 0x1001), 1U);
  EXPECT_EQ(completed(ExitKind::memory, 0x1000, 0x100F), 1U);       // device memory
  EXPECT_EQ(completed(ExitKind::memory, 0x1000, 0x1000), 0U);       // a page was filled in
  EXPECT_EQ(completed(ExitKind::instruction, 0x1000, 0xFFF0), 0U);  // RIP was set: reset, a task switch
  EXPECT_EQ(completed(ExitKind::memory, 0x1000, 0xFFF0, 1), 1U);    // an emulated jump
  EXPECT_EQ(completed(ExitKind::memory, 0x1000, 0x1020, 7), 7U);    // emulated one after the other
  EXPECT_EQ(completed(ExitKind::asynchronous, 0x1000, 0x1002), 0U);
  EXPECT_EQ(completed(ExitKind::instruction, ~0ULL, 1), 1U);
}

TEST(CompletedInstructions, without_rip_the_kind_decides) {
  const auto by_kind = [](ExitKind kind, bool faulted, std::uint32_t emulated) {
    return completed_instructions({.kind = kind, .exit_rip = 0, .faulted = faulted, .emulated = emulated}, nullptr);
  };
  EXPECT_EQ(by_kind(ExitKind::instruction, false, 0), 1U);
  EXPECT_EQ(by_kind(ExitKind::instruction, true, 0), 0U);
  EXPECT_EQ(by_kind(ExitKind::instruction, false, 1), 1U);
  EXPECT_EQ(by_kind(ExitKind::memory, false, 0), 0U);
  EXPECT_EQ(by_kind(ExitKind::memory, false, 1), 1U);
  EXPECT_EQ(by_kind(ExitKind::asynchronous, false, 0), 0U);
}

TEST(GuestWork, counts_at_the_clocks_rates) {
  const GuestWork work{2000, 1000, 0.5};
  const model::Activity activity = work.between(0, 1'000'000);
  EXPECT_EQ(activity[Event::cycles], 2'000'000U);
  EXPECT_EQ(activity[Event::ref_cycles], 1'000'000U);
  EXPECT_EQ(activity[Event::instructions], 1'000'000U);
  EXPECT_EQ(activity[Event::branches], 200'000U);
}

TEST(GuestWork, loses_nothing_between_stretches) {
  const GuestWork work{2345.678, 1234.567, 0.777};
  const model::Activity whole = work.between(0, 999'983);
  model::Activity sum;
  for (std::uint64_t at = 0; at < 999'983;) {
    const std::uint64_t next = std::min<std::uint64_t>(at + 1 + at % 97, 999'983);
    const model::Activity part = work.between(at, next);
    for (std::size_t i = 0; i < model::event_count; ++i) sum.count[i] += part.count[i];
    at = next;
  }
  EXPECT_EQ(sum.count, whole.count);
}

TEST(GuestWork, stays_in_range_at_the_end_of_time) {
  const GuestWork work{10'000, 10'000, 1};
  EXPECT_EQ(work.between(max_guest_ns - 1, max_guest_ns)[Event::cycles], 10U);
  EXPECT_EQ(work.ticks_to_ns(~0ULL), 1'844'674'407'370'955'161U > max_guest_ns ? max_guest_ns : 0);
  EXPECT_EQ(GuestWork(1, 1, 1).ticks_to_ns(~0ULL), max_guest_ns);
}

TEST(PmuRegister, the_ends_of_counter_rows_are_other_msrs_unless_the_guest_has_such_counters) {
  Profile profile = find_profile("intel-v2")->profile;
  EXPECT_TRUE(pmu_register(profile, 0xC1));
  EXPECT_TRUE(pmu_register(profile, 0x18D));
  EXPECT_FALSE(pmu_register(profile, 0xCE));   // PLATFORM_INFO
  EXPECT_FALSE(pmu_register(profile, 0x194));  // FLEX_RATIO
  profile.gp_counters = 16;
  EXPECT_TRUE(pmu_register(profile, 0xCE));
  EXPECT_FALSE(pmu_register(profile, 0x10));
}

}  // namespace
}  // namespace vpmu::lab
