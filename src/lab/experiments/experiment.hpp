// The experiments: each a published change, its guest, and what it costs before and after.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "host/model/platform.hpp"
#include "lab/experiments/costs.hpp"
#include "lab/experiments/guest_pool.hpp"
#include "lab/experiments/section.hpp"
#include "vpmu/policy.hpp"

namespace vpmu::lab {

/// What was measured on this machine, by a name that the experiment chooses; or, in place of a number, why not.
class Measurements {
 public:
  void put(const std::string& name, Cell cell) { cells_[name] = std::move(cell); }
  /// Nothing if it was not measured.
  [[nodiscard]] Cell get(const std::string& name) const {
    const auto found = cells_.find(name);
    return found == cells_.end() ? Cell{} : found->second;
  }

 private:
  std::map<std::string, Cell> cells_;
};

struct LabOptions {
  /// Whose costs are modelled; without it, each experiment's is the machine of its publication.
  std::optional<model::Platform> platform;
  enum class Measure : std::uint8_t { no, yes } measure = Measure::yes;
  unsigned threads = 2;
  unsigned ticks = 10'000;  // of the guest, for each T

  /// The platform that the user chose, or the named one.
  [[nodiscard]] model::Platform platform_or(std::string_view name) const;
};

/// What an experiment works with.
struct Bench {
  GuestPool& pool;
  const LabOptions& options;
  const Measurements& measured;

  [[nodiscard]] model::Platform platform(std::string_view name) const { return options.platform_or(name); }
};

/// A guest as sweeps run it: under `best`, until the settings of a point change that.
struct SweepGuest {
  struct Figure {
    const char* key;  // with the unit
    Reading read;
  };
  const char* name;
  GuestJob job;
  std::vector<Figure> figures;
};

struct Experiment {
  const char* key;
  const char* title;
  /// Measures, alone on the machine. Throws Interrupted.
  void (*measure)(Measurements& out, const std::atomic<bool>& stop);
  /// Runs its guests. Throws LabError or Interrupted.
  Section (*run)(const Bench& bench);
  /// Its guests, as sweeps run them.
  std::vector<SweepGuest> (*sweep_guests)(const LabOptions& options);
  /// Adds what only guests can tell to the command lines of those; or a null pointer.
  void (*prepare_sweep)(GuestPool& pool, std::vector<SweepGuest>& guests);
};

std::span<const Experiment> experiments();
/// The experiment of that key, or a null pointer.
const Experiment* find_experiment(std::string_view key);
std::string experiment_names();

/// Runs them. `progress`: what is being done, and how much of it; from any thread, one call at a time.
using LabProgress = std::function<void(const std::string& what, unsigned done, unsigned of)>;
std::vector<Section> run_lab(std::span<const Experiment* const> chosen, const LabOptions& options,
                             const std::atomic<bool>& stop, const LabProgress& progress);

/// A policy by its text, which is known to be right.
Policy policy_of(std::string_view text);

/// A job for each policy.
template <class Policies, class JobOf>
std::vector<GuestJob> jobs_for(const Policies& policies, JobOf&& job_of) {
  std::vector<GuestJob> jobs;
  jobs.reserve(std::size(policies));
  for (const auto& policy : policies) jobs.push_back(job_of(policy));
  return jobs;
}

// --- The experiments, a file each ---
Section run_pmi(const Bench& bench);
std::vector<SweepGuest> pmi_guests(const LabOptions& options);
void measure_pmi(Measurements& out, const std::atomic<bool>& stop);
Section run_sampling(const Bench& bench);
std::vector<SweepGuest> sampling_guests(const LabOptions& options);
void measure_sampling(Measurements& out, const std::atomic<bool>& stop);
Section run_emulation(const Bench& bench);
std::vector<SweepGuest> emulation_guests(const LabOptions& options);
void measure_emulation(Measurements& out, const std::atomic<bool>& stop);
Section run_switch(const Bench& bench);
std::vector<SweepGuest> switch_guests(const LabOptions& options);
void measure_switch(Measurements& out, const std::atomic<bool>& stop);
Section run_tick(const Bench& bench);
std::vector<SweepGuest> tick_guests(const LabOptions& options);
void prepare_tick(GuestPool& pool, std::vector<SweepGuest>& guests);
void measure_tick(Measurements& out, const std::atomic<bool>& stop);

}  // namespace vpmu::lab
