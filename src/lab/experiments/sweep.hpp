// Sweeps: experiments once for each combination of values of platform, profile and policy keys.
#pragma once

#include <cstddef>
#include <expected>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lab/experiments/experiment.hpp"

namespace vpmu::lab {

/// A key with the values that it takes in turn: a figure of a platform, a key of a profile or policy, or `platform`,
/// `profile`, `policy` (by name) and `backing` (emulated or mediated).
struct SweepKey {
  std::string key;
  std::vector<std::string> values;
};

/// KEY=A,B,C; or, in one line, what is wrong with it. Whether there is such a key, Sweep says.
std::expected<SweepKey, std::string> parse_sweep_key(std::string_view text);

/// Every count-th point, from point `first` on: what one of `count` machines runs.
struct Slice {
  std::size_t first = 1;
  std::size_t count = 1;

  /// How many of `points`.
  [[nodiscard]] std::size_t size(std::size_t points) const { return points < first ? 0 : (points - first) / count + 1; }
};
/// I/N, I from 1 to N; or, in one line, what is wrong with it.
std::expected<Slice, std::string> parse_slice(std::string_view text);

/// An experiment with one value for each key.
struct SweepPoint {
  const Experiment* experiment = nullptr;
  std::vector<std::pair<std::string, std::string>> settings;  // in the order of the keys
  std::vector<SweepGuest> guests;                             // one at least, with these settings
  std::string profile;                                        // the guests' before the settings of its keys: a name
};

class Sweep {
 public:
  static constexpr std::size_t max_points = 100'000;

  /// Each of its points is possible; or, in one line, what is wrong.
  static std::expected<Sweep, std::string> create(std::vector<const Experiment*> experiments,
                                                  std::vector<SweepKey> keys, LabOptions options);

  /// Points are numbered from 1: by experiment, and the last key changes fastest.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] SweepPoint point(std::size_t number) const;
  /// The same for the same sweep on each machine, and another for any other.
  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] const std::vector<SweepKey>& keys() const { return keys_; }

 private:
  Sweep(std::vector<const Experiment*> experiments, std::vector<SweepKey> keys, LabOptions options);
  [[nodiscard]] std::expected<SweepPoint, std::string> try_point(std::size_t number) const;

  std::vector<const Experiment*> experiments_;
  std::vector<SweepKey> keys_;
  LabOptions options_;
  std::string id_;
};

}  // namespace vpmu::lab
