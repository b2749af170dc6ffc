// Guests of the experiments, several at a time, and the figures that they print.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "host/model/platform.hpp"
#include "lab/guest_run.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

struct GuestJob {
  std::string image;  // of guest_image()
  std::string append;
  Profile profile;
  Policy policy;
  model::Platform platform;
  GuestOptions::Pmu pmu = GuestOptions::Pmu::emulated;
};

/// One line of a guest: `[PREFIX] figure NAME key=value ...`.
struct FigureLine {
  std::string prefix;
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;

  /// Throws LabError if there is no such key, or no number.
  [[nodiscard]] double number(std::string_view key) const;
  [[nodiscard]] std::string_view text(std::string_view key) const;
};

/// The first line of that name of which `prefix` begins so; throws LabError if there is none.
const FigureLine& find_figure(const std::vector<FigureLine>& lines, std::string_view name,
                              std::string_view prefix = {});

struct GuestFigures {
  GuestResult result;
  std::vector<FigureLine> lines;

  [[nodiscard]] const FigureLine& line(std::string_view name, std::string_view prefix = {}) const {
    return find_figure(lines, name, prefix);
  }
  /// TSC ticks to ns.
  [[nodiscard]] double ns(double ticks) const { return ticks * 1e9 / static_cast<double>(result.tsc_hz); }
};

std::vector<FigureLine> figure_lines(std::string_view output);

/// The lab itself failed: a guest did not run, or did not pass its own checks. One line.
class LabError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The stop flag was raised.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

class GuestPool {
 public:
  /// At most `threads` guests run at a time, whoever asks. `progress` is told how many guests ended and how many were
  /// asked for; from any thread, one call at a time.
  GuestPool(unsigned threads, const std::atomic<bool>& stop, std::function<void(unsigned, unsigned)> progress);

  /// Runs them, in any order; gives their figures in the order of the jobs. May be called from several threads. Throws
  /// LabError or Interrupted.
  std::vector<GuestFigures> run(const std::vector<GuestJob>& jobs);

  [[nodiscard]] const std::atomic<bool>& stop() const { return stop_; }

 private:
  GuestFigures run_one(const GuestJob& job);
  void tell(unsigned ended, unsigned asked);

  std::counting_semaphore<> free_;
  const std::atomic<bool>& stop_;
  std::function<void(unsigned, unsigned)> progress_;
  std::mutex mutex_;
  unsigned ended_ = 0;
  unsigned asked_ = 0;
};

}  // namespace vpmu::lab
