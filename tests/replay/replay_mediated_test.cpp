// Replay in mediated mode: which recorded exits would not have happened, and what switching costs at the others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "lab/options.hpp"
#include "lab/replay.hpp"
#include "lab/replay_file.hpp"
#include "replay/trace_builder.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::lab {
namespace {

using test::TraceBuilder;
using testing::HasSubstr;

constexpr std::uint64_t count_cycles = 0x3C | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;

ReplayOptions options(const std::string& profile = "intel-v4",
                      ReplayOptions::Backing backing = ReplayOptions::Backing::mediated) {
  ReplayOptions options;
  options.mhz = 1000;
  options.backing = backing;
  options.profile = parse_profile(profile).value();
  for (const char* policy : {"best,switch=write", "best,switch=elide", "best,switch=ownership"}) {
    options.policies.push_back({policy, parse_policy(policy).value()});
  }
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

const PolicyResult& elide(const ReplayResult& result) { return result.policies[1]; }

TEST(ReplayMediated, counters_and_global_registers_pass_and_selectors_exit) {
  TraceBuilder trace;
  trace.entry().write(0x186, count_cycles).write(0x4C1, 0).write(0x38F, 1).read(0x4C1).read(0x38E).write(0x390, 1);
  const ReplayResult result = replay(trace);
  EXPECT_EQ(elide(result).pmu_exits, 1U);
  EXPECT_EQ(elide(result).use.hardware.by_guest, (model::AccessCounts{.rdmsr = 2, .wrmsr = 3, .rdpmc = 0}));
  // Under ownership the GLOBAL_* registers exit.
  EXPECT_EQ(result.policies[2].pmu_exits, 4U);
  EXPECT_EQ(result.policies[2].use.hardware.by_guest, (model::AccessCounts{.rdmsr = 1, .wrmsr = 1, .rdpmc = 0}));
  EXPECT_EQ(result.differing_answers, 0U);
}

TEST(ReplayMediated, every_exit_but_a_passed_access_switches) {
  const auto switches = [](const TraceBuilder& trace) {
    return elide(replay(trace)).use.hardware.others.host_perf_calls / 2;
  };
  TraceBuilder idle;
  idle.entry();
  for (int i = 0; i < 10; ++i) idle.exit("io").skip().entry();
  EXPECT_EQ(switches(idle), 10U);
  TraceBuilder passing;
  passing.entry();
  for (int i = 0; i < 10; ++i) passing.write(0x4C1, 5);
  EXPECT_EQ(switches(passing), 0U);
  TraceBuilder other_msrs;
  other_msrs.entry();
  for (int i = 0; i < 10; ++i) other_msrs.write(0x6E0, 5);
  EXPECT_EQ(switches(other_msrs), 10U);
}

TEST(ReplayMediated, a_passed_access_retires_on_the_hardware) {
  TraceBuilder trace;
  trace.entry().write(0x186, (count_cycles & ~evtsel::event) | 0xC0).write(0x38F, 1).read(0x4C1).read(0x4C1);
  const ReplayResult mediated = replay(trace);
  EXPECT_EQ(mediated.differing_answers, 0U);
  EXPECT_EQ(mediated.retired, 4U);
  // The answers of emulated mode, where those instructions are completed by the hypervisor.
  ReplayOptions both = options("intel-v4", ReplayOptions::Backing::emulated);
  EXPECT_EQ(replay(trace, both).retired, 4U);
}

TEST(ReplayMediated, rdpmc_exits_are_saved_though_the_trace_does_not_say_their_counter) {
  TraceBuilder trace;
  trace.entry().write(0x186, count_cycles).write(0x38F, 1).exit("rdpmc").skip().entry();
  const ReplayResult result = replay(trace);
  EXPECT_EQ(elide(result).pmu_exits, 1U);
  EXPECT_EQ(result.untraced_rdpmc, 1U);
}

TEST(ReplayMediated, overflows_interrupt_as_in_emulated_mode) {
  TraceBuilder trace;
  trace.entry().write(0x186, count_cycles).write(0x4C1, (1ULL << 48) - 50'000).write(0x38F, 1);
  trace.wait_us(100).exit("interrupt").entry().exit("interrupt").entry();
  for (const auto backing : {ReplayOptions::Backing::emulated, ReplayOptions::Backing::mediated}) {
    for (const PolicyResult& policy : replay(trace, options("intel-v4", backing)).policies) {
      EXPECT_EQ(policy.pmis, 1U) << policy.name;
    }
  }
}

TEST(ReplayMediated, a_guest_that_it_cannot_serve_is_an_error_at_its_first_access) {
  ReplayOptions with = options();
  with.profile->ds = true;
  with.profile->perf_capabilities |= 1U << 8;  // a PEBS record format
  Replay replay{with};
  std::istringstream lines{TraceBuilder{}.entry().write(0x186, count_cycles).text()};
  std::string error;
  for (std::string line; std::getline(lines, line);) {
    if (const auto taken = replay.take(line); !taken) error = taken.error();
  }
  EXPECT_EQ(error, "mediated mode cannot serve this guest's PMU: PEBS stays the host's");
}

TEST(ReplayMediated, the_recorded_guest_is_answered_alike_and_each_switch_costs_less_than_the_one_before) {
  ReplayOptions recorded = options();
  recorded.profile.reset();
  recorded.mhz.reset();
  const ReplayResult result = replay_trace(VPMU_TRACES "/linux-6.1-guest-intel-v2.trace.xz", recorded).value();
  EXPECT_EQ(result.differing_answers, 0U);
  ReplayOptions emulated = recorded;
  emulated.backing = ReplayOptions::Backing::emulated;
  const ReplayResult as_emulated = replay_trace(VPMU_TRACES "/linux-6.1-guest-intel-v2.trace.xz", emulated).value();
  for (std::size_t i = 0; i < result.policies.size(); ++i) {
    const PolicyResult& policy = result.policies[i];
    EXPECT_EQ(policy.pmis, as_emulated.policies.front().pmis) << policy.name;
    EXPECT_EQ(policy.unhealthy, 0U) << policy.name;
    EXPECT_EQ(policy.pmu_exits + policy.use.hardware.by_guest.total(), result.pmu_accesses()) << policy.name;
    if (i > 0) {
      EXPECT_LT(policy.use.cost_ps, result.policies[i - 1].use.cost_ps) << policy.name;
    }
  }
  EXPECT_LT(elide(result).pmu_exits, result.pmu_accesses() / 2);
  // Most exits of this guest have nothing to do with its PMU: switching at each is dearer than emulated mode.
  EXPECT_GT(elide(result).use.cost_ps, as_emulated.policies.front().use.cost_ps);
  EXPECT_LT(result.policies[2].use.cost_ps, as_emulated.policies.front().use.cost_ps);
}

}  // namespace
}  // namespace vpmu::lab
