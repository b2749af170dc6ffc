// S0: a guest samples cycles. How long is its PMI handler, and what rate of samples does the guest then allow itself?
#include <fmt/format.h>

#include <array>

#include "lab/experiments/costs.hpp"
#include "lab/experiments/experiment.hpp"
#include "lab/experiments/measure.hpp"
#include "lab/experiments/published.hpp"
#include "lab/experiments/throttling.hpp"

namespace vpmu::lab {
namespace {

// before-s1 is before-s0 with both switches of this change.
constexpr std::array policies{"before-s0", "before-s0,events=keep", "before-s0,reload=direct", "before-s1",
                              "best",      "best,events=keep"};
constexpr std::array measured_policies{"before-s0", "before-s1", "best", "best,events=keep"};
constexpr std::string_view calibrated_platform = "e5-2699v4";

GuestJob job_of(const model::Platform& platform, const char* policy) {
  // As many samples a second as a Linux guest allows at first.
  constexpr double first_rate = 100'000;
  constexpr double mega = 1e6;
  return {.image = "sampling",
          .append = fmt::format("only=configured event=cycles period={:.0f} samples=400",
                                platform.core_mhz.value * mega / first_rate),
          .profile = find_profile(platform.vendor == Vendor::intel ? "intel-v2" : "amd-v2")->profile,
          .policy = policy_of(policy),
          .platform = platform};
}

double handler_ns(const GuestFigures& figures) { return figures.ns(figures.line("handler").number("mean")); }

/// The factor on the cost of opening and closing host events with which the handler takes the published time before.
double calibrate(GuestPool& pool, const model::Platform& platform) {
  std::vector<GuestJob> jobs(2, job_of(platform, policies.front()));
  jobs[1].platform.recreate_scale.value = 2;
  const std::vector<GuestFigures> figures = pool.run(jobs);
  const double once = handler_ns(figures[0]);
  const double each = handler_ns(figures[1]) - once;
  return 1 + (published::pmi_before_ns - once) / each;
}

}  // namespace

void measure_pmi(Measurements& out, const std::atomic<bool>& stop) { measure_pmis(out, measured_policies, 1, stop); }

Section run_pmi(const Bench& bench) {
  model::Platform platform = bench.platform(calibrated_platform);
  Section section{.key = "pmi", .title = {}, .summary = {}, .tables = {}, .charts = {}, .notes = {}};
  section.summary =
      fmt::format("Guest 'sampling' on the soft machine, one counter of cycles at 100,000 samples a second, on {}.",
                  platform.title);
  if (platform.name == calibrated_platform && platform.recreate_scale.value == 1) {
    const double before = handler_ns(bench.pool.run({job_of(platform, policies.front())}).front());
    platform.recreate_scale.value = calibrate(bench.pool, platform);
    section.notes.push_back(
        fmt::format("Calibrated, on the published 'before' alone: recreate_scale = {:.1f}, on the cost of opening and "
                    "closing host events on this platform. Without it the handler takes {} ns before: no published "
                    "cost explains {} ns.",
                    platform.recreate_scale.value, with_commas(before, 0), with_commas(published::pmi_before_ns, 0)));
  }

  std::vector<GuestJob> jobs;
  for (const char* policy : policies) {
    jobs.push_back(job_of(platform, policy));
    jobs.push_back(jobs.back());
    jobs.back().platform = without_host_work(platform);
  }
  const std::vector<GuestFigures> figures = bench.pool.run(jobs);

  Table time{.key = "handler",
             .title = "The guest's PMI handler, ns",
             .columns = {{"policy", "policy"},
                         {"handler_ns", "handler", Origin::modelled},
                         {"range_ns", "range", Origin::modelled},
                         {"gain", "gain", Origin::modelled, 1, "x"},
                         {"host_ns", "host work", Origin::modelled},
                         {"host_gain", "gain", Origin::modelled, 1, "x"},
                         {"run_ns", "of the run, a PMI", Origin::modelled},
                         {"floor_ns", "floor", Origin::modelled},
                         {"over_floor", "over floor", Origin::modelled, 1, " %"},
                         {"perf_ns", "perf", Origin::measured},
                         {"perf_gain", "gain", Origin::measured, 2, "x"},
                         {"clock_ns", "clock", Origin::measured},
                         {"clock_gain", "gain", Origin::measured, 2, "x"},
                         {"published_ns", "handler", Origin::published},
                         {"published_gain", "gain", Origin::published, 0, "x"},
                         {"error", "error", Origin::modelled, 0, " %"}},
             .rows = {}};
  Table rates{.key = "rate",
              .title = "Samples a second that a Linux guest then allows (250 Hz ticks, 100,000 at first)",
              .columns = {{"policy", "policy"},
                          {"after_10", "after 10 PMIs", Origin::modelled},
                          {"after_50", "after 50", Origin::modelled},
                          {"steady", "steady", Origin::modelled},
                          {"published", "rate", Origin::published}},
              .rows = {}};
  Chart chart{.key = "handler",
              .title = "A guest's PMI handler",
              .shape = Chart::Shape::bars,
              .scale = Chart::Scale::logarithmic,
              .x_title = "policy",
              .y_title = "ns",
              .labels = {},
              .series = {{"modelled", Origin::modelled, {}},
                         {"floor: exits and own code", Origin::modelled, {}},
                         {"measured here, perf", Origin::measured, {}},
                         {"measured here, clock", Origin::measured, {}},
                         {"published", Origin::published, {}}}};
  Cell first;
  Cell first_host;
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string policy = policies[i];
    const double handler = handler_ns(figures[2 * i]);
    const double floor = handler_ns(figures[2 * i + 1]);
    const Cell host = handler - floor;
    if (i == 0) {
      first = handler;
      first_host = host;
    }
    const bool before = policy == policies.front();
    const bool after = policy == "before-s1" || policy == "best";
    const Cell told = before ? Cell{published::pmi_before_ns} : after ? Cell{published::pmi_after_ns} : Cell{};
    const Cell perf = bench.measured.get("perf/" + policy);
    const Cell clock = bench.measured.get("clock/" + policy);
    time.rows.push_back(
        {policy, handler, range_of(bench.pool, jobs[2 * i], handler_ns), times_less(first, handler), host,
         times_less(first_host, host),
         static_cast<double>(figures[2 * i].result.host_ns) / static_cast<double>(figures[2 * i].result.pmis), floor,
         percent_off(handler, floor), perf, times_less(bench.measured.get("perf/before-s0"), perf), clock,
         times_less(bench.measured.get("clock/before-s0"), clock), told, times_less(published::pmi_before_ns, told),
         percent_off(handler, told)});
    const auto ns = static_cast<std::uint64_t>(handler);
    constexpr std::uint64_t many = 10'000;
    rates.rows.push_back({policy, static_cast<double>(rate_after(10, ns)), static_cast<double>(rate_after(50, ns)),
                          static_cast<double>(rate_after(many, ns)),
                          before  ? Cell{published::rate_before}
                          : after ? Cell{published::rate_after}
                                  : Cell{}});
    chart.labels.push_back(policy);
    const std::array<Cell, 5> values{handler, floor, perf, clock, told};
    for (std::size_t s = 0; s < values.size(); ++s) chart.series[s].values.push_back(values[s]);
  }
  section.tables = {std::move(time), std::move(rates)};
  section.charts.push_back(std::move(chart));

