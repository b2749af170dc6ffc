// The PMU of a physical CPU, register by register.
#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "arch/registers.hpp"
#include "host/model/activity.hpp"
#include "host/model/event_rule.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/fault.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"
#include "vpmu/result.hpp"

namespace vpmu::model {

/// Whose instructions run: the hypervisor's or a guest's.
enum class Mode : std::uint8_t { host, guest };

/// Instructions that accessed PMU registers, those that ended in #GP included. Times the platform's costs: cycles.
struct AccessCounts {
  std::uint64_t rdmsr = 0;
  std::uint64_t wrmsr = 0;
  std::uint64_t rdpmc = 0;
  friend bool operator==(const AccessCounts&, const AccessCounts&) = default;
  friend AccessCounts operator-(const AccessCounts& a, const AccessCounts& b) {
    return {.rdmsr = a.rdmsr - b.rdmsr, .wrmsr = a.wrmsr - b.wrmsr, .rdpmc = a.rdpmc - b.rdpmc};
  }
  AccessCounts& operator+=(const AccessCounts& more) {
    rdmsr += more.rdmsr;
    wrmsr += more.wrmsr;
    rdpmc += more.rdpmc;
    return *this;
  }
  [[nodiscard]] std::uint64_t total() const { return rdmsr + wrmsr + rdpmc; }
};

/// How often each event may happen with no counter overflowing. Exact for counters that count events: one more, and one
/// overflows. A counter of the cycles in which something did *not* happen bounds all cycles: safe, not tight.
struct Headroom {
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t instructions = unlimited;
  std::uint64_t cycles = unlimited;
  std::uint64_t ref_cycles = unlimited;
  std::uint64_t branches = unlimited;
  std::uint64_t other = unlimited;  // of the remaining events, and of the edges of any: the smallest
  friend bool operator==(const Headroom&, const Headroom&) = default;
};

/// PMU registers of one physical CPU, as CPUID describes them by `profile`: access rules, counting, overflow, PMI.
///
/// Registers are shared by whoever runs on the CPU: they keep what their last owner wrote. The local APIC is not part
/// of it: the PMI line is a pulse that somebody takes, and LVTPC's mask decides elsewhere what becomes of it.
class HardwarePmu {
 public:
  /// `profile` must pass check(). For an AMD CPU with SVM, set Profile::nested_virtualization (see svm_host()).
  explicit HardwarePmu(const Profile& profile);

  [[nodiscard]] const Profile& profile() const { return profile_; }

  // --- Instructions ---

  Result<std::uint64_t, Fault> read_msr(Msr msr);
  Status<Fault> write_msr(Msr msr, std::uint64_t value);
  /// RDPMC, privilege aside: CPL and CR4.PCE are the CPU's to check.
  Result<std::uint64_t, Fault> read_pmc(std::uint32_t ecx);
  [[nodiscard]] const AccessCounts& accesses() const { return accesses_; }

  /// GLOBAL_CTRL loaded by a VM entry or VM exit (VMCS field IA32_PERF_GLOBAL_CTRL): no access. Faults where the entry
  /// would fail: reserved bits, or no such register.
  Status<Fault> load_global_ctrl(std::uint64_t value);
  [[nodiscard]] std::uint64_t global_ctrl() const { return global_ctrl_; }

  /// EFER.SVME, which AMD's GuestOnly and HostOnly depend on.
  void set_svme(bool on);

  // --- Execution ---

  /// Counts a stretch of execution. It is one batch: freezing on a PMI takes effect at its end. Gives the counters that
  /// overflowed, be it with or without an interrupt.
  CounterSet advance(const Activity& activity, Ring ring, Mode mode);
  [[nodiscard]] const Headroom& headroom(Ring ring, Mode mode);
  /// Whether a counter that counts now in this mode, at any privilege level, counts this event.
  [[nodiscard]] bool uses(Event event, Mode mode);
  /// Whether one counts edges.
  [[nodiscard]] bool uses_edges(Mode mode);

