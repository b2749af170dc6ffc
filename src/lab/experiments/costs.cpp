#include "lab/experiments/costs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace vpmu::lab {
namespace {

using model::Figure;
using model::Platform;

const std::array<CostKind, 7> kinds{{
    {"VM exits", {&Platform::exit_cycles}},
    {"events opened, closed", {&Platform::open_ns, &Platform::close_ns}},
    {"events enabled, disabled", {&Platform::enable_ns, &Platform::disable_ns}},
    {"periods set", {&Platform::set_period_ns, &Platform::live_set_period_ns}},
    {"counts read", {&Platform::read_ns, &Platform::live_read_ns, &Platform::free_read_cycles}},
    {"signals", {&Platform::signal_ns}},
    {"host's PMU registers", {&Platform::rdmsr_cycles, &Platform::wrmsr_cycles, &Platform::rdpmc_cycles}},
}};

bool is_cost(const model::FigureKey& key) { return key.unit == model::Unit::cycles || key.unit == model::Unit::ns; }

}  // namespace

std::span<const CostKind> cost_kinds() { return kinds; }

Platform without(Platform platform, const CostKind& kind) {
  for (Figure Platform::* figure : kind.figures) (platform.*figure).value = 0;
  return platform;
}

Platform without_host_work(Platform platform) {
  for (const CostKind& kind : std::span{kinds}.subspan(1)) platform = without(std::move(platform), kind);
  return platform;
}

Platform at_bound(Platform platform, double Figure::* bound) {
  for (const model::FigureKey& key : model::platform_figures()) {
    if (is_cost(key)) (platform.*key.member).value = platform.*key.member.*bound;
  }
  return platform;
}

std::string range_of(GuestPool& pool, const GuestJob& job, const Reading& reading, int decimals) {
  std::vector<GuestJob> jobs{job, job};
  jobs[0].platform = at_bound(job.platform, &Figure::lo);
  jobs[1].platform = at_bound(job.platform, &Figure::hi);
  const std::vector<GuestFigures> figures = pool.run(jobs);
  return with_commas(reading(figures[0]), decimals) + " to " + with_commas(reading(figures[1]), decimals);
}

std::vector<double> by_kind(GuestPool& pool, const GuestJob& job, const Reading& reading) {
  std::vector<GuestJob> jobs{job};
  for (const CostKind& kind : kinds) {
    jobs.push_back(job);
    jobs.back().platform = without(job.platform, kind);
  }
  const std::vector<GuestFigures> figures = pool.run(jobs);
  const double all = reading(figures.front());
  double rest = all;
  std::vector<double> parts;
  for (std::size_t i = 1; i < figures.size(); ++i) {
    parts.push_back(std::max(0.0, all - reading(figures[i])));
    rest -= parts.back();
  }
  parts.push_back(std::max(0.0, rest));
  return parts;
}

Chart chart_by_kind(GuestPool& pool, std::span<const GuestJob> jobs, std::vector<std::string> labels,
                    const Reading& reading) {
  Chart chart;
  chart.shape = Chart::Shape::stacked;
  chart.labels = std::move(labels);
  for (const CostKind& kind : kinds) chart.series.push_back({.name = kind.name, .values = {}});
  chart.series.push_back({.name = "the guest's own code", .values = {}});
  for (const GuestJob& job : jobs) {
    const std::vector<double> parts = by_kind(pool, job, reading);
    for (std::size_t i = 0; i < parts.size(); ++i) chart.series[i].values.emplace_back(parts[i]);
  }
  std::erase_if(chart.series, [](const Series& series) {
    return std::ranges::all_of(series.values, [](const Cell& cell) { return cell.number.value_or(0) == 0; });
  });
  return chart;
}

std::string widest_inputs(GuestPool& pool, const GuestJob& job, const Reading& reading, const char* unit) {
  std::vector<GuestJob> jobs;
  std::vector<const model::FigureKey*> keys;
  for (const model::FigureKey& key : model::platform_figures()) {
    const Figure& figure = job.platform.*key.member;
    if (!is_cost(key) || figure.lo == figure.hi) continue;
    keys.push_back(&key);
    for (double Figure::* bound : {&Figure::lo, &Figure::hi}) {
      jobs.push_back(job);
      (jobs.back().platform.*key.member).value = figure.*bound;
    }
  }
  const std::vector<GuestFigures> figures = pool.run(jobs);
  struct Input {
    const model::FigureKey* key;
    double low;
    double high;
    [[nodiscard]] double width() const { return std::abs(high - low); }
  };
  std::vector<Input> inputs;
  inputs.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    inputs.push_back({keys[i], reading(figures[2 * i]), reading(figures[2 * i + 1])});
  }
  std::ranges::sort(inputs, [](const Input& a, const Input& b) {
    return a.width() != b.width() ? a.width() > b.width() : a.key < b.key;
  });
  constexpr std::size_t most = 3;
  std::string text;
  for (const Input& input : std::span{inputs}.first(std::min(most, inputs.size()))) {
    const Figure& figure = job.platform.*input.key->member;
    if (input.width() == 0) continue;
    text += fmt::format("{}{} of {} to {} ({} to {} {})", text.empty() ? "" : "; ", input.key->key,
                        with_commas(figure.lo, 0), with_commas(figure.hi, 0), with_commas(input.low, 0),
                        with_commas(input.high, 0), unit);
  }
  return text.empty() ? "none" : text;
}

}  // namespace vpmu::lab
