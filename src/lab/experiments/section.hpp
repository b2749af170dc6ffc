// What an experiment found: tables and charts, as data. The terminal, JSON and the page show the same.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vpmu::lab {

/// Where a column's values come from. Those of two origins never share a column.
enum class Origin : std::uint8_t {
  label,      // names the row
  modelled,   // the same on each run and machine
  measured,   // on this machine, in this run
  published,  // by others, on the machine that is modelled
};
const char* name_of(Origin origin);

/// Nothing, a number, or text: a row's name, or why there is no number.
struct Cell {
  Cell() = default;
  // NOLINTBEGIN(google-explicit-constructor,hicpp-explicit-conversions): tables are lists of such values.
  Cell(double value) : number{value} {}
  Cell(std::string value) : text{std::move(value)} {}
  Cell(std::string_view value) : text{value} {}
  Cell(const char* value) : text{value} {}
  // NOLINTEND(google-explicit-constructor,hicpp-explicit-conversions)

  [[nodiscard]] bool empty() const { return !number && text.empty(); }

  std::optional<double> number;
  std::string text;
};

struct Column {
  std::string key;    // in JSON
  std::string title;  // with the unit
  Origin origin = Origin::label;
  int decimals = 0;
  std::string suffix = {};  // "x", " %"
};

struct Table {
  std::string key;
  std::string title;
  std::vector<Column> columns;
  std::vector<std::vector<Cell>> rows;
};

struct Series {
  std::string name;
  Origin origin = Origin::modelled;
  std::vector<Cell> values;  // one for each label
};

struct Chart {
  enum class Shape : std::uint8_t { bars, stacked, lines };
  enum class Scale : std::uint8_t { linear, logarithmic };

  std::string key;
  std::string title;
  Shape shape = Shape::bars;
  Scale scale = Scale::linear;
  std::string x_title;
  std::string y_title;
  std::vector<std::string> labels;
  std::vector<Series> series;
};

/// An experiment in one line: what it is about, before and after.
struct Headline {
  struct Pair {
    Cell before = {};
    Cell after = {};
  };
  std::string what = {};
  std::string unit = {};
  int decimals = 0;
  Pair modelled = {};  // after: best
  Pair measured = {};  // in ns, whatever the unit
  Pair published = {};
};

struct Section {
  std::string key;
  std::string title = {};
  std::string summary = {};  // what is run, and on which platform
  Headline headline = {};
  std::vector<Table> tables = {};
  std::vector<Chart> charts = {};
  std::vector<std::string> notes = {};  // one sentence or two each
};

/// Removes these columns if none of their cells holds a number. Then the first of their cells that says why, if any.
std::string drop_if_empty(Table& table, std::span<const std::string_view> keys);
/// `value` over `base` less one, in percent; nothing if either is missing.
Cell percent_off(const Cell& value, const Cell& base);
/// `base` over `value`: how many times less; nothing if either is missing.
Cell times_less(const Cell& base, const Cell& value);
/// A number with thousands separated by commas.
std::string with_commas(double value, int decimals);
/// The headlines of several experiments.
Table headlines(const std::vector<Section>& sections);
std::string cell_text(const Cell& cell, const Column& column);

}  // namespace vpmu::lab
