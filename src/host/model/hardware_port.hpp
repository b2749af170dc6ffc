// The port of mediated mode on modelled hardware: physical CPUs, and what a hypervisor keeps for a vCPU.
#pragma once

#include <cstdint>

#include "host/model/hardware.hpp"
#include "vpmu/hardware.hpp"

namespace vpmu::model {

/// One access to the hardware, or one call to the host around it.
struct HardwareAccess {
  enum class Kind : std::uint8_t {
    rdmsr,
    wrmsr,
    rdpmc,
    set_entry_field,  // the VM entry's GLOBAL_CTRL, Intel: memory
    leave_host_perf,
    return_host_perf,
    set_lvtpc_guest,
    set_lvtpc_host,
  };
  Kind kind = Kind::rdmsr;
  std::uint32_t index = 0;  // MSR, or RDPMC's ECX
  std::uint64_t value = 0;
  friend bool operator==(const HardwareAccess&, const HardwareAccess&) = default;
};

/// Accesses apart from those to PMU registers, which HardwarePmu counts.
struct SwitchCounts {
  std::uint64_t entry_fields = 0;
  std::uint64_t lvtpc_writes = 0;
  std::uint64_t host_perf_calls = 0;
  std::uint64_t intercept_changes = 0;
  friend bool operator==(const SwitchCounts&, const SwitchCounts&) = default;
  SwitchCounts& operator+=(const SwitchCounts& more) {
    entry_fields += more.entry_fields;
    lvtpc_writes += more.lvtpc_writes;
    host_perf_calls += more.host_perf_calls;
    intercept_changes += more.intercept_changes;
    return *this;
  }
};

/// One physical CPU: its PMU, LVTPC, and the PMIs on their way from one to the other.
class HardwareCpu {
 public:
  /// What a test or a report wants to know of, and the host's side of the switch.
  class Observer {
   public:
    /// Just before an access takes effect: here an NMI may come, or the world be looked at.
    virtual void before_access(HardwareCpu& cpu) = 0;
    virtual void access(const HardwareAccess& access) = 0;
    virtual void host_perf_leaves(HardwareCpu& cpu) = 0;
    virtual void host_perf_returns(HardwareCpu& cpu) = 0;

   protected:
    Observer() = default;
    ~Observer() = default;
    Observer(const Observer&) = default;
    Observer& operator=(const Observer&) = default;
  };

  explicit HardwareCpu(const Profile& profile) : pmu_{profile} { pmu_.set_svme(true); }

  [[nodiscard]] HardwarePmu& pmu() { return pmu_; }
  [[nodiscard]] const HardwarePmu& pmu() const { return pmu_; }
  void set_observer(Observer* observer) { observer_ = observer; }
  /// A PMI reaches the local APIC after so many more accesses: 0 at once.
  void set_pmi_latency(std::uint32_t accesses) { latency_ = accesses; }

  /// Something executes. PMIs that this raises go on their way.
  CounterSet run(const Activity& activity, Ring ring, Mode mode);
  /// Time passes: a PMI on its way arrives.
  void settle();

  [[nodiscard]] LvtpcOwner lvtpc() const { return lvtpc_; }
  [[nodiscard]] bool has_host_perf() const { return host_perf_; }
  [[nodiscard]] std::uint64_t epoch() const { return epoch_; }
  /// The guest's vector came: in the guest, that is a VM exit.
  [[nodiscard]] bool guest_vector_waits() const { return guest_vector_; }
  /// PMIs that came as the host's.
  [[nodiscard]] std::uint64_t host_pmis() const { return host_pmis_; }
  /// PMIs that LVTPC, masked, dropped.
  [[nodiscard]] std::uint64_t dropped_pmis() const { return dropped_pmis_; }

 private:
  friend class HardwarePort;

  void before();
  void note(HardwareAccess::Kind kind, std::uint32_t index = 0, std::uint64_t value = 0);
  void deliver();

  HardwarePmu pmu_;
  Observer* observer_ = nullptr;
  LvtpcOwner lvtpc_ = LvtpcOwner::host;
  bool lvtpc_masked_ = false;
  bool guest_vector_ = false;
  bool host_perf_ = true;
  bool on_its_way_ = false;
  std::uint32_t latency_ = 0;
  std::uint32_t accesses_left_ = 0;
  std::uint64_t epoch_ = 0;
  std::uint64_t host_pmis_ = 0;
  std::uint64_t dropped_pmis_ = 0;
};

/// A vCPU's way to the CPU on which it runs: `Hardware` on the model. Accesses that would be #GP are counted as faults.
class HardwarePort {
 public:
  explicit HardwarePort(HardwareCpu& cpu) : cpu_{&cpu} {}

  // --- Hardware ---

  std::uint64_t rdmsr(Msr msr);
  void wrmsr(Msr msr, std::uint64_t value);
  std::uint64_t rdpmc(std::uint32_t ecx);
  std::uint64_t entry_global_ctrl();
  void set_entry_global_ctrl(std::uint64_t value);
  [[nodiscard]] std::uint64_t host_debugctl() const { return host_debugctl_; }
  void set_entry_debugctl(std::uint64_t value) { entry_debugctl_ = value; }
  void set_lvtpc(LvtpcOwner owner);
  bool take_guest_pmi();
  void leave_host_perf();
  void return_host_perf();
  [[nodiscard]] std::uint32_t current_cpu() const { return number_; }
  [[nodiscard]] std::uint64_t owner_epoch(std::uint32_t cpu) const { return cpu == number_ ? cpu_->epoch_ : 0; }
  void set_intercepts(const PassThrough& pass);

  // --- The hypervisor around it ---

  /// The vCPU's thread runs on another CPU from now on.
  void migrate(HardwareCpu& cpu, std::uint32_t number);
  /// VM entry and VM exit: Intel's GLOBAL_CTRL is loaded and saved by them.
  void vm_entry();
  void vm_exit();
  void set_host_debugctl(std::uint64_t value) { host_debugctl_ = value; }
  [[nodiscard]] std::uint64_t entry_debugctl() const { return entry_debugctl_; }

  [[nodiscard]] HardwareCpu& cpu() { return *cpu_; }
  [[nodiscard]] const PassThrough& pass() const { return pass_; }
  [[nodiscard]] const SwitchCounts& counts() const { return counts_; }
  [[nodiscard]] std::uint64_t faults() const { return faults_; }

 private:
  [[nodiscard]] bool intel() { return cpu_->pmu_.profile().is_intel(); }

  HardwareCpu* cpu_;
  std::uint32_t number_ = 0;
  std::uint64_t entry_global_ctrl_ = 0;
  std::uint64_t host_global_ctrl_ = 0;
  std::uint64_t entry_debugctl_ = 0;
  std::uint64_t host_debugctl_ = 0;
  PassThrough pass_{};
  SwitchCounts counts_{};
  std::uint64_t faults_ = 0;
};
static_assert(Hardware<HardwarePort>);

}  // namespace vpmu::model
