#include "lab/experiments/experiment.hpp"

#include <array>
#include <future>

#include "lab/options.hpp"

namespace vpmu::lab {
namespace {

constexpr std::array<Experiment, 5> all{{
    {"pmi", "A guest's PMI: host events are kept", measure_pmi, run_pmi, pmi_guests, nullptr},
    {"sampling", "Four sampled events: pauses are tracked", measure_sampling, run_sampling, sampling_guests, nullptr},
    {"emulation", "Emulated instructions: matches are cached", measure_emulation, run_emulation, emulation_guests,
     nullptr},
    {"switch", "Mediated switch: equal registers are not written", measure_switch, run_switch, switch_guests, nullptr},
    {"tick", "Guest tick: reprograms are folded", measure_tick, run_tick, tick_guests, prepare_tick},
}};

}  // namespace

model::Platform LabOptions::platform_or(std::string_view name) const {
  return platform ? *platform : *model::find_platform(name);
}

std::span<const Experiment> experiments() { return all; }

const Experiment* find_experiment(std::string_view key) {
  for (const Experiment& experiment : all) {
    if (experiment.key == key) return &experiment;
  }
  return nullptr;
}

std::string experiment_names() {
  std::string names;
  for (const Experiment& experiment : all) names += (names.empty() ? "" : ", ") + std::string{experiment.key};
  return names;
}

Policy policy_of(std::string_view text) {
  const auto policy = parse_policy(text);
  if (!policy) throw LabError{policy.error()};
  return *policy;
}

std::vector<Section> run_lab(std::span<const Experiment* const> chosen, const LabOptions& options,
                             const std::atomic<bool>& stop, const LabProgress& progress) {
  // First, and one after the other: guests on the other processor would disturb it.
  std::vector<Measurements> measured(chosen.size());
  if (options.measure == LabOptions::Measure::yes) {
    const auto count = static_cast<unsigned>(chosen.size());
    for (unsigned i = 0; i < count; ++i) {
      progress("measuring on this machine", i, count);
      chosen[i]->measure(measured[i], stop);
    }
  }
  GuestPool pool{options.threads, stop,
                 [&progress](unsigned done, unsigned of) { progress("running guests", done, of); }};
  std::vector<std::future<Section>> running;
  running.reserve(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    running.push_back(std::async(std::launch::async, [&pool, &options, &measured, &chosen, i] {
      return chosen[i]->run({.pool = pool, .options = options, .measured = measured[i]});
    }));
  }
  std::vector<Section> sections;
  sections.reserve(chosen.size());
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    sections.push_back(running[i].get());
    sections.back().title = chosen[i]->title;
  }
  return sections;
}

}  // namespace vpmu::lab