  constexpr std::array shown{"before-s1", "best", "best,events=keep"};
  const std::vector<GuestJob> shown_jobs =
      jobs_for(shown, [&](const char* policy) { return job_of(platform, policy); });
  Chart kinds = chart_by_kind(bench.pool, shown_jobs, {shown.begin(), shown.end()}, handler_ns);
  kinds.key = "kinds";
  kinds.title = "What is left of the handler's time, by kind";
  kinds.y_title = "ns";
  section.charts.push_back(std::move(kinds));

  section.notes.push_back("Under-determined: what moves the time of best most is " +
                          widest_inputs(bench.pool, job_of(platform, "best"), handler_ns, "ns") + ".");
  section.notes.emplace_back(
      "Error: of the prediction against what is published. Ours has the exits and the host's work; a Linux guest's "
      "handler also stores the sample, with call chain and registers, which is not modelled, and makes the published "
      "time the longer one.");
  section.notes.emplace_back(
      "Floor: the same handler where host work costs nothing. Of the run: all host work, signals between the handlers "
      "included, for each PMI. Measured: the VMM's own time for a PMI, real host calls, "
      "no exits; medians.");
  section.notes.emplace_back(
      "Rate: by Linux's rule, from the running mean of the handler's time. The published rate after is the limit at "
      "which the guest starts.");
  return section;
}

}  // namespace vpmu::lab
