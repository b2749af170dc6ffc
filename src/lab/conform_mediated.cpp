#include "lab/conform_mediated.hpp"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <utility>

#include "host/model/hardware_port.hpp"
#include "lab/conform_mediated_trace.hpp"
#include "vpmu/mediated_backing.hpp"
#include "vpmu/msr.hpp"

namespace vpmu::lab {
namespace {

using model::Event;

constexpr std::array<std::pair<Batch::Kind, Event>, Batch::kinds> batch_events{{
    {Batch::instructions, Event::instructions},
    {Batch::cycles, Event::cycles},
    {Batch::branches, Event::branches},
    {Batch::branch_misses, Event::branch_misses},
    {Batch::ref_cycles, Event::ref_cycles},
    {Batch::llc_references, Event::llc_references},
    {Batch::llc_misses, Event::llc_misses},
}};

class MediatedRig final : public ConformRig, private model::HardwareCpu::Observer {
 public:
  MediatedRig(const Scenario& scenario, Policy::Switch mode)
      : mode_{mode},
        cpu_{scenario.host},
        port_{cpu_},
        backing_{port_, scenario.host},
        comparison_{scenario.host.is_intel()} {
    cpu_.set_observer(this);
  }

  Backing& backing() override { return backing_; }

  void run(const Batch& batch) override {
    model::Activity activity;
    for (const auto& [kind, event] : batch_events) activity[event] = batch.counts[kind];
    port_.vm_entry();
    cpu_.run(activity, batch.cpl == 0 ? model::Ring::kernel : model::Ring::user, model::Mode::guest);
    port_.vm_exit();
  }

  void fail_opens(std::uint64_t /*opens*/) override {}

  std::string hardware(const Operation& operation, const Scenario& scenario) override {
    switch (operation.verb) {
      case Verb::hw_preset:
        cpu_.pmu().preset(static_cast<Msr>(operation.index), operation.value);
        return {};
      case Verb::hw_trace: {
        const HardwareTrace ours = std::exchange(trace_, {});
        if (port_.faults() != 0) return "an access that is #GP";
        if (mode_ != Policy::Switch::elide) return {};
        return comparison_.compare(scenario.traces[operation.index], ours, port_.pass().global);
      }
      case Verb::hw_view:
        return mode_ == Policy::Switch::ownership ? "" : view(operation, scenario);
      default:
        return {};
    }
  }

 private:
  [[nodiscard]] std::string view(const Operation& operation, const Scenario& scenario) const {
    const HardwareView& recorded = scenario.views[operation.index];
    // Between entries the peer's view of the selectors is stale.
    const bool entered = operation.value != 0;
    const PassThrough pass = entered ? port_.pass() : plan_mediated(scenario.host, scenario.profile).pass;
    if (pass.global == recorded.intercept_global) return "GLOBAL_* intercepted or not";
    if (pass.rdpmc == recorded.intercept_rdpmc) return "RDPMC intercepted or not";
    if (!entered) return {};
    for (std::uint32_t n = 0; n < recorded.selectors.size(); ++n) {
      const std::uint64_t ours = backing_.hardware_selector(CounterId::gp(n));
      if (ours != recorded.selectors[n]) return fmt::format("selector {}: {:#x}", n, ours);
    }
    if (backing_.hardware_fixed_ctrl() != recorded.fixed_ctrl) {
      return fmt::format("FIXED_CTR_CTRL: {:#x}", backing_.hardware_fixed_ctrl());
    }
    return {};
  }

  void before_access(model::HardwareCpu& /*cpu*/) override {}
  void access(const model::HardwareAccess& access) override { trace_.push_back(access); }
  void host_perf_leaves(model::HardwareCpu& /*cpu*/) override {}
  void host_perf_returns(model::HardwareCpu& /*cpu*/) override {}

