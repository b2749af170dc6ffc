// The modelled host below a virtual PMU: its hardware, and the backing that makes the guest's counters count there.
#pragma once

#include <cstdint>
#include <memory>

#include "host/model/hardware.hpp"
#include "host/model/platform.hpp"
#include "lab/host_use.hpp"
#include "vpmu/backing.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

class GuestHost {
 public:
  GuestHost() = default;
  virtual ~GuestHost() = default;
  GuestHost(const GuestHost&) = delete;
  GuestHost& operator=(const GuestHost&) = delete;

  [[nodiscard]] virtual Backing& backing() = 0;
  /// Whether the guest's counters are the hardware's while it runs.
  [[nodiscard]] virtual bool mediated() const = 0;
  /// What counts while the guest runs, and what its accesses reach that need no exit.
  [[nodiscard]] virtual model::HardwarePmu& hardware() = 0;
  /// The guest executes. True if an interrupt of the PMU ends that with a VM exit.
  virtual bool advance(const model::Activity& activity, model::Ring ring) = 0;

  /// The VM entry after VirtualPmu::enter(), and the VM exit before VirtualPmu::leave().
  virtual void vm_entry() {}
  virtual void vm_exit() {}
  /// Mediated: counters of the hardware that overflowed since the last call.
  virtual CounterSet take_overflows() { return 0; }
  /// Whether the guest reaches the register, or RDPMC, without an exit.
  [[nodiscard]] virtual bool passes(Msr /*msr*/) const { return false; }
  [[nodiscard]] virtual bool passes_rdpmc() const { return false; }

  /// Modelled cost of all that the backing did so far, picoseconds.
  [[nodiscard]] virtual std::uint64_t cost_picoseconds() const = 0;
  [[nodiscard]] virtual HostUse use() const = 0;
};

class HostCallLog;

/// Whether counts of the host's events can be read without a call.
enum class FreeReads : std::uint8_t { no, yes };

/// Events of a modelled perf, for emulated mode. A log, if there is one, gets all calls, and outlives it.
std::unique_ptr<GuestHost> make_emulated_host(const Profile& guest, const model::Platform& platform, FreeReads reads,
                                              HostCallLog* log = nullptr);
/// A CPU with this PMU, for mediated mode: why_not_mediated(host, guest) must be a null pointer.
std::unique_ptr<GuestHost> make_mediated_host(const Profile& host, const Profile& guest,
                                              const model::Platform& platform);

}  // namespace vpmu::lab