  /// A PMI was raised and nobody took it yet. However often it was raised, it is one.
  [[nodiscard]] bool pmi_raised() const { return pmi_; }
  /// Takes it off the line.
  bool take_pmi();
  /// How often one was raised, since reset.
  [[nodiscard]] std::uint64_t pmis() const { return pmis_; }

  // --- Around the instructions: no access is counted, no rule holds ---

  /// RESET. Access counts stay.
  void reset();
  /// What the counter holds.
  [[nodiscard]] std::uint64_t counter_value(CounterId counter) const { return at(counter).value; }
  /// What a read of the register would give; 0 where it would fault.
  [[nodiscard]] std::uint64_t inspect(Msr msr) const;
  /// Puts a value into a register, also a read-only one: what a former owner left behind. Bits that the register does
  /// not have are dropped.
  void preset(Msr msr, std::uint64_t value);

 private:
  struct Counter {
    std::uint64_t value = 0;
    std::uint64_t mask = 0;
    std::uint64_t selector = 0;
  };
  /// A counter that counts, and what.
  struct Active {
    CounterId counter = CounterId::gp(0);
    EventRule rule{};
  };
  /// Everything that follows from the registers for one mode and ring.
  struct View {
    std::array<Active, max_counters> active{};
    std::uint32_t size = 0;
    std::uint32_t events = 0;  // bit n: Event n is counted
    bool edges = false;
    Headroom headroom{};
  };
  static constexpr std::uint8_t all_views = 0b1111;
  static constexpr std::size_t view_index(Ring ring, Mode mode) {
    return static_cast<std::size_t>(mode) * 2 + static_cast<std::size_t>(ring);
  }

  [[nodiscard]] Counter& at(CounterId counter) { return counters_[counter.slot()]; }
  [[nodiscard]] const Counter& at(CounterId counter) const { return counters_[counter.slot()]; }
  [[nodiscard]] std::uint64_t read_register(arch::Register reg) const;
  [[nodiscard]] bool refuses(arch::Register reg, std::uint64_t value) const;
  void store(arch::Register reg, std::uint64_t value);
  [[nodiscard]] std::uint64_t in_use() const;
  [[nodiscard]] bool counts(CounterId counter, Ring ring, Mode mode) const;
  [[nodiscard]] EventRule rule(CounterId counter) const;
  View& view(Ring ring, Mode mode);
  void rebuild(View& view, Ring ring, Mode mode) const;
  void measure(View& view) const;
  void overflow(CounterSet counters);
  /// What counts may have changed.
  void controls_changed() { stale_views_ = stale_headroom_ = all_views; }

  // What advance() touches comes first.
  std::array<Counter, max_counters> counters_{};
  std::uint8_t stale_views_ = all_views;
  std::uint8_t stale_headroom_ = all_views;
  bool pmi_ = false;
  bool svme_ = false;
  std::array<View, 4> views_{};

  Profile profile_;
  std::uint64_t global_ctrl_ = 0;
  std::uint64_t global_status_ = 0;
  std::uint64_t fixed_ctrl_ = 0;
  std::uint64_t debugctl_ = 0;
  std::uint64_t pebs_enable_ = 0;
  std::uint64_t pebs_data_cfg_ = 0;
  std::uint64_t ds_area_ = 0;
  std::uint64_t misc_enable_ = 0;
  std::uint64_t pmis_ = 0;
  AccessCounts accesses_{};
};

/// The profile as the CPU of a host of virtual machines has it: on AMD with SVM, and so with GuestOnly and HostOnly.
constexpr Profile svm_host(Profile profile) {
  profile.nested_virtualization = !profile.is_intel();
  return profile;
}

/// A host CPU that can back a guest of this profile: of its vendor, with all events, and with a general-purpose counter
/// for each of the guest's counters: a real host moves its events between counters to fit them in, PerfModel does not.
Profile host_for(const Profile& guest);

}  // namespace vpmu::model