  Policy::Switch mode_;
  model::HardwareCpu cpu_;
  model::HardwarePort port_;
  MediatedBacking<model::HardwarePort> backing_;
  TraceComparison comparison_;
  HardwareTrace trace_;
};

}  // namespace

std::unique_ptr<ConformRig> mediated_rig(const Scenario& scenario, const Policy& policy) {
  if (why_not_mediated(scenario.host, scenario.profile) != nullptr) return std::make_unique<EmulatedRig>();
  return std::make_unique<MediatedRig>(scenario, policy.mode_switch);
}

std::span<const std::string_view> mediated_rules() {
  static constexpr std::array<std::string_view, 3> rules{
      "Intel: the VM entry's GLOBAL_CTRL field is written when an entry needs it, not at each guest write: the same "
      "value at each entry, fewer writes",
      "AMD: of the status, surplus bits are cleared and missing ones set, not all cleared and the set register always "
      "written: fewer writes",
      "AMD: where GLOBAL_CTL passes through, it is read before it is zeroed: else what the guest wrote would be lost",
  };
  return rules;
}

std::span<const ExpectedDifference> mediated_differences(Vendor vendor) {
  using Difference = ExpectedDifference;
  constexpr Answer recorded{Answer::Kind::as_recorded};
  constexpr Answer differs{Answer::Kind::differs};
  constexpr std::uint32_t fixed_0 = index_of(ia32_fixed_ctr[0]);
  constexpr auto value = [](std::uint64_t number) { return Answer{Answer::Kind::value, number}; };
  constexpr auto count = [](std::uint64_t number) { return Answer{Answer::Kind::count, number}; };
  // A write of FIXED_CTR_CTRL that changes one field lets the others through the peer's filter.
  constexpr std::string_view q5 = "all fields of FIXED_CTR_CTRL are filtered on each write (Q5)";
  constexpr std::string_view v1 = "a guest of version 1 has no status: none is loaded for it";
  static constexpr std::array intel{
      Difference{"mediated/random/0", 28, Verb::hw_view, 0, 0, recorded, differs, q5},
      Difference{"mediated/random/0", 72, Verb::hw_trace, 0, 0, recorded, differs, q5},
      Difference{"mediated/random/2", 81, Verb::hw_trace, 0, 0, recorded, differs, q5},
      Difference{"mediated/random/2", 98, Verb::rdmsr, fixed_0, 0, value(0), value(0xFFFFFFFFFFFF), q5},
      Difference{"mediated/random/2", 123, Verb::rdmsr, fixed_0, 0, value(0), value(0xFFFFFFFFFFFF), q5},
      Difference{"mediated/random/2", 130, Verb::pmi, 0, 0, count(1), count(0), q5},
      Difference{"mediated/random/2", 131, Verb::hw_trace, 0, 0, recorded, differs, q5},
      Difference{"mediated/random/98", 41, Verb::hw_view, 0, 0, recorded, differs, q5},
      Difference{"mediated/random/98", 43, Verb::hw_view, 0, 0, recorded, differs, q5},
      Difference{"mediated/random/98", 62, Verb::pmi, 0, 0, count(1), count(0), q5},
      Difference{"mediated/random/98", 83, Verb::hw_trace, 0, 0, recorded, differs, q5},
      Difference{"mediated/random/98", 100, Verb::rdmsr, fixed_0, 0, value(0x1BE), value(0xFFFFFFFFFF9B), q5},
      Difference{"mediated/random/98", 125, Verb::rdmsr, fixed_0, 0, value(0x1BE), value(0xFFFFFFFFFF9B), q5},
      Difference{"mediated/random/98", 133, Verb::hw_trace, 0, 0, recorded, differs, q5},
  };
  static constexpr std::array amd{
      Difference{"mediated/random/82", 85, Verb::hw_trace, 0, 0, recorded, differs, v1},
      Difference{"mediated/random/86", 59, Verb::hw_trace, 0, 0, recorded, differs, v1},
      Difference{"mediated/random/86", 87, Verb::hw_trace, 0, 0, recorded, differs, v1},
  };
  if (vendor == Vendor::intel) return intel;
  return amd;
}

}  // namespace vpmu::lab
