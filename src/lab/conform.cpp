#include "lab/conform.hpp"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "lab/conform_differences.hpp"
#include "lab/conform_mediated.hpp"
#include "lab/conform_rig.hpp"
#include "lab/input_file.hpp"
#include "vpmu/event_filter.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {
namespace {

/// A virtual PMU on the vectors' host, driven by operations.
class Guest {
 public:
  Guest(const Scenario& scenario, const Policy& policy)
      : scenario_{scenario},
        rig_{scenario.mediated ? mediated_rig(scenario, policy) : std::make_unique<EmulatedRig>()},
        pmu_{scenario.profile, rig_->backing(), policy} {}

  /// How the hardware differed, operation by operation.
  [[nodiscard]] const std::map<std::size_t, std::string>& hardware_differences() const { return hardware_differences_; }

  Answer perform(const Operation& operation) {
    const std::size_t place = performed_++;
    const auto msr = static_cast<Msr>(operation.index);
    switch (operation.verb) {
      case Verb::wrmsr:
        return {pmu_.write_msr(msr, operation.value).ok() ? Answer::Kind::ok : Answer::Kind::gp};
      case Verb::rdmsr:
        return answer(pmu_.read_msr(msr), Answer::Kind::gp);
      case Verb::host_wrmsr:
        return {pmu_.host_write_msr(msr, operation.value).ok() ? Answer::Kind::ok : Answer::Kind::err};
      case Verb::host_rdmsr:
        return answer(pmu_.host_read_msr(msr), Answer::Kind::err);
      case Verb::rdpmc:
        return answer(pmu_.read_pmc(operation.index, access_), Answer::Kind::gp);
      case Verb::mode:
        access_ = operation.access;
        return {};
      case Verb::run:
        enter();
        rig_->run(operation.batch);
        pmu_.leave();
        return {};
      case Verb::emulated:
        retire(EmulatedEvent::instruction, operation.batch.counts[Batch::instructions], operation.batch.cpl);
        retire(EmulatedEvent::branch, operation.batch.counts[Batch::branches], operation.batch.cpl);
        return {};
      case Verb::entry:
        enter();
        rig_->run({});
        pmu_.leave();
        return {};
      case Verb::pmi:
        return {Answer::Kind::count, std::exchange(interrupts_, 0)};
      case Verb::filter:
        return install(scenario_.filters[operation.index]);
      case Verb::sched:
        pmu_.sched_out();
        return {};
      case Verb::refresh:
        refresh(scenario_.profiles[operation.index]);
        return {};
      case Verb::vm_enable_pmu:
        pmu_allowed_ = operation.value != 0;
        return {};
      case Verb::perf_fail:
        rig_->fail_opens(operation.value);
        return {};
      case Verb::hw_preset:
        static_cast<void>(rig_->hardware(operation, scenario_));
        return {};
      case Verb::hw_trace:
      case Verb::hw_view: {
        std::string difference = rig_->hardware(operation, scenario_);
        if (difference.empty()) return {Answer::Kind::as_recorded};
        hardware_differences_.emplace(place, std::move(difference));
        return {Answer::Kind::differs};
      }
    }
    return {};
  }

 private:
  static Answer answer(const Result<std::uint64_t, Fault>& result, Answer::Kind refused) {
    return result.ok() ? Answer{Answer::Kind::value, result.value()} : Answer{refused};
  }

  void enter() {
    if (pmu_.enter() == EntryAction::inject_pmi) ++interrupts_;
  }

  void retire(EmulatedEvent event, std::uint64_t times, std::uint32_t cpl) {
    for (; times != 0; --times) pmu_.retire(event, [cpl] { return cpl; });
  }

  Answer install(const Filter& filter) {
    const FilterRequest request{.action = filter.action,
                                .flags = filter.flags,
                                .fixed_bitmap = filter.fixed_bitmap,
                                .events = filter.events.data(),
                                .event_count = filter.events.size()};
    if (const auto loaded = filter_.load(scenario_.profile.vendor, request); !loaded.ok()) {
      return {loaded.error() == FilterError::too_many_events ? Answer::Kind::e2big : Answer::Kind::einval};
    }
    pmu_.set_filter(&filter_);
    return {Answer::Kind::ok};
  }

  void refresh(Profile profile) {
    if (!pmu_allowed_) {
      profile.version = 0;
      profile.gp_counters = 0;
      profile.fixed_mask = 0;
    }
    pmu_.set_profile(profile);
  }

