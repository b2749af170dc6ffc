#include "lab/experiments/sweep_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <nlohmann/json.hpp>

#include "lab/guest_report.hpp"
#include "lab/options.hpp"

namespace vpmu::lab {
namespace {

using Json = nlohmann::ordered_json;

/// A number where the text is one.
Json json_of(const std::string& value) {
  Json number = Json::parse(value, nullptr, false);
  return number.is_number() ? number : Json(value);
}

Json inputs_of(const Sweep& sweep, const SweepPoint& point, std::size_t number) {
  const GuestJob& job = point.guests.front().job;
  Json json = {{"sweep", sweep.id()}, {"point", number}, {"of", sweep.size()}, {"experiment", point.experiment->key}};
  json["settings"] = Json::object();
  for (const auto& [key, value] : point.settings) json["settings"][key] = json_of(value);
  json["platform"] = job.platform.name;
  json["profile"] = point.profile;
  json["policy"] = to_text(job.policy);
  json["backing"] = job.pmu == GuestOptions::Pmu::mediated ? "mediated" : "emulated";
  return json;
}

SweepResult run_point(const Sweep& sweep, std::size_t number, GuestPool& pool) {
  SweepPoint point = sweep.point(number);
  Json json = inputs_of(sweep, point, number);
  SweepResult result{.number = number, .line = {}, .figures = {}};
  try {
    if (point.experiment->prepare_sweep != nullptr) point.experiment->prepare_sweep(pool, point.guests);
    const std::vector<GuestFigures> ran =
        pool.run(jobs_for(point.guests, [](const SweepGuest& guest) { return guest.job; }));
    Json modelled;
    for (std::size_t i = 0; i < ran.size(); ++i) {
      Json& one = modelled[point.guests[i].name];
      for (const auto& [key, read] : point.guests[i].figures) {
        result.figures.push_back(read(ran[i]));
        one[key] = result.figures.back();
      }
      one.update(work_json(ran[i].result));
    }
    json["modelled"] = std::move(modelled);
  } catch (const LabError& error) {
    result.figures.clear();
    json["failed"] = error.what();
  }
  result.line = json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
  return result;
}

}  // namespace

std::vector<SweepResult> run_sweep(const Sweep& sweep, Slice slice, unsigned threads, const std::atomic<bool>& stop,
                                   const std::function<void(unsigned, unsigned)>& progress) {
  GuestPool pool{threads, stop, {}};
  std::vector<SweepResult> results(slice.size(sweep.size()));
  const auto of = static_cast<unsigned>(results.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  unsigned done = 0;
  progress(0, of);
  const auto work = [&] {
    for (std::size_t i = next++; i < results.size(); i = next++) {
      results[i] = run_point(sweep, slice.first + i * slice.count, pool);
      const std::scoped_lock lock{mutex};
      progress(++done, of);
    }
  };
  std::vector<std::future<void>> workers;
  const unsigned at_once = std::min(threads, of);
  workers.reserve(at_once);
  for (unsigned i = 0; i < at_once; ++i) workers.push_back(std::async(std::launch::async, work));
  for (auto& worker : workers) worker.get();
  return results;
}

std::vector<Table> sweep_tables(const Sweep& sweep, std::span<const SweepResult> results, std::size_t most) {
  std::vector<Table> tables;
  for (const SweepResult& result : results.first(std::min(most, results.size()))) {
    const SweepPoint point = sweep.point(result.number);
    if (tables.empty() || tables.back().key != point.experiment->key) {
      Table table{.key = point.experiment->key, .title = point.experiment->title, .columns = {}, .rows = {}};
      table.columns.push_back({"point", "point"});
      for (const auto& [key, value] : point.settings) table.columns.push_back({key, key});
      for (const SweepGuest& guest : point.guests) {
        for (const SweepGuest::Figure& figure : guest.figures) {
          table.columns.push_back({figure.key, fmt::format("{} {}", guest.name, figure.key), Origin::modelled, 1});
        }
      }
      tables.push_back(std::move(table));
    }
    Table& table = tables.back();
    std::vector<Cell> row{std::to_string(result.number)};
    for (const auto& [key, value] : point.settings) row.emplace_back(value);
    if (result.figures.empty()) row.emplace_back("failed");
    row.insert(row.end(), result.figures.begin(), result.figures.end());
    row.resize(table.columns.size());
    table.rows.push_back(std::move(row));
  }
  return tables;
}

}  // namespace vpmu::lab
