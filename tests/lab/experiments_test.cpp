// The experiments do not know what should come out: their figures follow the costs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <vector>

#include "lab/experiments/experiment.hpp"
#include "lab/experiments/section_report.hpp"

namespace vpmu::lab {
namespace {

using model::Figure;
using model::Platform;

const std::atomic<bool> never{false};

Section run(const char* key, const Platform& platform, unsigned ticks = 200) {
  LabOptions options;
  options.measure = LabOptions::Measure::no;
  options.platform = platform;
  options.ticks = ticks;
  const Experiment* const chosen[] = {find_experiment(key)};
  return run_lab(chosen, options, never, [](const std::string&, unsigned, unsigned) {}).front();
}

Platform generic() { return model::platforms().front(); }
Platform with(Figure Platform::* figure, double factor) {
  Platform platform = generic();
  (platform.*figure).value *= factor;
  return platform;
}

/// A number of the first row whose first label is `row`.
double number(const Section& section, const std::string& table, const std::string& row, const std::string& column) {
  for (const Table& one : section.tables) {
    if (one.key != table) continue;
    for (std::size_t c = 0; c < one.columns.size(); ++c) {
      if (one.columns[c].key != column) continue;
      for (const auto& cells : one.rows) {
        const bool found = cells[0].text == row || (cells.size() > 1 && cells[1].text == row);
        if (found) return cells[c].number.value();
      }
    }
  }
  ADD_FAILURE() << "no " << table << "/" << row << "/" << column;
  return 0;
}

TEST(Pmi, before_follows_the_cost_of_opening_and_after_does_not) {
  const Section once = run("pmi", generic());
  const Section twice = run("pmi", with(&Platform::open_ns, 2));
  const auto grows = [&](const char* policy) {
    return number(twice, "handler", policy, "handler_ns") - number(once, "handler", policy, "handler_ns");
  };
  // One event is opened in each handler.
  EXPECT_NEAR(grows("before-s0"), generic().open_ns.value, generic().open_ns.value / 100);
  EXPECT_EQ(grows("before-s1"), 0);
  EXPECT_EQ(grows("best,events=keep"), 0);
}

TEST(Pmi, without_host_work_stands_on_its_floor) {
  Platform free = generic();
  for (Figure Platform::* figure :
       {&Platform::open_ns, &Platform::close_ns, &Platform::set_period_ns, &Platform::live_set_period_ns,
        &Platform::enable_ns, &Platform::disable_ns, &Platform::read_ns, &Platform::live_read_ns, &Platform::signal_ns,
        &Platform::free_read_cycles, &Platform::rdmsr_cycles, &Platform::wrmsr_cycles, &Platform::rdpmc_cycles}) {
    (free.*figure).value = 0;
  }
  const Section section = run("pmi", free);
  EXPECT_EQ(number(section, "handler", "before-s1", "host_ns"), 0);
  EXPECT_GT(number(section, "handler", "before-s1", "floor_ns"), 0);
}

TEST(Pmi, a_dearer_exit_moves_every_policy_by_the_same) {
  const Section once = run("pmi", generic());
  const Section twice = run("pmi", with(&Platform::exit_cycles, 2));
  const double moved =
      number(twice, "handler", "before-s0", "floor_ns") - number(once, "handler", "before-s0", "floor_ns");
  EXPECT_GT(moved, 0);
  EXPECT_NEAR(number(twice, "handler", "before-s1", "handler_ns") - number(once, "handler", "before-s1", "handler_ns"),
              moved, moved / 100);
}

TEST(Sampling, tracking_saves_calls_and_time_and_saves_more_when_pausing_is_dearer) {
  const Section once = run("sampling", generic());
  const Section dear = run("sampling", with(&Platform::disable_ns, 4));
  for (const char* table : {"plain", "multiplexed"}) {
    EXPECT_LT(number(once, table, "before-s1,pause=tracked", "calls"), number(once, table, "before-s1", "calls"));
    EXPECT_GT(number(once, table, "before-s1,pause=tracked", "gain"), 1);
    EXPECT_GT(number(dear, table, "before-s1", "handler_ns"), number(once, table, "before-s1", "handler_ns"));
  }
}

TEST(Emulation, the_exit_rate_is_that_of_the_exit_alone_where_nothing_is_reprogrammed) {
  const Section section = run("emulation", generic());
  EXPECT_EQ(number(section, "exits", "best", "counting"), number(section, "exits", "best", "off"));
  EXPECT_LT(number(section, "exits", "before-s2", "counting"), number(section, "exits", "before-s2", "off"));
  const Section twice = run("emulation", with(&Platform::exit_cycles, 2));
  EXPECT_NEAR(number(section, "exits", "best", "off") / number(twice, "exits", "best", "off"), 2, 0.05);
}

TEST(Switch, elision_saves_a_wrmsr_less_an_rdpmc_for_each_equal_counter) {
  const auto saved = [](const Platform& platform) {
    const Section section = run("switch", platform);
    double before = 0;
    double after = 0;
    for (const auto& row : section.tables.front().rows) {
      if (row[1].text != "unused") continue;
      if (row[2].text == "before-s3") before = row[7].number.value();
      if (row[2].text == "before-s3,switch=elide") after = row[7].number.value();
    }
    return before - after;
  };
  constexpr double counters = 11;
  const Platform platform = generic();
  EXPECT_EQ(saved(platform), counters * (platform.wrmsr_cycles.value - platform.rdpmc_cycles.value));
  const Platform dear = with(&Platform::wrmsr_cycles, 3);
  EXPECT_EQ(saved(dear), counters * (dear.wrmsr_cycles.value - dear.rdpmc_cycles.value));
}

TEST(Tick, t_0_adds_at_least_100_times_what_100000_adds_and_auto_is_as_good_as_the_best) {
  Platform milan = *model::find_platform("epyc-milan");
  const Section section = run("tick", milan, 1000);
  const double at_100000 = number(section, "tick", "100,000", "added_ns");
  EXPECT_GE(number(section, "tick", "0", "added_ns"), 100 * at_100000);
  for (const char* tolerance : {"1,000", "100,000", "10,000,000"}) {
    EXPECT_LE(number(section, "tick", "auto", "added_ns"), number(section, "tick", tolerance, "added_ns"));
  }
}

TEST(Tick, t_bounds_how_late_an_overflow_interrupt_is) {
  const Section section = run("tick", generic(), 50);
  // What is between an overflow and the handler's look when nothing is folded.
  const double floor = number(section, "work", "0", "late_max");
  EXPECT_LE(number(section, "work", "1,000", "late_max"), 1000 + floor);
  EXPECT_LE(number(section, "work", "100,000", "late_max"), 100'000 + floor);
  // A thousandth of the period.
  EXPECT_LE(number(section, "work", "auto", "late_max"), 1000 + floor);
}

/// One guest whose emulated instructions do not depend on time: exactly as many at any cost.
TEST(Fold, reprograms_are_emulated_events_divided_by_t_plus_1) {
  GuestPool pool{2, never, {}};
  const auto periods_set = [&](std::uint64_t tolerance) {
    const GuestJob job{.image = "exits",
                       .append = "kind=cpuid ring=kernel pmu=counting count=20000",
                       .profile = find_profile("intel-v2")->profile,
                       .policy = policy_of("before-s4,fold=" + std::to_string(tolerance)),
                       .platform = generic()};
    return pool.run({job}).front().result.host_calls.set_period;
  };
  const std::uint64_t set_up = periods_set(Policy::fold_auto - 1);
  const std::uint64_t emulated = periods_set(0) - set_up;
  EXPECT_GE(emulated, 20'000);
  for (const std::uint64_t tolerance : {1ULL, 10ULL, 99ULL, 1000ULL}) {
    // The checks of the guest write the counter once between, which begins a new account.
    EXPECT_NEAR(static_cast<double>(periods_set(tolerance) - set_up), static_cast<double>(emulated / (tolerance + 1)),
                1)
        << tolerance;
  }
}

TEST(Lab, modelled_figures_are_the_same_each_time) {
  const auto all = [] {
    LabOptions options;
    options.measure = LabOptions::Measure::no;
    options.ticks = 50;
    std::vector<const Experiment*> chosen;
    for (const Experiment& experiment : experiments()) chosen.push_back(&experiment);
    return sections_json(run_lab(chosen, options, never, [](const std::string&, unsigned, unsigned) {}));
  };
  EXPECT_EQ(all(), all());
}

TEST(Lab, stops_when_asked) {
  const std::atomic<bool> at_once{true};
  const Experiment* const chosen[] = {find_experiment("tick")};
  EXPECT_THROW(static_cast<void>(run_lab(chosen, LabOptions{}, at_once, [](const std::string&, unsigned, unsigned) {})),
               Interrupted);
}

}  // namespace
}  // namespace vpmu::lab
