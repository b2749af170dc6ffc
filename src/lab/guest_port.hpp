// The PMU of a guest on the soft machine, as the machine and its CPU see it.
#pragma once

#include <memory>

#include "host/model/hardware.hpp"
#include "lab/guest_run.hpp"
#include "lab/pmu_timeline.hpp"
#include "machine/soft/machine.hpp"

namespace vpmu::lab {

class GuestPort : public soft::PmuPort, public soft::EventSink {
 public:
  GuestPort() = default;
  virtual ~GuestPort() = default;
  GuestPort(const GuestPort&) = delete;
  GuestPort& operator=(const GuestPort&) = delete;

  /// The machine, which outlives all calls but this one.
  virtual void attach(soft::Machine& machine) = 0;
  virtual void report(GuestResult& result) const = 0;
  /// Shows what it consists of; the CPU's own PMU has nothing to show.
  virtual void attach(PmuTimeline& /*timeline*/) {}
};

/// A virtual PMU between the machine and the modelled host below. `options` outlive it, and so does the log of its
/// calls to the host, if there is one.
std::unique_ptr<GuestPort> make_virtual_port(const GuestOptions& options, HostCallLog* log = nullptr);
/// The CPU's own PMU, in the hands of a guest that is a hypervisor.
std::unique_ptr<GuestPort> make_physical_port(const GuestOptions& options);

inline soft::EventSink::Headroom headroom_of(const model::Headroom& room) {
  return {.instructions = room.instructions,
          .cycles = room.cycles,
          .ref_cycles = room.ref_cycles,
          .branches = room.branches,
          .other = room.other};
}

/// What a register or a counter answers; none is #GP.
inline std::optional<std::uint64_t> answer(const Result<std::uint64_t, Fault>& result) {
  if (!result) return std::nullopt;
  return *result;
}

inline soft::CpuidLeaf cpuid_of(const Profile& profile, std::uint32_t leaf, std::uint32_t subleaf,
                                const soft::CpuidLeaf& base) {
  const CpuidResult r =
      pmu_cpuid(profile, leaf, subleaf, {.eax = base.eax, .ebx = base.ebx, .ecx = base.ecx, .edx = base.edx});
  return {.eax = r.eax, .ebx = r.ebx, .ecx = r.ecx, .edx = r.edx};
}

}  // namespace vpmu::lab
