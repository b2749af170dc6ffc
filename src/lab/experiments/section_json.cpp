#include "lab/experiments/section_json.hpp"

#include <array>

#include "lab/experiments/section_report.hpp"

namespace vpmu::lab {
namespace {

/// Rows by origin: {"policy": .., "modelled": {..}, "measured": {..}, ..}.
Json rows_of(const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json entry = Json::object();
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const Column& column = table.columns[c];
      if (column.origin == Origin::label) {
        entry[column.key] = to_json(row[c]);
      } else if (!row[c].empty()) {
        entry[name_of(column.origin)][column.key] = to_json(row[c]);
      }
    }
    rows.push_back(std::move(entry));
  }
  return rows;
}

}  // namespace

Json to_json(const Cell& cell) {
  if (cell.number) return *cell.number;
  if (cell.text.empty()) return nullptr;
  return cell.text;
}

Json to_json(const Chart& chart) {
  constexpr std::array<const char*, 3> shapes{"bars", "stacked", "lines"};
  Json json = {{"key", chart.key},
               {"title", chart.title},
               {"shape", shapes[static_cast<std::size_t>(chart.shape)]},
               {"logarithmic", chart.scale == Chart::Scale::logarithmic},
               {"x", chart.x_title},
               {"y", chart.y_title},
               {"labels", chart.labels},
               {"series", Json::array()}};
  for (const Series& series : chart.series) {
    Json values = Json::array();
    for (const Cell& cell : series.values) values.push_back(to_json(cell));
    json["series"].push_back({{"name", series.name}, {"origin", name_of(series.origin)}, {"values", values}});
  }
  return json;
}

std::string sections_json(std::span<const Section> sections) {
  Json json;
  json["experiments"] = Json::object();
  for (const Section& section : sections) {
    Json& one = json["experiments"][section.key];
    one["title"] = section.title;
    one["summary"] = section.summary;
    for (const Table& table : section.tables) one["tables"][table.key] = rows_of(table);
    one["notes"] = section.notes;
    one["charts"] = Json::array();
    for (const Chart& chart : section.charts) one["charts"].push_back(to_json(chart));
  }
  constexpr int indent = 1;
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace vpmu::lab