  const Scenario& scenario_;
  std::unique_ptr<ConformRig> rig_;
  EventFilter filter_;
  VirtualPmu pmu_;
  PmcAccess access_;
  std::uint64_t interrupts_ = 0;
  bool pmu_allowed_ = true;
  std::size_t performed_ = 0;
  std::map<std::size_t, std::string> hardware_differences_;
};

using Answers = std::vector<Answer>;

void replace(Answers& answers, const Replacements& replacements) {
  for (const auto& [operation, answer] : replacements) answers[operation] = answer;
}

/// The sets of answers that pass, any one of them. The manual's, where it differs, are the ones that must be.
std::vector<Answers> accepted_answers(const Scenario& scenario, std::span<const ExpectedDifference> differences) {
  Answers recorded;
  recorded.reserve(scenario.operations.size());
  for (const Operation& operation : scenario.operations) recorded.push_back(operation.answer);
  std::vector<Answers> accepted{std::move(recorded)};
  if (!scenario.exact_rearm.empty()) {
    replace(accepted.emplace_back(accepted.front()), scenario.exact_rearm);
  }
  for (Answers& answers : accepted) {
    replace(answers, scenario.manual);
    for (const ExpectedDifference& difference : differences) answers[difference.operation] = difference.ours;
  }
  return accepted;
}

/// The longest line of the recorded files has 35,000 bytes.
constexpr std::size_t max_line = std::size_t{4} << 20;

std::size_t first_mismatch(const Answers& expected, const Answers& got) {
  std::size_t at = 0;
  while (at < got.size() && expected[at].allows(got[at])) ++at;
  return at;
}

Mismatch mismatch(const Scenario& scenario, std::size_t at, const Answer& expected, const Answer& got) {
  return {at, describe(scenario.operations[at]), describe(expected), describe(got), {}};
}

}  // namespace

ScenarioResult replay_scenario(const Scenario& scenario, const Policy& policy) {
  using Outcome = ScenarioResult::Outcome;
  if (scenario.has_tag("unmodelled")) return {Outcome::skipped, "unmodelled", {}};

  Answers got;
  got.reserve(scenario.operations.size());
  Guest guest{scenario, policy};
  for (const Operation& operation : scenario.operations) got.push_back(guest.perform(operation));

  const auto differences = expected_differences(scenario);
  const auto accepted = accepted_answers(scenario, differences);
  // The set that holds longest says best what went wrong.
  const Answers* closest = nullptr;
  std::size_t at = 0;
  for (const Answers& answers : accepted) {
    const std::size_t first = first_mismatch(answers, got);
    if (closest != nullptr && first <= at) continue;
    closest = &answers;
    at = first;
  }
  // What the hardware did differently is known in words.
  const auto tell = [&](std::size_t operation, const Answer& expected) {
    Mismatch told = mismatch(scenario, operation, expected, got[operation]);
    const auto words = guest.hardware_differences().find(operation);
    if (words != guest.hardware_differences().end()) told.got = words->second;
    return told;
  };
  if (at < got.size()) return {Outcome::failed, {}, {tell(at, (*closest)[at])}};
  ScenarioResult result;
  for (const ExpectedDifference& difference : differences) {
    if (got[difference.operation] == difference.recorded) continue;
    result.outcome = Outcome::passed_but_differs;
    result.mismatches.push_back(tell(difference.operation, difference.recorded));
    result.mismatches.back().reason = difference.reason;
  }
  return result;
}

std::expected<FileResult, InputError> replay_file(const std::string& path, const Policy& policy,
                                                  std::size_t max_failures) {
  auto input = InputFile::open(path, max_line);
  if (!input) return std::unexpected{InputError{input.error()}};
  FileResult file;
  const auto bad_line = [&](std::string_view what) {
    return std::unexpected{InputError{fmt::format("{}:{}: {}", input->name(), input->line_number(), what)}};
  };
  for (std::string_view line;;) {
    switch (input->next(line)) {
      case InputFile::Next::line:
        break;
      case InputFile::Next::end:
        if (input->line_number() != 0) return file;
        return std::unexpected{InputError{fmt::format("{}: no scenarios: the file is empty", input->name())}};
      case InputFile::Next::too_long:
        return bad_line(fmt::format("line longer than {} bytes", max_line));
      case InputFile::Next::failed:
        return bad_line(input->error());
    }
    const auto scenario = parse_scenario(line);
    if (!scenario) return bad_line(scenario.error());
    if (scenario->mediated && policy.mode_switch == Policy::Switch::elide) file.rules = mediated_rules();
    auto result = replay_scenario(*scenario, policy);
    switch (result.outcome) {
      case ScenarioResult::Outcome::passed:
        ++file.passed;
        break;
      case ScenarioResult::Outcome::passed_but_differs:
        ++file.differ;
        file.differences.push_back({scenario->name, std::move(result)});
        break;
      case ScenarioResult::Outcome::skipped:
        ++file.skipped[result.skipped_as];
        break;
      case ScenarioResult::Outcome::failed:
        ++file.failed;
        if (file.failures.size() < max_failures) file.failures.push_back({scenario->name, std::move(result)});
        break;
    }
  }
}

}  // namespace vpmu::lab
