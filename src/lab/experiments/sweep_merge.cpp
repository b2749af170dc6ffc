#include "lab/experiments/sweep_merge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "lab/experiments/sweep.hpp"
#include "lab/input_file.hpp"

namespace vpmu::lab {
namespace {

using Error = std::unexpected<std::string>;

/// What every line of a sweep has.
struct PointId {
  std::string sweep;
  std::size_t point = 0;
  std::size_t of = 0;
};

std::optional<PointId> read_id(std::string_view line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto sweep = json.find("sweep");
  const auto point = json.find("point");
  const auto of = json.find("of");
  if (sweep == json.end() || !sweep->is_string()) return std::nullopt;
  if (point == json.end() || !point->is_number_unsigned()) return std::nullopt;
  if (of == json.end() || !of->is_number_unsigned()) return std::nullopt;
  PointId id{.sweep = *sweep, .point = *point, .of = *of};
  if (id.of > Sweep::max_points || id.point == 0 || id.point > id.of) return std::nullopt;
  return id;
}

/// "3", or "3, 7, 11 and 21 more".
std::string some_of(const std::vector<std::size_t>& numbers) {
  constexpr std::size_t most = 10;
  const auto shown = static_cast<std::ptrdiff_t>(std::min(most, numbers.size()));
  std::string text = fmt::format("{}", fmt::join(numbers.begin(), numbers.begin() + shown, ", "));
  if (numbers.size() > most) text += fmt::format(" and {} more", numbers.size() - most);
  return text;
}

class Merger {
 public:
  std::expected<void, std::string> add(const std::string& path) {
    auto file = InputFile::open(path);
    if (!file) return Error{"cannot read " + file.error()};
    for (std::string_view line;;) {
      switch (file->next(line)) {
        case InputFile::Next::line:
          if (const std::string wrong = add_line(line); !wrong.empty()) {
            return Error{fmt::format("{}: line {} {}", file->name(), file->line_number(), wrong)};
          }
          break;
        case InputFile::Next::end:
          return {};
        case InputFile::Next::too_long:
          return Error{
              fmt::format("{}: line {} is too long for a point of a sweep", file->name(), file->line_number())};
        case InputFile::Next::failed:
          return Error{fmt::format("cannot read {}: {}", file->name(), file->error())};
      }
    }
  }

  [[nodiscard]] std::expected<std::string, std::string> merged() const {
    if (lines_.empty()) return Error{"there is no point in these files"};
    std::vector<std::size_t> missing;
    std::string all;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (lines_[i].empty()) missing.push_back(i + 1);
      all += lines_[i];
      all += '\n';
    }
    if (!missing.empty())
      return Error{fmt::format("of {} points these are missing: {}", lines_.size(), some_of(missing))};
    return all;
  }

 private:
  /// Empty, or what the line is.
  std::string add_line(std::string_view line) {
    const std::optional<PointId> id = read_id(line);
    if (!id) return "is no point of a sweep; was the file cut off?";
    if (lines_.empty()) {
      sweep_ = id->sweep;
      lines_.resize(id->of);
    }
    if (id->sweep != sweep_ || id->of != lines_.size()) return "is of another sweep than the first point";
    std::string& own = lines_[id->point - 1];
    if (!own.empty()) return fmt::format("is point {}, which is there already", id->point);
    own = line;
    return {};
  }

  std::string sweep_;
  std::vector<std::string> lines_;  // by point
};

}  // namespace

std::expected<std::string, std::string> merge_sweep(const std::vector<std::string>& paths) {
  Merger merger;
  for (const std::string& path : paths) {
    if (auto added = merger.add(path); !added) return Error{added.error()};
  }
  return merger.merged();
}

}  // namespace vpmu::lab
