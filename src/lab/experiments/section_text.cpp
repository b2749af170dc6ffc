#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "lab/experiments/section_report.hpp"

namespace vpmu::lab {
namespace {

constexpr std::string_view gap = "  ";
constexpr std::size_t line_width = 100;

/// What a terminal is told before and after text of an origin.
std::string_view code_of(Origin origin) {
  switch (origin) {
    case Origin::modelled:
      return "\x1b[36m";
    case Origin::measured:
      return "\x1b[32m";
    case Origin::published:
      return "\x1b[33m";
    case Origin::label:
      break;
  }
  return "";
}
constexpr std::string_view bold = "\x1b[1m";
constexpr std::string_view plain = "\x1b[0m";

class Painter {
 public:
  explicit Painter(Colour colour) : on_{colour == Colour::yes} {}
  [[nodiscard]] std::string operator()(std::string_view code, std::string_view text) const {
    if (!on_ || code.empty()) return std::string{text};
    return fmt::format("{}{}{}", code, text, plain);
  }

 private:
  bool on_;
};

std::string aligned(std::string_view text, std::size_t width, bool left) {
  return left ? fmt::format("{:<{}}", text, width) : fmt::format("{:>{}}", text, width);
}

void trim(std::string& line) { line.erase(line.find_last_not_of(' ') + 1); }

/// "name ------" over the columns of an origin.
std::string rule(std::string_view name, std::size_t width) {
  return name.size() + 1 < width ? fmt::format("{} {:-<{}}", name, "", width - name.size() - 1)
                                 : aligned(name, width, true);
}

void add_table(std::string& out, const Table& table, const Painter& paint) {
  const std::size_t columns = table.columns.size();
  std::vector<std::size_t> widths(columns);
  for (std::size_t c = 0; c < columns; ++c) {
    widths[c] = table.columns[c].title.size();
    for (const auto& row : table.rows) widths[c] = std::max(widths[c], cell_text(row[c], table.columns[c]).size());
  }
  // The origins stand above their columns.
  std::string origins;
  for (std::size_t c = 0; c < columns;) {
    const Origin origin = table.columns[c].origin;
    const std::string_view name = origin == Origin::label ? "" : name_of(origin);
    const std::size_t first = c;
    std::size_t span = 0;
    for (; c < columns && table.columns[c].origin == origin; ++c) span += widths[c] + (c > first ? gap.size() : 0);
    // Columns too narrow for their origin's name: the first grows.
    if (span < name.size()) {
      widths[first] += name.size() - span;
      span = name.size();
    }
    origins += origin == Origin::label ? aligned("", span, true) : rule(name, span);
    origins += gap;
  }
  trim(origins);
  std::string titles;
  for (std::size_t c = 0; c < columns; ++c) {
    titles += aligned(table.columns[c].title, widths[c], table.columns[c].origin == Origin::label);
    titles += gap;
  }
  trim(titles);
  fmt::format_to(std::back_inserter(out), "\n{}\n{}\n{}\n", paint(bold, table.title), origins, titles);
  for (const auto& row : table.rows) {
    std::size_t used = 0;
    for (std::size_t c = 0; c < columns; ++c) used = !row[c].empty() ? c + 1 : used;
    for (std::size_t c = 0; c < used; ++c) {
      const Origin origin = table.columns[c].origin;
      out += paint(code_of(origin), aligned(cell_text(row[c], table.columns[c]), widths[c], origin == Origin::label));
      out += c + 1 < used ? gap : "\n";
    }
  }
}

/// Breaks a note into lines.
void add_note(std::string& out, std::string_view note) {
  std::size_t used = 1;
  out += '-';
  while (!note.empty()) {
    const std::size_t end = std::min(note.find(' '), note.size());
    if (used + 1 + end > line_width) {
      out += "\n ";
      used = 1;
    }
    out += ' ';
    out += note.substr(0, end);
    used += 1 + end;
    note.remove_prefix(std::min(end + 1, note.size()));
  }
  out += '\n';
}

}  // namespace

std::string table_text(const Table& table, Colour colour) {
  std::string out;
  add_table(out, table, Painter{colour});
  return out;
}

std::string section_text(const Section& section, Colour colour) {
  const Painter paint{colour};
  const std::string title = fmt::format("== {}: {}", section.key, section.title);
  std::string out = fmt::format("{}\n{}\n", paint(bold, title), section.summary);
  for (const Table& table : section.tables) add_table(out, table, paint);
  out += '\n';
  for (const std::string& note : section.notes) add_note(out, note);
  out += '\n';
  return out;
}

}  // namespace vpmu::lab
