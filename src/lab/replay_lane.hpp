// One virtual PMU of a replay, under one policy, on a host of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "lab/guest_host.hpp"
#include "lab/pmu_timeline.hpp"
#include "lab/replay.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {

/// The CPU of a replay in mediated mode: the newest of the guest's vendor, with the guest's counters and no others, so
/// that as much as possible passes through.
Profile mediated_host_of(const Profile& guest);

class ReplayLane {
 public:
  ReplayLane(const Profile& profile, const ReplayPolicy& policy, const ReplayOptions& options,
             std::unique_ptr<PmuTimeline> timeline = nullptr);

  /// The guest executes, from enter() to exit().
  void run(const model::Activity& activity, model::Ring ring) { host_->advance(activity, ring); }

  /// The trace says that the guest exited. Where it did for a PMU access, that may have passed through here: then the
  /// guest is still running.
  enum class Cause : std::uint8_t { msr, rdpmc, other };
  void exit(Cause cause);
  /// The access that the guest exited for.
  Result<std::uint64_t, Fault> read_msr(Msr msr);
  Status<Fault> write_msr(Msr msr, std::uint64_t value);
  Result<std::uint64_t, Fault> read_pmc(std::uint32_t ecx);
  /// The next entry, after the hypervisor completed that many instructions for the guest.
  void enter(std::uint32_t completed, std::uint32_t cpl);
  void sched_out();

  [[nodiscard]] const VirtualPmu& pmu() const { return pmu_; }
  [[nodiscard]] std::uint64_t pmis() const { return pmis_; }
  /// PMU accesses that exited, the others not.
  [[nodiscard]] std::uint64_t pmu_exits() const { return pmu_exits_; }
  [[nodiscard]] HostUse use() const { return host_->use(); }

 private:
  /// Whether the access is the guest's own; else the exit has happened.
  bool passes(bool allowed);
  void leave();

  std::unique_ptr<PmuTimeline> timeline_;  // a null pointer: none is wanted
  std::unique_ptr<GuestHost> host_;
  VirtualPmu pmu_;
  bool in_guest_ = false;
  std::uint64_t exit_ns_ = 0;  // with a timeline: of the trace's last exit
  bool passed_ = false;        // since the last exit() of the trace, the access did not need it
  std::uint64_t pmis_ = 0;
  std::uint64_t pmu_exits_ = 0;
};

}  // namespace vpmu::lab
