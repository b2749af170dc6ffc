#include "lab/guest_run.hpp"

#include "lab/guest_port.hpp"
#include "lab/guest_timeline.hpp"
#include "lab/post_mortem.hpp"
#include "vpmu/mediated_backing.hpp"

namespace vpmu::lab {
namespace {

constexpr std::uint64_t mega = 1'000'000;

soft::MachineConfig machine_config(const GuestOptions& options) {
  soft::MachineConfig config;
  config.memory_mib = options.memory_mib;
  config.amd = !options.profile.is_intel();
  config.physical = options.pmu == GuestOptions::Pmu::physical;
  const auto tsc_mhz = static_cast<std::uint64_t>(options.platform.tsc_mhz.value);
  const auto core_mhz = static_cast<std::uint64_t>(options.platform.core_mhz.value);
  config.tsc_hz = tsc_mhz * mega;
  config.core_ratio = static_cast<std::uint32_t>(core_mhz);
  config.tsc_ratio = static_cast<std::uint32_t>(tsc_mhz);
  config.exit_ticks = static_cast<std::uint64_t>(options.platform.exit_cycles.value) * tsc_mhz / core_mhz;
  config.instruction_limit = options.max_instructions;
  return config;
}

}  // namespace

const char* why_not_mediated_run(const Profile& profile) { return why_not_mediated(model::svm_host(profile), profile); }

struct GuestRun::Parts {
  explicit Parts(const GuestOptions& given) : options{given} {
    const bool physical = options.pmu == GuestOptions::Pmu::physical;
    if (options.timeline != nullptr && !physical) timeline = std::make_unique<GuestTimeline>(options);
    HostCallLog* const log = timeline != nullptr ? &timeline->pmu() : nullptr;
    port = physical ? make_physical_port(options) : make_virtual_port(options, log);
    machine = std::make_unique<soft::Machine>(machine_config(options), *port, *port, options.output);
    port->attach(*machine);
    machine->set_stop_flag(options.stop);
    if (timeline == nullptr) return;
    timeline->attach(*machine);
    port->attach(timeline->pmu());
  }

  GuestOptions options;
  std::unique_ptr<GuestTimeline> timeline;
  std::unique_ptr<GuestPort> port;
  std::unique_ptr<soft::Machine> machine;
};

GuestRun::GuestRun(const GuestOptions& options) : parts_{std::make_unique<Parts>(options)} {}
GuestRun::~GuestRun() = default;

std::string GuestRun::load(std::span<const std::uint8_t> image) {
  return parts_->machine->load(image, parts_->options.append).error;
}

GuestResult GuestRun::run() {
  soft::Machine& machine = *parts_->machine;
  GuestResult result;
  result.stopped = machine.run();
  if (parts_->timeline != nullptr) parts_->timeline->finish();
  result.exit_value = machine.exit_value().value_or(0);
  parts_->port->report(result);
  const soft::CpuTotals& totals = machine.cpu().totals();
  result.instructions = totals.instructions + result.emulated_instructions;
  result.branches = totals.branches;
  result.cycles = totals.cycles;
  result.tsc = machine.cpu().tsc();
  result.tsc_hz = static_cast<std::uint64_t>(parts_->options.platform.tsc_mhz.value) * mega;
  result.exits = machine.exits();
  result.pmu_accesses = machine.pmu_accesses();
  result.pmis = machine.pmis();
  result.unknown = machine.cpu().unknown();
  if (result.stopped == soft::StopReason::shutdown || result.stopped == soft::StopReason::halted ||
      result.stopped == soft::StopReason::stuck) {
    result.post_mortem = post_mortem(machine);
  }
  return result;
}

}  // namespace vpmu::lab
