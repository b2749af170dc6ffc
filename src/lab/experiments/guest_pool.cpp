#include "lab/experiments/guest_pool.hpp"

#include <fmt/format.h>

#include <charconv>
#include <future>
#include <utility>

#include "lab/experiments/embedded.hpp"
#include "lab/guest_report.hpp"
#include "lab/options.hpp"

namespace vpmu::lab {
namespace {

/// The next word of `text`, which it loses.
std::string_view take_word(std::string_view& text) {
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  const std::string_view word = text.substr(0, text.find(' '));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

double FigureLine::number(std::string_view key) const {
  const std::string_view value = text(key);
  double result = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), result);
  if (error != std::errc{} || end != value.data() + value.size()) {
    throw LabError{fmt::format("figure {}: {}={} is not a number", name, key, value)};
  }
  return result;
}

std::string_view FigureLine::text(std::string_view key) const {
  for (const auto& [name_, value] : values) {
    if (name_ == key) return value;
  }
  throw LabError{fmt::format("figure {} has no {}", name, key)};
}

const FigureLine& find_figure(const std::vector<FigureLine>& lines, std::string_view name, std::string_view prefix) {
  for (const FigureLine& line : lines) {
    if (line.name == name && line.prefix.starts_with(prefix)) return line;
  }
  throw LabError{fmt::format("a guest printed no figure {}", name)};
}

std::vector<FigureLine> figure_lines(std::string_view output) {
  constexpr std::string_view mark = "figure ";
  std::vector<FigureLine> lines;
  while (!output.empty()) {
    const std::size_t end = std::min(output.find('\n'), output.size());
    std::string_view line = output.substr(0, end);
    output.remove_prefix(std::min(end + 1, output.size()));
    const std::size_t at = line.find(mark);
    if (at == std::string_view::npos || (at != 0 && line[at - 1] != ' ')) continue;
    FigureLine figure;
    figure.prefix = line.substr(0, at);
    line.remove_prefix(at + mark.size());
    figure.name = take_word(line);
    for (std::string_view word = take_word(line); !word.empty(); word = take_word(line)) {
      const std::size_t equals = std::min(word.find('='), word.size() - 1);
      figure.values.emplace_back(word.substr(0, equals), word.substr(equals + 1));
    }
    lines.push_back(std::move(figure));
  }
  return lines;
}

GuestPool::GuestPool(unsigned threads, const std::atomic<bool>& stop, std::function<void(unsigned, unsigned)> progress)
    : free_{static_cast<std::ptrdiff_t>(threads)}, stop_{stop}, progress_{std::move(progress)} {}

std::vector<GuestFigures> GuestPool::run(const std::vector<GuestJob>& jobs) {
  tell(0, static_cast<unsigned>(jobs.size()));
  std::vector<std::future<GuestFigures>> running;
  running.reserve(jobs.size());
  for (const GuestJob& job : jobs) {
    running.push_back(std::async(std::launch::async, [this, &job] { return run_one(job); }));
  }
  std::vector<GuestFigures> figures;
  figures.reserve(jobs.size());
  for (auto& one : running) figures.push_back(one.get());
  return figures;
}

GuestFigures GuestPool::run_one(const GuestJob& job) {
  free_.acquire();
  struct Release {
    std::counting_semaphore<>& semaphore;
    ~Release() { semaphore.release(); }
  } const release{free_};
  if (stop_.load(std::memory_order_relaxed)) throw Interrupted{};

  std::string output;
  GuestOptions options;
  options.image_name = job.image;
  options.append = job.append;
  options.profile = job.profile;
  options.policy = job.policy;
  options.platform = job.platform;
  options.pmu = job.pmu;
  options.stop = &stop_;
  options.output = [&output](char c) { output += c; };
  GuestRun machine{options};
  if (const std::string error = machine.load(guest_image(job.image)); !error.empty()) throw LabError{error};
  GuestFigures figures{.result = machine.run(), .lines = figure_lines(output)};
  if (stop_.load(std::memory_order_relaxed)) throw Interrupted{};
  if (figures.result.stopped != soft::StopReason::guest_exit || figures.result.exit_value != 0) {
    throw LabError{fmt::format("guest {} ({}), {}, on {}: {}", job.image, job.append, to_text(job.policy),
                               job.platform.name, ending(figures.result))};
  }
  tell(1, 0);
  return figures;
}

void GuestPool::tell(unsigned ended, unsigned asked) {
  const std::scoped_lock lock{mutex_};
  ended_ += ended;
  asked_ += asked;
  if (progress_) progress_(ended_, asked_);
}

}  // namespace vpmu::lab
