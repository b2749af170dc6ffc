// A hypervisor that is just large enough for mediated mode: the host's perf, LVTPC, and the world switch.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/pmu.hpp"
#include "runtime/user_mode.hpp"
#include "vpmu/mediated_backing.hpp"
#include "vpmu/ring0_hardware.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::guest {

/// What Ring0Hardware asks of it; one CPU, interrupts off throughout.
class Hypervisor {
 public:
  Hypervisor();

  [[nodiscard]] std::uint64_t entry_global_ctrl() const;
  void set_entry_global_ctrl(std::uint64_t value);
  [[nodiscard]] std::uint64_t host_debugctl() const;
  void set_entry_debugctl(std::uint64_t value) { entry_debugctl_ = value; }
  void set_lvtpc(LvtpcOwner owner);
  bool take_guest_pmi();
  /// The host's own counters are saved and taken away; they come back as they were. What a guest left in the hardware
  /// is looked at before.
  void leave_host_perf();
  void return_host_perf();
  [[nodiscard]] std::uint32_t current_cpu() const { return 0; }
  [[nodiscard]] std::uint64_t owner_epoch(std::uint32_t /*cpu*/) const { return epoch_; }
  void set_intercepts(const PassThrough& pass) { pass_ = pass; }

  /// Runs a function in guest mode.
  void run_in_guest(UserFunction function, std::uint64_t argument);

  [[nodiscard]] const PassThrough& pass() const { return pass_; }
  [[nodiscard]] std::uint64_t entry_debugctl() const { return entry_debugctl_; }
  [[nodiscard]] bool host_has_the_pmu() const { return host_has_the_pmu_; }
  /// Registers in which something of a guest was left when the host got its PMU back.
  [[nodiscard]] std::uint64_t left_behind() const { return left_behind_; }

 private:
  struct Saved {
    std::array<std::uint64_t, max_counters> values{};
    std::array<std::uint64_t, max_counters> selectors{};
    std::uint64_t fixed_ctrl = 0;
    std::uint64_t global_ctrl = 0;
  };

  [[nodiscard]] bool intel() const { return pmu().is_intel(); }
  void look_for_leftovers();

  std::uint64_t entry_global_ctrl_ = 0;  // Intel: the VMCS field
  std::uint64_t entry_debugctl_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t left_behind_ = 0;
  bool host_has_the_pmu_ = true;
  PassThrough pass_{};
  Saved saved_;
};

/// A vCPU of it.
struct Vcpu {
  Vcpu(Hypervisor& owner, const Policy& policy)
      : hypervisor{owner},
        hardware{owner},
        backing{hardware, guest::pmu().profile()},
        pmu{guest::pmu().profile(), backing, policy} {}

  /// Load, guest region, put. Gives what the entry reported.
  EntryAction run(UserFunction function, std::uint64_t argument) {
    const EntryAction action = pmu.enter();
    hypervisor.run_in_guest(function, argument);
    pmu.leave();
    return action;
  }
  void write(Msr msr, std::uint64_t value) { static_cast<void>(pmu.write_msr(msr, value)); }
  [[nodiscard]] std::uint64_t read(Msr msr) { return pmu.read_msr(msr).value_or(~std::uint64_t{0}); }

  Hypervisor& hypervisor;
  Ring0Hardware<Hypervisor> hardware;
  MediatedBacking<Ring0Hardware<Hypervisor>> backing;
  VirtualPmu pmu;
};

extern "C" {
/// What the world switch adds to the counts of the function that it runs.
struct WorldSwitchCounts {
  std::uint64_t instructions;
  std::uint64_t branches;
};
extern const WorldSwitchCounts world_switch_counts;
}

}  // namespace vpmu::guest
