// S1: a guest samples four events at once, and seven in turns. What do its exits cost, and which are they?
#include <fmt/format.h>

#include <array>

#include "lab/experiments/costs.hpp"
#include "lab/experiments/experiment.hpp"
#include "lab/experiments/measure.hpp"
#include "lab/experiments/published.hpp"
#include "lab/post_mortem.hpp"

namespace vpmu::lab {
namespace {

constexpr std::array policies{"before-s1", "before-s1,pause=tracked", "best"};
constexpr std::uint32_t sampled_events = 4;

struct Mode {
  const char* key;
  const char* name;
  const char* append;
  const char* prefix;  // of the line with the handler's times
};
constexpr std::array modes{
    Mode{"plain", "four events at once", "only=together period=200", "together, global"},
    Mode{"multiplexed", "seven events in turns", "only=turns period=200 windows=70 window=500000", ""},
};

GuestJob job_of(const model::Platform& platform, const Mode& mode, const char* policy) {
  return {.image = "multiplex",
          .append = mode.append,
          .profile = find_profile(platform.vendor == Vendor::intel ? "intel-v2" : "amd-v2")->profile,
          .policy = policy_of(policy),
          .platform = platform};
}

Reading handler_of(const Mode& mode) {
  return
      [&mode](const GuestFigures& figures) { return figures.ns(figures.line("handler", mode.prefix).number("mean")); };
}

double rotation_ns(const GuestFigures& figures) { return figures.ns(figures.line("rotation").number("mean")); }

double pmis_of(const GuestFigures& figures) { return static_cast<double>(figures.result.pmis); }

/// The mode's handler, by policy.
Table handler_table(const Bench& bench, const Mode& mode, std::span<const GuestJob> jobs,
                    std::span<const GuestFigures> figures) {
  const bool plain = &mode == modes.data();
  Table table{.key = mode.key,
              .title = fmt::format("The guest's NMI handler, {}, ns", mode.name),
              .columns = {{"policy", "policy"},
                          {"handler_ns", "handler", Origin::modelled},
                          {"range_ns", "range", Origin::modelled},
                          {"gain", "gain", Origin::modelled, 2, "x"},
                          {"calls", "host calls a PMI", Origin::modelled, 1}},
              .rows = {}};
  if (plain) {
    table.columns.insert(table.columns.end(), {{"perf_ns", "perf", Origin::measured},
                                               {"perf_gain", "gain", Origin::measured, 2, "x"},
                                               {"clock_ns", "clock", Origin::measured},
                                               {"clock_gain", "gain", Origin::measured, 2, "x"},
                                               {"published_ns", "handler", Origin::published, 1},
                                               {"published_gain", "gain", Origin::published, 2, "x"},
                                               {"error", "error", Origin::modelled, 0, " %"},
                                               {"gain_error", "of the gain", Origin::modelled, 1, " %"}});
  } else {
    table.columns.push_back({"rotation_ns", "rotation", Origin::modelled});
    table.columns.push_back({"rotation_gain", "gain", Origin::modelled, 2, "x"});
  }
  const Reading handler = handler_of(mode);
  for (std::size_t i = 0; i < policies.size(); ++i) {
    const std::string policy = policies[i];
    const Cell time = handler(figures[i]);
    const Cell gain = times_less(handler(figures[0]), time);
    std::vector<Cell> row{policy, time, range_of(bench.pool, jobs[i], handler), gain,
                          static_cast<double>(figures[i].result.host_calls.system_calls()) / pmis_of(figures[i])};
    if (plain) {
      const Cell told = i == 0 ? Cell{published::nmi_before_ns} : i == 1 ? Cell{published::nmi_after_ns} : Cell{};
      const Cell told_gain = times_less(published::nmi_before_ns, told);
      const Cell perf = bench.measured.get("perf/" + policy);
      const Cell clock = bench.measured.get("clock/" + policy);
      row.insert(row.end(), {perf, times_less(bench.measured.get("perf/before-s1"), perf), clock,
                             times_less(bench.measured.get("clock/before-s1"), clock), told, told_gain,
                             percent_off(time, told), i == 0 ? Cell{} : percent_off(gain, told_gain)});
    } else {
      row.insert(row.end(), {rotation_ns(figures[i]), times_less(rotation_ns(figures[0]), rotation_ns(figures[i]))});
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Which exits there are. Port accesses are the guest's printing, and no part of sampling.
void add_exits(Section& section, std::span<const std::vector<GuestFigures>> figures) {
  using soft::ExitReason;
  constexpr std::array reasons{ExitReason::wrmsr, ExitReason::rdmsr,    ExitReason::rdpmc,   ExitReason::mmio,
                               ExitReason::cpuid, ExitReason::overflow, ExitReason::deadline};
  Table table{.key = "exits",
              .title = "VM exits by kind, for each PMI",
              .columns = {{"mode", "events"}, {"policy", "policy"}},
              .rows = {}};
  Chart chart{.key = "exits",
              .title = "VM exits for each PMI",
              .shape = Chart::Shape::stacked,
              .x_title = {},
              .y_title = "exits",
              .labels = {},
              .series = {}};
  for (const ExitReason reason : reasons) {
    table.columns.push_back({exit_name(reason), exit_name(reason), Origin::modelled, 2});
    chart.series.push_back({.name = exit_name(reason), .values = {}});
  }
  for (std::size_t m = 0; m < modes.size(); ++m) {
    for (std::size_t i = 0; i < policies.size(); ++i) {
      table.rows.push_back({modes[m].name, policies[i]});
      chart.labels.push_back(fmt::format("{}, {}", modes[m].key, policies[i]));
      const GuestFigures& one = figures[m][i];
      for (std::size_t r = 0; r < reasons.size(); ++r) {
        const double each = static_cast<double>(one.result.exits[static_cast<std::size_t>(reasons[r])]) / pmis_of(one);
        table.rows.back().emplace_back(each);
        chart.series[r].values.emplace_back(each);
      }
    }
  }
  section.tables.push_back(std::move(table));
  section.charts.push_back(std::move(chart));
}

}  // namespace

void measure_sampling(Measurements& out, const std::atomic<bool>& stop) {
  measure_pmis(out, policies, sampled_events, stop);
}

std::vector<SweepGuest> sampling_guests(const LabOptions& options) {
  const model::Platform platform = options.platform_or("ice-lake");
  std::vector<SweepGuest> guests;
  guests.reserve(modes.size());
  for (const Mode& mode : modes) {
    guests.push_back(
        {.name = mode.key, .job = job_of(platform, mode, "best"), .figures = {{"handler_ns", handler_of(mode)}}});
  }
  guests.back().figures.push_back({"rotation_ns", rotation_ns});
  return guests;
}

Section run_sampling(const Bench& bench) {
  const model::Platform platform = bench.platform("ice-lake");
  Section section{.key = "sampling"};
  section.summary = fmt::format(
      "Guest 'multiplex' on the soft machine: cycles, instructions, branches and cache misses, on {}.", platform.title);
  std::array<std::vector<GuestFigures>, modes.size()> figures;
  for (std::size_t m = 0; m < modes.size(); ++m) {
    const std::vector<GuestJob> jobs =
        jobs_for(policies, [&](const char* policy) { return job_of(platform, modes[m], policy); });
    figures[m] = bench.pool.run(jobs);
    section.tables.push_back(handler_table(bench, modes[m], jobs, figures[m]));
  }
  const Reading plain = handler_of(modes.front());
  section.headline = {.what = "A guest's NMI handler, four events sampled",
                      .unit = "ns",
                      .modelled = {plain(figures[0].front()), plain(figures[0].back())},
                      .measured = {bench.measured.get("perf/before-s1"), bench.measured.get("perf/best")},
                      .published = {published::nmi_before_ns, published::nmi_after_ns}};
  const std::vector<GuestJob> shown =
      jobs_for(policies, [&](const char* policy) { return job_of(platform, modes.front(), policy); });
  Chart kinds = chart_by_kind(bench.pool, shown, {policies.begin(), policies.end()}, plain);
  kinds.key = "kinds";
  kinds.title = "The NMI handler's time by kind, four events at once";
  kinds.y_title = "ns";
  section.charts.push_back(std::move(kinds));
  add_exits(section, figures);

  section.notes.push_back("Under-determined: what moves the time with pause=tracked most is " +
                          widest_inputs(bench.pool, shown[1], plain, "ns") + ".");
  section.notes.emplace_back(
      "Error: the publication's handler is Linux's, with the sample stored; ours has the exits and the host's work. "
      "What both share is the saving, so the gain is the better prediction.");
  section.notes.emplace_back(
      "Host calls: all of the run, with those of the load between PMIs. Measured: one of four counters samples, the "
      "others stay resident; the VMM's own time for a PMI, medians.");
  return section;
}

}  // namespace vpmu::lab
