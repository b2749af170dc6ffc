// S4: a guest's 1 kHz tick under a load of exits, with a counter of instructions resident: how long is its handler, and
// how late does an overflow interrupt come?
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>

#include "lab/experiments/experiment.hpp"
#include "lab/experiments/measure.hpp"
#include "lab/experiments/published.hpp"
#include "lab/experiments/real_guest.hpp"

namespace vpmu::lab {
namespace {

/// A tolerance T, as published or our own choice for each period.
struct Tolerance {
  const char* name;
  const char* policy;
};
constexpr std::array tolerances{
    Tolerance{"0", "before-s4"},
    Tolerance{"1,000", "before-s4,fold=1000"},
    Tolerance{"100,000", "before-s4,fold=100000"},
    Tolerance{"10,000,000", "before-s4,fold=10000000"},
    Tolerance{"auto", "before-s4,fold=auto"},
    Tolerance{"auto, best", "best"},
};
constexpr double sampled_period = 1'000'000;  // instructions
constexpr double us = 1000;                   // ns

const Profile& profile_of(const model::Platform& platform) {
  return find_profile(platform.vendor == Vendor::intel ? "intel-v2" : "amd-core")->profile;
}

GuestJob job_of(const model::Platform& platform, const char* policy, std::string append) {
  return {.image = "tick",
          .append = std::move(append),
          .profile = profile_of(platform),
          .policy = policy_of(policy),
          .platform = platform};
}

GuestJob late_job(const model::Platform& platform, const char* policy) {
  GuestJob job =
      job_of(platform, policy,
             fmt::format("only=configured event=instructions load=cpuids period={:.0f} samples=4", sampled_period));
  job.image = "sampling";
  return job;
}

double mean_tick_ns(const GuestFigures& figures) { return figures.ns(figures.line("tick").number("mean")); }

constexpr std::string_view load = "hz=1000 burst=64 work=1000";
constexpr std::string_view no_counters = "resident=0 group=0";

/// Iterations of the loop in the handler that make it take what the platform says, without any PMU.
std::uint64_t base_work(GuestPool& pool, const model::Platform& platform) {
  constexpr double some = 1000;
  std::vector<GuestJob> jobs;
  for (const double base : {0.0, some}) {
    jobs.push_back(job_of(platform, "best", fmt::format("ticks=50 {} {} base={:.0f}", load, no_counters, base)));
  }
  const std::vector<GuestFigures> figures = pool.run(jobs);
  const double bare = mean_tick_ns(figures[0]);
  const double each = (mean_tick_ns(figures[1]) - bare) / some;
  return static_cast<std::uint64_t>(std::max(0.0, (platform.tick_ns.value - bare) / each));
}

const published::TickTimes* published_of(const Tolerance& tolerance) {
  for (const published::TickTimes& times : published::tick_times) {
    if (with_commas(times.tolerance, 0) == tolerance.name) return &times;
  }
  return nullptr;
}

std::vector<Column> time_columns(const char* prefix, Origin origin) {
  std::vector<Column> columns;
  for (const char* name : {"mean", "p50", "p99", "p99.9", "max"}) {
    columns.push_back({fmt::format("{}{}", prefix, name), name, origin, 2});
  }
  return columns;
}

}  // namespace

void measure_tick(Measurements& out, const std::atomic<bool>& stop) {
  std::vector<Way> ways;
  for (const Tolerance& tolerance : tolerances) {
    auto guest = std::make_shared<RealRetiringGuest>(policy_of(tolerance.policy), RealRetiringGuest::Use::counting);
    if (const std::string why = guest->why_not(); !why.empty()) {
      out.put(tolerance.policy, why);
      continue;
    }
    constexpr std::uint64_t few = 500;       // system calls at each
    constexpr std::uint64_t many = 100'000;  // at some
    ways.push_back({.name = tolerance.policy,
                    .work = [guest](std::uint64_t times) { guest->exits(times); },
                    .times = &tolerance == tolerances.data() ? few : many});
  }
  measure_ways(out, ways, stop);
}

std::vector<SweepGuest> tick_guests(const LabOptions& options) {
  const model::Platform platform = options.platform_or("epyc-milan");
  const auto time = [](const char* line, const char* key) {
    return [=](const GuestFigures& figures) { return figures.ns(figures.line(line).number(key)); };
  };
  const auto late = [](const char* key) {
    return [=](const GuestFigures& figures) { return figures.line("lateness").number(key); };
  };
  return {{.name = "tick",
           .job = job_of(platform, "best", fmt::format("{} toggle=1000 ticks={}", load, options.ticks)),
           .figures = {{"mean_ns", mean_tick_ns},
                       {"p50_ns", time("tick", "p50")},
                       {"p99_ns", time("tick", "p99")},
                       {"p99.9_ns", time("tick", "p99.9")},
                       {"max_ns", time("tick", "max")},
                       {"toggle_ns", time("toggle", "mean")}}},
          {.name = "bare",
           .job = job_of(platform, "best", fmt::format("{} toggle=1000 ticks=1000 {}", load, no_counters)),
           .figures = {{"mean_ns", mean_tick_ns}}},
          {.name = "late",
           .job = late_job(platform, "best"),
           .figures = {{"p50_events", late("p50")}, {"max_events", late("max")}}}};
}

void prepare_tick(GuestPool& pool, std::vector<SweepGuest>& guests) {
  const std::uint64_t base = base_work(pool, guests.front().job.platform);
  for (SweepGuest& guest : guests) {
    if (guest.job.image == "tick") guest.job.append += fmt::format(" base={}", base);
  }
}

Section run_tick(const Bench& bench) {
  const model::Platform platform = bench.platform("epyc-milan");
  Section section{.key = "tick"};
  section.summary = fmt::format(
      "Guest 'tick' on the soft machine: {} ticks at 1 kHz for each T, bursts of 64 CPUIDs as load, a counter of "
      "instructions resident and a group toggled once a second, on {}.",
      with_commas(static_cast<double>(bench.options.ticks), 0), platform.title);
  const std::string work = fmt::format("{} toggle=1000 base={}", load, base_work(bench.pool, platform));
  const std::string all_ticks = fmt::format("{} ticks={}", work, bench.options.ticks);
  std::vector<GuestJob> jobs =
      jobs_for(tolerances, [&](const Tolerance& one) { return job_of(platform, one.policy, all_ticks); });
  jobs.push_back(job_of(platform, "best", fmt::format("{} ticks=1000 {}", work, no_counters)));
  for (const Tolerance& tolerance : tolerances) jobs.push_back(late_job(platform, tolerance.policy));
  const std::vector<GuestFigures> figures = bench.pool.run(jobs);
  const GuestFigures& bare = figures[tolerances.size()];

  Table table{
      .key = "tick", .title = "The guest's timer interrupt handler, us", .columns = {{"tolerance", "T"}}, .rows = {}};
  const std::vector<Column> own_columns = time_columns("", Origin::modelled);
  table.columns.insert(table.columns.end(), own_columns.begin(), own_columns.end());
  table.columns.insert(table.columns.end(), {{"added_ns", "added, ns", Origin::modelled, 1},
                                             {"measured_ns", "host work an exit, ns", Origin::measured, 1},
                                             {"measured_gain", "gain", Origin::measured, 0, "x"}});
  const std::vector<Column> told_columns = time_columns("published_", Origin::published);
  table.columns.insert(table.columns.end(), told_columns.begin(), told_columns.end());
  table.columns.push_back({"error_mean", "error: mean", Origin::modelled, 0, " %"});
  table.columns.push_back({"error", "p50", Origin::modelled, 0, " %"});
  table.columns.push_back({"error_p99", "p99", Origin::modelled, 0, " %"});

  Table work_table{.key = "work",
                   .title = fmt::format("Host work, and overflow interrupts of a counter that samples each {} "
                                        "instructions, a quarter of them emulated",
                                        with_commas(sampled_period, 0)),
                   .columns = {{"tolerance", "T"},
                               {"emulated", "emulated", Origin::modelled},
                               {"reprograms", "reprograms", Origin::modelled},
                               {"toggle_us", "toggle, us", Origin::modelled, 1},
                               {"late_p50", "PMI late, events: p50", Origin::modelled},
                               {"late_max", "max", Origin::modelled},
                               {"late_share", "of the period", Origin::modelled, 2, " %"},
                               {"load_ms", "its load, ms", Origin::modelled, 2}},
                   .rows = {}};
  Chart spread{.key = "distribution",
               .title = "The timer interrupt handler: distribution",
               .shape = Chart::Shape::bars,
               .scale = Chart::Scale::logarithmic,
               .x_title = "T",
               .y_title = "us",
               .labels = {},
               .series = {{"p50", Origin::modelled, {}},
                          {"p99", Origin::modelled, {}},
                          {"p99.9", Origin::modelled, {}},
                          {"max", Origin::modelled, {}},
                          {"published p50", Origin::published, {}},
                          {"published p99", Origin::published, {}},
                          {"published p99.9", Origin::published, {}},
                          {"published max", Origin::published, {}}}};
  Chart bargain{
      .key = "bargain",
      .title = "T against latency and lateness",
      .shape = Chart::Shape::lines,
      .scale = Chart::Scale::logarithmic,
      .x_title = "T",
      .y_title = "ns; events",
      .labels = {},
      .series = {{"added to the tick, ns", Origin::modelled, {}}, {"PMI late at most, events", Origin::modelled, {}}}};
  for (std::size_t i = 0; i < tolerances.size(); ++i) {
    const Tolerance& tolerance = tolerances[i];
    const GuestFigures& one = figures[i];
    const GuestFigures& sampled = figures[tolerances.size() + 1 + i];
    const FigureLine& tick = one.line("tick");
    const published::TickTimes* told = published_of(tolerance);
    std::vector<Cell> row{tolerance.name};
    for (const char* key : {"mean", "p50", "p99", "p99.9", "max"}) row.emplace_back(one.ns(tick.number(key)) / us);
    const double added = mean_tick_ns(one) - mean_tick_ns(bare);
    const Cell measured = bench.measured.get(tolerance.policy);
    row.insert(row.end(), {added, measured, times_less(bench.measured.get("before-s4"), measured)});
    if (told != nullptr) {
      const auto error = [&](const char* key, double of) { return percent_off(one.ns(tick.number(key)) / us, of); };
      row.insert(row.end(), {told->mean, told->p50, told->p99, told->p999, told->max, error("mean", told->mean),
                             error("p50", told->p50), error("p99", told->p99)});
    } else {
      row.insert(row.end(), 8, Cell{});
    }
    table.rows.push_back(std::move(row));

    const FigureLine& late = sampled.line("lateness");
    work_table.rows.push_back({tolerance.name, static_cast<double>(one.result.emulated_instructions),
                               static_cast<double>(one.result.host_calls.set_period),
                               one.ns(one.line("toggle").number("mean")) / us, late.number("p50"), late.number("max"),
                               late.number("max") / sampled_period * 100,
                               sampled.ns(sampled.line("sampling").number("elapsed")) / (us * us)});
    spread.labels.emplace_back(tolerance.name);
    bargain.labels.emplace_back(tolerance.name);
    std::size_t s = 0;
    for (const char* key : {"p50", "p99", "p99.9", "max"}) {
      spread.series[s++].values.emplace_back(one.ns(tick.number(key)) / us);
    }
    const std::array<Cell, 4> told_values =
        told == nullptr ? std::array<Cell, 4>{} : std::array<Cell, 4>{told->p50, told->p99, told->p999, told->max};
    for (const Cell& value : told_values) spread.series[s++].values.push_back(value);
    // A logarithmic axis has no 0.
    bargain.series[0].values.emplace_back(std::max(added, 0.1));
    bargain.series[1].values.emplace_back(late.number("max"));
  }
  section.headline = {.what = "A guest's timer handler, mean; T = 0, auto",
                      .unit = "us",
                      .decimals = 1,
                      .modelled = {mean_tick_ns(figures[0]) / us, mean_tick_ns(figures[tolerances.size() - 1]) / us},
                      .measured = {bench.measured.get("before-s4"), bench.measured.get("best")},
                      .published = {published::tick_times[0].mean, published::tick_times[2].mean}};
  section.tables = {std::move(table), std::move(work_table)};
  section.charts = {std::move(spread), std::move(bargain)};
  section.notes.push_back(fmt::format(
      "Under-determined: tick_ns, the handler without any PMU work, {} to {} us; here {} us, and {:.3f} us without the "
      "PMU. No figure without PMU work is published.",
      platform.tick_ns.lo / us, platform.tick_ns.hi / us, platform.tick_ns.value / us, mean_tick_ns(bare) / us));
  section.notes.emplace_back(
      "One vCPU: the toggle from another vCPU is an interrupt of this guest that does what the other's call asks for, "
      "and comes after the tick's handler. Contention for the perf context lock and waits of one vCPU for another are "
      "not modelled: the published tail (p99 and above) is theirs, and ours has none.");
  section.notes.emplace_back(
      "Error: at T = 0 the published mean is made by its tail, which the model lacks, while its median, a host "
      "reprogram "
      "above the bare handler, is priced too high here: our calls are system calls. From T = 1,000 on all figures are "
      "the bare handler's: the error is that of the assumed tick_ns.");
  section.notes.emplace_back(
      "Added: to the mean, against the same guest without a PMU. Reprograms: periods set at the host. Measured: our "
      "code and perf calls for one exit with a counted instruction, medians.");
  return section;
}

}  // namespace vpmu::lab
