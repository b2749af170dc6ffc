// Sweeps: their points, what the points run, and slices joined again.
#include "lab/experiments/sweep.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "cli/run_command.hpp"
#include "lab/experiments/sweep_merge.hpp"
#include "lab/experiments/sweep_run.hpp"
#include "lab/options.hpp"

namespace vpmu::lab {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

using Texts = std::vector<std::string>;

const std::atomic<bool> never{false};

LabOptions generic(unsigned ticks = 20) {
  LabOptions options;
  options.platform = model::platforms().front();
  options.ticks = ticks;
  return options;
}

std::expected<Sweep, std::string> try_sweep(const Texts& experiments, const Texts& keys,
                                            const LabOptions& options = {}) {
  std::vector<const Experiment*> chosen;
  for (const std::string& name : experiments) chosen.push_back(find_experiment(name));
  std::vector<SweepKey> parsed;
  for (const std::string& key : keys) parsed.push_back(parse_sweep_key(key).value());
  return Sweep::create(chosen, parsed, options);
}

Sweep sweep_of(const Texts& experiments, const Texts& keys, const LabOptions& options = {}) {
  auto sweep = try_sweep(experiments, keys, options);
  EXPECT_TRUE(sweep) << sweep.error();
  return std::move(*sweep);
}

std::string error_of(const Texts& keys, const LabOptions& options = {}) {
  const auto sweep = try_sweep({"pmi"}, keys, options);
  return sweep ? "" : sweep.error();
}

std::vector<SweepResult> run(const Sweep& sweep, Slice slice = {}, unsigned threads = 2) {
  return run_sweep(sweep, slice, threads, never, [](unsigned, unsigned) {});
}

std::string lines(const Sweep& sweep, Slice slice = {}, unsigned threads = 2) {
  std::string text;
  for (const SweepResult& result : run(sweep, slice, threads)) text += result.line;
  return text;
}

/// The first figure of each point.
std::vector<double> figures(const Sweep& sweep) {
  std::vector<double> all;
  for (const SweepResult& result : run(sweep)) all.push_back(result.figures.at(0));
  return all;
}

TEST(SweepPoints, are_all_combinations_and_the_last_key_changes_fastest) {
  const Sweep sweep = sweep_of({"emulation", "pmi"}, {"fold=each,auto", "exit_cycles=1000,2000,3000"});
  ASSERT_EQ(sweep.size(), 12);
  EXPECT_THAT(sweep.point(1).settings, ElementsAre(Pair("fold", "each"), Pair("exit_cycles", "1000")));
  EXPECT_THAT(sweep.point(2).settings, ElementsAre(Pair("fold", "each"), Pair("exit_cycles", "2000")));
  EXPECT_THAT(sweep.point(6).settings, ElementsAre(Pair("fold", "auto"), Pair("exit_cycles", "3000")));
  EXPECT_STREQ(sweep.point(6).experiment->key, "emulation");
  EXPECT_STREQ(sweep.point(7).experiment->key, "pmi");
}

TEST(SweepPoints, have_their_values_in_every_guest) {
  const Sweep sweep =
      sweep_of({"tick", "sampling"}, {"fold=7", "policy=before-s1", "exit_cycles=1234", "gp=5",
                                      "platform=emerald-rapids", "profile=intel-v4", "backing=mediated"});
  for (std::size_t number = 1; number <= sweep.size(); ++number) {
    const SweepPoint point = sweep.point(number);
    EXPECT_EQ(point.profile, "intel-v4");
    for (const SweepGuest& guest : point.guests) {
      // Names come first, wherever they stand.
      EXPECT_EQ(to_text(guest.job.policy), to_text(policy_of("before-s1,fold=7")));
      EXPECT_EQ(guest.job.platform.name, "emerald-rapids");
      EXPECT_EQ(guest.job.platform.exit_cycles.value, 1234);
      EXPECT_EQ(guest.job.profile.gp_counters, 5);
      EXPECT_EQ(guest.job.profile.version, 4);
      EXPECT_EQ(guest.job.pmu, GuestOptions::Pmu::mediated);
    }
  }
}

TEST(SweepPoints, tell_their_guests_what_follows_from_the_platform) {
  const Sweep sweep = sweep_of({"pmi"}, {"core_mhz=1000,2000"});
  EXPECT_THAT(sweep.point(1).guests.front().job.append, HasSubstr("period=10000 "));
  EXPECT_THAT(sweep.point(2).guests.front().job.append, HasSubstr("period=20000 "));
}

TEST(SweepPoints, may_be_100000) {
  std::string many = "open_ns=0";
  for (int i = 1; i < 1000; ++i) many += "," + std::to_string(i);
  std::string hundred = "close_ns=0";
  for (int i = 1; i < 100; ++i) hundred += "," + std::to_string(i);
  EXPECT_EQ(sweep_of({"pmi"}, {many, hundred}).size(), Sweep::max_points);
  EXPECT_EQ(error_of({many, hundred, "fold=1,2"}), "a sweep has at most 100000 points");
}

TEST(SweepKeys, that_are_wrong_are_refused_before_anything_runs) {
  for (const char* text : {"", "fold", "=1"}) {
    EXPECT_THAT(parse_sweep_key(text).error(), HasSubstr("--sweep takes KEY=A,B,...")) << text;
  }
  EXPECT_THAT(error_of({"speed=1"}),
              HasSubstr("unknown key 'speed'; keys: platform, profile, policy, backing; events"));
  EXPECT_THAT(error_of({"events=all"}), HasSubstr("takes recreate, keep or soft, not 'all'"));
  EXPECT_THAT(error_of({"fold=1,"}), HasSubstr("not ''"));
  EXPECT_THAT(error_of({"fold=1", "fold=2"}), HasSubstr("fold is swept twice"));
  EXPECT_THAT(error_of({"fold=1,2,1"}), HasSubstr("fold has the value '1' twice"));
  EXPECT_THAT(error_of({"policy=best,worst"}), HasSubstr("unknown policy 'worst'"));
  EXPECT_THAT(error_of({"profile=z80"}), HasSubstr("unknown profile 'z80'"));
  EXPECT_THAT(error_of({"platform=cray"}), HasSubstr("unknown platform 'cray'"));
  EXPECT_THAT(error_of({"platform=turin"}, generic()), HasSubstr("leave --platform out"));
  EXPECT_THAT(error_of({"backing=real"}), HasSubstr("emulated or mediated"));
  EXPECT_THAT(error_of({"backing=emulated,mediated"}), HasSubstr("mediated backing is not possible"));
  EXPECT_THAT(error_of({"gp=4,17"}), HasSubstr("more than 16"));
  EXPECT_THAT(error_of({"exit_cycles=fast"}), HasSubstr("exit_cycles takes a number, not 'fast'"));
  EXPECT_THAT(error_of({"exit_cycles=-1"}), HasSubstr("exit_cycles is negative"));
  EXPECT_THAT(error_of({"exit_cycles=nan"}), HasSubstr("exit_cycles is not a number"));
  EXPECT_THAT(error_of({"core_mhz=0.5"}), HasSubstr("core_mhz must be from 100 to 10,000"));
}

TEST(SweepKeys, belong_to_one_kind) {
  for (const model::FigureKey& figure : model::platform_figures()) {
    EXPECT_FALSE(is_policy_key(figure.key) || is_profile_key(figure.key)) << figure.key;
  }
  std::string_view keys = "events reload release pause retire switch fold";
  EXPECT_EQ(std::ranges::count(policy_keys(), ','), std::ranges::count(keys, ' '));
  for (std::size_t at = 0; at < keys.size(); at = std::min(keys.find(' ', at), keys.size() - 1) + 1) {
    EXPECT_FALSE(is_profile_key(keys.substr(at, keys.find(' ', at) - at)));
  }
}

TEST(SweepSlices, are_every_nth_point) {
  const Slice slice = parse_slice("3/8").value();
  EXPECT_EQ(slice.first, 3);
  EXPECT_EQ(slice.count, 8);
  EXPECT_EQ(slice.size(19), 3);  // 3, 11, 19
  EXPECT_EQ(slice.size(18), 2);
  EXPECT_EQ(slice.size(2), 0);
  for (const char* text :
       {"", "1", "/", "0/2", "3/2", "1/0", "-1/2", "a/b", "1/2/3", " 1/2", "1/99999999999999999999"}) {
    EXPECT_FALSE(parse_slice(text)) << text;
  }
}

TEST(SweepSlices, share_out_every_point_once) {
  std::mt19937_64 random{1};
  for (int i = 0; i < 1000; ++i) {
    const std::size_t points = random() % 200;
    const std::size_t count = 1 + random() % 250;
    std::vector<std::size_t> taken;
    for (std::size_t first = 1; first <= count; ++first) {
      const Slice slice{.first = first, .count = count};
      for (std::size_t n = 0; n < slice.size(points); ++n) taken.push_back(first + n * count);
    }
    std::ranges::sort(taken);
    std::vector<std::size_t> all(points);
    std::iota(all.begin(), all.end(), 1);
    ASSERT_EQ(taken, all) << points << " points, " << count << " slices";
  }
}

TEST(SweepId, tells_sweeps_apart) {
  const std::string id = sweep_of({"pmi"}, {"fold=1,2"}).id();
  EXPECT_EQ(sweep_of({"pmi"}, {"fold=1,2"}).id(), id);
  EXPECT_EQ(id.size(), 16);
  LabOptions dearer = generic();
  dearer.platform->exit_cycles.value += 1;
  const Texts ids{id,
                  sweep_of({"switch"}, {"fold=1,2"}).id(),
                  sweep_of({"pmi"}, {"fold=2,1"}).id(),
                  sweep_of({"pmi"}, {"fold=1,3"}).id(),
                  sweep_of({"pmi"}, {"gp=1,2"}).id(),
                  sweep_of({"pmi"}, {"fold=1,2"}, generic()).id(),
                  sweep_of({"pmi"}, {"fold=1,2"}, dearer).id(),
                  sweep_of({"pmi"}, {"fold=1,2"}, generic(21)).id()};
  for (auto one = ids.begin(); one != ids.end(); ++one) EXPECT_EQ(std::count(ids.begin(), ids.end(), *one), 1);
}

TEST(SweepRun, writes_the_same_lines_each_time_and_on_any_number_of_threads) {
  const Sweep sweep = sweep_of({"pmi", "sampling", "emulation", "switch", "tick"}, {"fold=auto"}, generic());
  const std::string once = lines(sweep, {}, 1);
  EXPECT_EQ(lines(sweep, {}, 3), once);
}

TEST(SweepRun, a_line_says_what_ran_and_what_came_out) {
  const std::string line = lines(sweep_of({"emulation"}, {"fold=0", "open_ns=2.5", "events=keep"}, generic()));
  EXPECT_EQ(std::ranges::count(line, '\n'), 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["point"], 1);
  EXPECT_EQ(json["of"], 1);
  EXPECT_EQ(json["experiment"], "emulation");
  EXPECT_EQ(json["settings"], nlohmann::json({{"fold", 0}, {"open_ns", 2.5}, {"events", "keep"}}));
  EXPECT_EQ(json["platform"], "generic");
  EXPECT_EQ(json["profile"], "intel-v2");
  EXPECT_EQ(json["backing"], "emulated");
  EXPECT_EQ(json["policy"], to_text(policy_of("best,fold=0,events=keep")));
  for (const char* guest : {"off", "idle", "counting"}) {
    EXPECT_GT(json["modelled"][guest]["exit_ns"], 0) << guest;
    EXPECT_GE(json["modelled"][guest]["exits"]["cpuid"], 20'000) << guest;
  }
  EXPECT_FALSE(json.contains("measured"));
}

TEST(SweepRun, gives_the_figures_of_the_tables) {
  LabOptions options = generic(100);
  options.measure = LabOptions::Measure::no;
  const Experiment* const chosen[] = {find_experiment("pmi"), find_experiment("tick")};
  const auto sections = run_lab(chosen, options, never, [](const std::string&, unsigned, unsigned) {});
  // The rows before-s0 and best; T = 0 and auto.
  const auto& handlers = sections[0].tables.front().rows;
  EXPECT_THAT(figures(sweep_of({"pmi"}, {"policy=before-s0,best"}, options)),
              ElementsAre(handlers[0][1].number.value(), handlers[4][1].number.value()));
  const auto& ticks = sections[1].tables.front().rows;
  EXPECT_THAT(figures(sweep_of({"tick"}, {"policy=before-s4", "fold=0,auto"}, options)),
              ElementsAre(testing::DoubleEq(ticks[0][1].number.value() * 1000),
                          testing::DoubleEq(ticks[4][1].number.value() * 1000)));
}

TEST(SweepRun, figures_follow_the_costs_that_they_depend_on) {
  for (const char* experiment : {"pmi", "sampling", "emulation", "switch"}) {
    const std::vector<double> dearer = figures(sweep_of({experiment}, {"exit_cycles=500,1000,2000"}, generic()));
    EXPECT_TRUE(std::ranges::is_sorted(dearer, std::less_equal{})) << experiment;
  }
  const std::vector<double> opened =
      figures(sweep_of({"pmi"}, {"policy=before-s0,best", "open_ns=1000,9000"}, generic()));
  EXPECT_GT(opened[1] - opened[0], 7000);
  EXPECT_EQ(opened[2], opened[3]);
  // The handler without PMU work takes what the platform says, whatever an exit costs.
  const std::vector<double> ticks =
      figures(sweep_of({"tick"}, {"tick_ns=5000,9000", "exit_cycles=500,1000"}, generic()));
  EXPECT_NEAR(ticks[2] - ticks[0], 4000, 20);
  EXPECT_NEAR(ticks[1], ticks[0], 20);
}

TEST(SweepRun, a_point_whose_guest_fails_says_so_and_the_others_stand) {
  const Sweep sweep = sweep_of({"emulation"}, {"profile=intel-none,intel-v2"}, generic());
  const auto results = run(sweep);
  EXPECT_TRUE(results[0].figures.empty());
  const auto failed = nlohmann::json::parse(results[0].line);
  EXPECT_THAT(failed["failed"].get<std::string>(), HasSubstr("no figure exits"));
  EXPECT_FALSE(failed.contains("modelled"));
  EXPECT_EQ(results[1].figures.size(), 3);
  const std::vector<Table> tables = sweep_tables(sweep, results, 10);
  ASSERT_EQ(tables.size(), 1);
  EXPECT_EQ(tables[0].rows[0][2].text, "failed");
  EXPECT_EQ(tables[0].rows[1][2].number, results[1].figures[0]);
}

TEST(SweepRun, the_slowest_and_the_fastest_clocks_are_possible) {
  for (const SweepResult& result : run(sweep_of({"tick"}, {"core_mhz=100,10000", "tsc_mhz=100,10000"}, generic(2)))) {
    EXPECT_FALSE(result.figures.empty()) << result.line;
  }
}

TEST(SweepRun, stops_when_asked) {
  const std::atomic<bool> at_once{true};
  EXPECT_THROW(
      static_cast<void>(run_sweep(sweep_of({"pmi"}, {"fold=1,2,3"}), {}, 2, at_once, [](unsigned, unsigned) {})),
      Interrupted);
}

TEST(SweepMerge, of_all_slices_in_any_order_is_the_whole_byte_for_byte) {
  const TemporaryDirectory directory;
  const Sweep sweep = sweep_of({"emulation", "switch"}, {"fold=each,10,auto", "exit_cycles=1000,2000"}, generic());
  const std::string whole = lines(sweep);
  for (const std::size_t count : {1UL, 5UL, 20UL}) {
    Texts paths;
    for (std::size_t first = count; first > 0; --first) {
      paths.push_back(directory.write(std::to_string(first), lines(sweep, {.first = first, .count = count})));
    }
    EXPECT_EQ(merge_sweep(paths).value(), whole) << count;
  }
}

class MergeRefuses : public testing::Test {
 protected:
  std::string error(const Texts& contents) {
    Texts paths;
    for (const std::string& content : contents) {
      paths.push_back(directory_.write(std::string(1, static_cast<char>('a' + paths.size())), content));
    }
    const auto merged = merge_sweep(paths);
    return merged ? "" : merged.error();
  }
  static std::string line(int point, int of, const char* sweep = "s") {
    return nlohmann::json{{"sweep", sweep}, {"point", point}, {"of", of}}.dump() + "\n";
  }

 private:
  TemporaryDirectory directory_;
};

TEST_F(MergeRefuses, points_that_are_missing_or_there_twice) {
  EXPECT_EQ(error({line(1, 2), line(2, 2)}), "");
  EXPECT_EQ(error({"", line(1, 1), ""}), "");
  EXPECT_EQ(error({"", ""}), "there is no point in these files");
  EXPECT_EQ(error({line(2, 4)}), "of 4 points these are missing: 1, 3, 4");
  EXPECT_THAT(error({line(1, 50)}), HasSubstr("10, 11 and 39 more"));
  EXPECT_THAT(error({line(1, 2), line(2, 2) + line(1, 2)}), HasSubstr("b: line 2 is point 1, which is there already"));
}

TEST_F(MergeRefuses, points_of_another_sweep) {
  EXPECT_THAT(error({line(1, 2), line(2, 3)}), HasSubstr("b: line 1 is of another sweep"));
  EXPECT_THAT(error({line(1, 2), line(2, 2, "t")}), HasSubstr("b: line 1 is of another sweep"));
}

TEST_F(MergeRefuses, lines_that_are_no_points) {
  const std::string whole = line(1, 1);
  for (const std::string& text :
       {std::string{"\n"}, std::string{"{}\n"}, std::string{"[]"}, std::string{"point"}, std::string("\0\xff\x80\n", 4),
        whole.substr(0, whole.size() - 3), line(0, 1), line(2, 1), line(1, 100'001), line(-1, 1), line(1, -1),
        std::string{R"({"sweep": 1, "point": 1, "of": 1})"}, std::string{R"({"sweep": "s", "point": 1.0, "of": 1})"},
        std::string{R"({"sweep": "s", "point": 1, "of": 18446744073709551616})"}, std::string(50'000, '[')}) {
    EXPECT_THAT(error({whole, text}), HasSubstr("b: line 1 is no point of a sweep")) << text;
  }
  EXPECT_THAT(error({std::string(100'000, ' ')}), HasSubstr("line 1 is too long"));
}

TEST_F(MergeRefuses, or_joins_whatever_has_a_changed_byte) {
  const std::string whole = line(1, 3) + line(2, 3) + line(3, 3);
  std::mt19937_64 random{1};
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string changed = whole;
    changed[random() % changed.size()] = static_cast<char>(random());
    const std::string why = error({changed});
    EXPECT_EQ(std::ranges::count(why, '\n'), 0) << why;
    if (!why.empty()) ++refused;
  }
  EXPECT_GT(refused, 1500);
}

}  // namespace
}  // namespace vpmu::lab
