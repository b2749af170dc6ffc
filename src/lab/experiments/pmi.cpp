// S0: a guest samples cycles. How long is its PMI handler, and what rate of samples does the guest then allow itself?
#include <fmt/format.h>

#include <array>

#include "lab/experiments/costs.hpp"
#include "lab/experiments/experiment.hpp"
#include "lab/experiments/kvm_guest.hpp"
#include "lab/experiments/measure.hpp"
#include "lab/experiments/published.hpp"
#include "lab/experiments/throttling.hpp"

namespace vpmu::lab {
namespace {

using Pmu = GuestOptions::Pmu;

struct Variant {
  const char* name;
  const char* policy;
  Pmu pmu = Pmu::emulated;
  Cell published_ns = {};
  Cell published_rate = {};
};

/// The published change is before-s1: before-s0 with both of its switches.
const std::array variants{
    Variant{"before-s0", "before-s0", Pmu::emulated, published::pmi_before_ns, published::rate_before},
    Variant{"before-s0,events=keep", "before-s0,events=keep"},
    Variant{"before-s0,reload=direct", "before-s0,reload=direct"},
    Variant{"before-s1", "before-s1", Pmu::emulated, published::pmi_after_ns, published::rate_after},
    Variant{"best", "best", Pmu::emulated, published::pmi_after_ns, published::rate_after},
    Variant{"best,events=keep", "best,events=keep"},
    Variant{"mediated: best", "best", Pmu::mediated},
    Variant{"mediated: switch=ownership", "best,switch=ownership", Pmu::mediated},
};
constexpr std::size_t best_variant = 4;
constexpr std::array measured_policies{"before-s0", "before-s1", "best", "best,events=keep"};
constexpr std::string_view calibrated_platform = "e5-2699v4";

GuestJob job_of(const model::Platform& platform, const Variant& variant) {
  // As many samples a second as a Linux guest allows at first.
  constexpr double first_rate = 100'000;
  constexpr double mega = 1e6;
  const bool intel = platform.vendor == Vendor::intel;
  // Mediated mode needs perfmon v4 or PerfMonV2 in the host, and a guest counter for each of the host's.
  const char* profile = !intel ? "amd-v2" : variant.pmu == Pmu::mediated ? "intel-v4" : "intel-v2";
  return {.image = "sampling",
          .append = fmt::format("only=configured event=cycles way=global period={:.0f} samples=200",
                                platform.core_mhz.value * mega / first_rate),
          .profile = find_profile(profile)->profile,
          .policy = policy_of(variant.policy),
          .platform = platform,
          .pmu = variant.pmu};
}

double handler_ns(const GuestFigures& figures) { return figures.ns(figures.line("handler").number("mean")); }

/// The factor on the cost of opening and closing host events with which the handler takes the published time before.
double calibrate(GuestPool& pool, const model::Platform& platform) {
  std::vector<GuestJob> jobs(2, job_of(platform, variants.front()));
  jobs[1].platform.recreate_scale.value = 2;
  const std::vector<GuestFigures> figures = pool.run(jobs);
  const double once = handler_ns(figures[0]);
  const double each = handler_ns(figures[1]) - once;
  return 1 + (published::pmi_before_ns - once) / each;
}

Table handler_table() {
  return {.key = "handler",
          .title = "The guest's PMI handler, ns",
          .columns = {{"policy", "policy"},
                      {"handler_ns", "handler", Origin::modelled},
                      {"range_ns", "range", Origin::modelled},
                      {"gain", "gain", Origin::modelled, 1, "x"},
                      {"floor_ns", "floor", Origin::modelled},
                      {"over_floor", "over floor", Origin::modelled, 0, " %"},
                      {"host_ns", "host work", Origin::modelled},
                      {"host_gain", "gain", Origin::modelled, 0, "x"},
                      {"run_ns", "of the run, a PMI", Origin::modelled},
                      {"perf_ns", "perf", Origin::measured},
                      {"perf_gain", "gain", Origin::measured, 2, "x"},
                      {"clock_ns", "clock", Origin::measured},
                      {"clock_gain", "gain", Origin::measured, 2, "x"},
                      {"kvm_ns", "on KVM", Origin::measured},
                      {"kvm_gain", "gain", Origin::measured, 2, "x"},
                      {"published_ns", "handler", Origin::published},
                      {"published_gain", "gain", Origin::published, 0, "x"},
                      {"error", "error", Origin::modelled, 0, " %"}},
          .rows = {}};
}

Table rate_table() {
  return {.key = "rate",
          .title = "Samples a second that a Linux guest then allows (250 Hz ticks, 100,000 at first)",
          .columns = {{"policy", "policy"},
                      {"after_10", "after 10 PMIs", Origin::modelled},
                      {"after_50", "after 50", Origin::modelled},
                      {"steady", "steady", Origin::modelled},
                      {"published", "rate", Origin::published}},
          .rows = {}};
}

Chart handler_chart() {
  return {.key = "handler",
          .title = "A guest's PMI handler",
          .shape = Chart::Shape::bars,
          .scale = Chart::Scale::logarithmic,
          .x_title = {},
          .y_title = "ns",
          .labels = {},
          .series = {{"modelled", Origin::modelled, {}},
                     {"modelled floor: exits and own code", Origin::modelled, {}},
                     {"measured here, perf", Origin::measured, {}},
                     {"measured here, clock", Origin::measured, {}},
                     {"published", Origin::published, {}}}};
}

void add_notes(Section& section, const std::string& inputs) {
  section.notes.push_back("Under-determined: what moves the time of best most is " + inputs + ".");
  section.notes.emplace_back(
      "Error: of the prediction against what is published. Ours has the exits and the host's work; a Linux guest's "
      "handler also stores the sample, which is not modelled, so that ours should be the shorter. Where it is longer, "
      "the host calls priced here, system calls of a VMM in user space, are dearer than calls within the kernel.");
  section.notes.emplace_back(
      "Best sets the distance to the next overflow once a handler, one host call, and pauses nothing; events=keep "
      "pauses "
      "and resumes, two. What best has above the floor beyond that call are stops of the guest's own between two "
      "samples that outlast the rest of a period: the event signals while it is off.");
  section.notes.emplace_back(
      "Floor: the same handler where host work costs nothing. Of the run: all host work, with the signals between the "
      "handlers, for each PMI. Measured: the VMM's own time for a PMI, real host calls, no exits; medians.");
  section.notes.emplace_back(
      "Rate: by Linux's rule, from the running mean of the handler's time. The published rate after is the limit at "
      "which the guest starts.");
}

}  // namespace

void measure_pmi(Measurements& out, const std::atomic<bool>& stop) {
  measure_pmis(out, measured_policies, 1, stop);
  constexpr std::uint64_t samples = 16;
  std::vector<KvmReading> readings;
  readings.reserve(measured_policies.size());
  for (const char* policy : measured_policies) {
    readings.push_back({fmt::format("kvm/{}", policy), kvm_sampling(policy, samples), kvm_handler_ns});
  }
  measure_on_kvm(out, readings, stop);
}

std::vector<SweepGuest> pmi_guests(const LabOptions& options) {
  return {{.name = "sampling",
           .job = job_of(options.platform_or(calibrated_platform), variants[best_variant]),
           .figures = {{"handler_ns", handler_ns}}}};
}

Section run_pmi(const Bench& bench) {
  model::Platform platform = bench.platform(calibrated_platform);
  Section section{.key = "pmi"};
  section.summary =
      fmt::format("Guest 'sampling' on the soft machine, one counter of cycles at 100,000 samples a second, on {}.",
                  platform.title);
  if (platform.name == calibrated_platform && platform.recreate_scale.value == 1) {
    const double uncalibrated = handler_ns(bench.pool.run({job_of(platform, variants.front())}).front());
    platform.recreate_scale.value = calibrate(bench.pool, platform);
    section.notes.push_back(fmt::format(
        "Calibrated, on the published 'before' alone: recreate_scale = {:.1f}, on the cost of opening and "
        "closing host events on this platform. Without it the handler takes {} ns before: no published "
        "cost explains {} ns.",
        platform.recreate_scale.value, with_commas(uncalibrated, 0), with_commas(published::pmi_before_ns, 0)));
  }
  const std::vector<GuestJob> jobs =
      jobs_for(variants, [&](const Variant& variant) { return job_of(platform, variant); });
  const std::vector<GuestJob> floor_jobs =
      jobs_for(variants, [&](const Variant& variant) { return job_of(without_host_work(platform), variant); });
  const std::vector<GuestFigures> figures = bench.pool.run(jobs);
  const std::vector<GuestFigures> floors = bench.pool.run(floor_jobs);

  Table time = handler_table();
  Table rates = rate_table();
  Chart chart = handler_chart();
  const auto measured = [&](const char* host, const Variant& variant) {
    return variant.pmu == Pmu::emulated ? bench.measured.get(fmt::format("{}/{}", host, variant.policy)) : Cell{};
  };
  const double first = handler_ns(figures[0]);
  const double first_host = first - handler_ns(floors[0]);
  for (std::size_t i = 0; i < variants.size(); ++i) {
    const Variant& variant = variants[i];
    const double handler = handler_ns(figures[i]);
    const double floor = handler_ns(floors[i]);
    const GuestResult& result = figures[i].result;
    const Cell perf = measured("perf", variant);
    const Cell clock = measured("clock", variant);
    const Cell kvm = measured("kvm", variant);
    time.rows.push_back(
        {variant.name, handler, range_of(bench.pool, jobs[i], handler_ns), times_less(first, handler), floor,
         percent_off(handler, floor), handler - floor, times_less(first_host, handler - floor),
         static_cast<double>(result.host_ns) / static_cast<double>(result.pmis), perf,
         times_less(measured("perf", variants[0]), perf), clock, times_less(measured("clock", variants[0]), clock), kvm,
         times_less(measured("kvm", variants[0]), kvm), variant.published_ns,
         times_less(published::pmi_before_ns, variant.published_ns), percent_off(handler, variant.published_ns)});
    constexpr std::uint64_t many = 10'000;
    const auto rate = [&](std::uint64_t pmis) {
      return static_cast<double>(rate_after(pmis, static_cast<std::uint64_t>(handler)));
    };
    rates.rows.push_back({variant.name, rate(10), rate(50), rate(many), variant.published_rate});
    chart.labels.emplace_back(variant.name);
    const std::array<Cell, 5> values{handler, floor, perf, clock, variant.published_ns};
    for (std::size_t s = 0; s < values.size(); ++s) chart.series[s].values.push_back(values[s]);
  }
  section.headline = {.what = "A guest's PMI handler",
                      .unit = "ns",
                      .modelled = {first, handler_ns(figures[best_variant])},
                      .measured = {measured("perf", variants[0]), measured("perf", variants[best_variant])},
                      .published = {published::pmi_before_ns, published::pmi_after_ns}};
  constexpr std::array<std::string_view, 2> kvm_columns{"kvm_ns", "kvm_gain"};
  const std::string no_kvm = drop_if_empty(time, kvm_columns);
  section.tables = {std::move(time), std::move(rates)};
  section.charts.push_back(std::move(chart));

  const std::span shown = std::span{variants}.subspan(3);
  std::vector<std::string> names;
  for (const Variant& variant : shown) names.emplace_back(variant.name);
  Chart kinds = chart_by_kind(bench.pool, std::span{jobs}.subspan(3), std::move(names), handler_ns);
  kinds.key = "kinds";
  kinds.title = "What is left of the handler's time, by kind";
  kinds.y_title = "ns";
  section.charts.push_back(std::move(kinds));
  if (!no_kvm.empty()) section.notes.push_back(fmt::format("No figures on KVM: {}.", no_kvm));
  add_notes(section, widest_inputs(bench.pool, jobs[best_variant], handler_ns, "ns"));
  return section;
}

}  // namespace vpmu::lab
