#include "lab/experiments/section.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace vpmu::lab {
const char* name_of(Origin origin) {
  switch (origin) {
    case Origin::label:
      return "label";
    case Origin::modelled:
      return "modelled";
    case Origin::measured:
      return "measured";
    case Origin::published:
      return "published";
  }
  return "?";
}

std::string drop_if_empty(Table& table, std::span<const std::string_view> keys) {
  std::vector<std::size_t> found;
  std::string why;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (std::ranges::find(keys, table.columns[c].key) == keys.end()) continue;
    found.push_back(c);
    for (const std::vector<Cell>& row : table.rows) {
      if (row[c].number) return {};
      if (why.empty()) why = row[c].text;
    }
  }
  for (std::size_t i = found.size(); i-- > 0;) {
    const auto at = static_cast<std::ptrdiff_t>(found[i]);
    table.columns.erase(table.columns.begin() + at);
    for (std::vector<Cell>& row : table.rows) row.erase(row.begin() + at);
  }
  return why;
}

Cell percent_off(const Cell& value, const Cell& base) {
  if (!value.number || !base.number || *base.number == 0) return {};
  return (*value.number / *base.number - 1) * 100;
}

Cell times_less(const Cell& base, const Cell& value) {
  if (!value.number || !base.number || *value.number == 0) return {};
  return *base.number / *value.number;
}

std::string with_commas(double value, int decimals) {
  const std::string digits = fmt::format("{:.{}f}", std::abs(value), decimals);
  constexpr std::size_t group = 3;
  const std::size_t point = std::min(digits.find('.'), digits.size());
  std::string text;
  if (value < 0 && digits.find_first_of("123456789") != std::string::npos) text += '-';
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i != 0 && i < point && (point - i) % group == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string cell_text(const Cell& cell, const Column& column) {
  return cell.number ? with_commas(*cell.number, column.decimals) + column.suffix : cell.text;
}

Table headlines(const std::vector<Section>& sections) {
  Table table{.key = "headlines",
              .title = "In short",
              .columns = {{"experiment", "experiment"},
                          {"what", "what"},
                          {"before", "before", Origin::modelled, 1},
                          {"after", "best", Origin::modelled, 1},
                          {"gain", "gain", Origin::modelled, 2, "x"},
                          {"measured_gain", "gain", Origin::measured, 2, "x"},
                          {"published_before", "before", Origin::published, 1},
                          {"published_after", "after", Origin::published, 1},
                          {"published_gain", "gain", Origin::published, 2, "x"}},
              .rows = {}};
  for (const Section& section : sections) {
    const Headline& line = section.headline;
    table.rows.push_back({section.key, line.what + ", " + line.unit, line.modelled.before, line.modelled.after,
                          times_less(line.modelled.before, line.modelled.after),
                          times_less(line.measured.before, line.measured.after), line.published.before,
                          line.published.after, times_less(line.published.before, line.published.after)});
  }
  return table;
}

}  // namespace vpmu::lab
