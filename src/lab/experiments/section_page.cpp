#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "lab/experiments/embedded.hpp"
#include "lab/experiments/section_json.hpp"
#include "lab/experiments/section_report.hpp"

namespace vpmu::lab {
namespace {

Json page_json(const Table& table) {
  Json columns = Json::array();
  for (const Column& column : table.columns) {
    columns.push_back({{"title", column.title},
                       {"origin", name_of(column.origin)},
                       {"decimals", column.decimals},
                       {"suffix", column.suffix}});
  }
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json cells = Json::array();
    for (const Cell& cell : row) cells.push_back(to_json(cell));
    rows.push_back(std::move(cells));
  }
  return {{"title", table.title}, {"columns", std::move(columns)}, {"rows", std::move(rows)}};
}

Json page_json(const Headline::Pair& pair) {
  if (!pair.before.number || !pair.after.number) return nullptr;
  return Json::array({*pair.before.number, *pair.after.number});
}

Json page_json(const Section& section) {
  const Headline& headline = section.headline;
  Json json = {{"key", section.key}, {"title", section.title}, {"summary", section.summary}, {"notes", section.notes}};
  json["headline"] = {{"what", headline.what},
                      {"unit", headline.unit},
                      {"decimals", headline.decimals},
                      {"modelled", page_json(headline.modelled)},
                      {"measured", page_json(headline.measured)},
                      {"published", page_json(headline.published)}};
  json["tables"] = Json::array();
  for (const Table& table : section.tables) json["tables"].push_back(page_json(table));
  json["charts"] = Json::array();
  for (const Chart& chart : section.charts) json["charts"].push_back(to_json(chart));
  return json;
}

/// JSON that may stand in a script element: nothing in it ends the element.
std::string for_script(const Json& json) {
  std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  for (std::size_t at = text.find('<'); at != std::string::npos; at = text.find('<', at))
    text.replace(at, 1, "\\u003c");
  return text;
}

}  // namespace

std::string sections_page(std::span<const Section> sections) {
  Json json;
  json["sections"] = Json::array();
  for (const Section& section : sections) json["sections"].push_back(page_json(section));
  const std::string data = for_script(json);
  const std::array<std::pair<std::string_view, std::string_view>, 3> parts{{
      {"@DATA@", data},
      {"@CHART@", page_chart_library()},
      {"@SCRIPT@", page_script()},
  }};
  std::string page;
  std::string_view frame = page_frame();
  for (const auto& [mark, text] : parts) {
    const std::size_t at = frame.find(mark);
    page += frame.substr(0, at);
    page += text;
    frame.remove_prefix(at + mark.size());
  }
  page += frame;
  return page;
}

}  // namespace vpmu::lab
