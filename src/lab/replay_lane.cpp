#include "lab/replay_lane.hpp"

#include <utility>

#include "host/model/hardware.hpp"

namespace vpmu::lab {
namespace {

std::unique_ptr<GuestHost> host_of(const Profile& profile, const ReplayOptions& options, HostCallLog* log) {
  if (options.backing == ReplayOptions::Backing::mediated) {
    return make_mediated_host(mediated_host_of(profile), profile, options.platform);
  }
  return make_emulated_host(profile, options.platform, FreeReads::yes, log);
}

model::Activity instructions(std::uint64_t count) {
  model::Activity activity;
  activity[model::Event::instructions] = count;
  return activity;
}

}  // namespace

Profile mediated_host_of(const Profile& guest) {
  Profile host = model::host_for(guest);
  if (!guest.present()) return host;
  host.gp_counters = guest.gp_counters;
  if (guest.version >= 2) host.fixed_mask = guest.fixed_mask;
  return host;
}

ReplayLane::ReplayLane(const Profile& profile, const ReplayPolicy& policy, const ReplayOptions& options,
                       std::unique_ptr<PmuTimeline> timeline)
    : timeline_{std::move(timeline)},
      host_{host_of(profile, options, timeline_.get())},
      pmu_{profile, host_->backing(), policy.policy} {
  if (timeline_ != nullptr) timeline_->attach(pmu_, *host_);
}

void ReplayLane::leave() {
  if (!in_guest_) return;
  in_guest_ = false;
  host_->vm_exit();
  pmu_.leave();
  if (timeline_ != nullptr) timeline_->exited(exit_ns_);
}

void ReplayLane::exit(Cause cause) {
  if (timeline_ != nullptr) exit_ns_ = timeline_->now();
  passed_ = cause == Cause::rdpmc && in_guest_ && host_->passes_rdpmc();
  if (passed_ || (cause == Cause::msr && in_guest_)) return;
  if (cause == Cause::rdpmc) ++pmu_exits_;
  leave();
}

bool ReplayLane::passes(bool allowed) {
  if (in_guest_ && allowed) return passed_ = true;
  leave();
  ++pmu_exits_;
  return false;
}

Result<std::uint64_t, Fault> ReplayLane::read_msr(Msr msr) {
  return passes(host_->passes(msr)) ? host_->hardware().read_msr(msr) : pmu_.read_msr(msr);
}

Status<Fault> ReplayLane::write_msr(Msr msr, std::uint64_t value) {
  const auto status = passes(host_->passes(msr)) ? host_->hardware().write_msr(msr, value) : pmu_.write_msr(msr, value);
  if (timeline_ != nullptr) timeline_->wrote(msr);
  return status;
}

Result<std::uint64_t, Fault> ReplayLane::read_pmc(std::uint32_t ecx) {
  return passes(host_->passes_rdpmc()) ? host_->hardware().read_pmc(ecx) : pmu_.read_pmc(ecx);
}

void ReplayLane::enter(std::uint32_t completed, std::uint32_t cpl) {
  if (in_guest_ && passed_) {
    host_->advance(instructions(completed), cpl == 0 ? model::Ring::kernel : model::Ring::user);
    return;
  }
  leave();
  for (std::uint32_t i = 0; i < completed; ++i) pmu_.retire(EmulatedEvent::instruction, [cpl] { return cpl; });
  if (pmu_.enter() == EntryAction::inject_pmi) {
    ++pmis_;
    if (timeline_ != nullptr) timeline_->pmi();
  }
  host_->vm_entry();
  if (timeline_ != nullptr) timeline_->entered();
  in_guest_ = true;
}

void ReplayLane::sched_out() {
  leave();
  pmu_.sched_out();
}

}  // namespace vpmu::lab
