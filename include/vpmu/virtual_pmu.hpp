// The virtual PMU of one vCPU.
#pragma once

#include <cstdint>

#include "vpmu/backing.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/event_filter.hpp"
#include "vpmu/fault.hpp"
#include "vpmu/mailbox.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"
#include "vpmu/register_file.hpp"
#include "vpmu/result.hpp"
#include "vpmu/snapshot.hpp"

namespace vpmu {

namespace arch {
struct Register;
}

/// Why post_write() took nothing.
enum class PostError : std::uint8_t {
  refused,  // as by host_write_msr()
  full,     // Mailbox::capacity writes wait for the next enter()
};

/// What enter() asks the VMM to do.
enum class EntryAction : std::uint8_t {
  none,
  /// Signal a performance-monitoring interrupt to the vCPU's local APIC (LVTPC), once.
  inject_pmi,
};

/// The state that RDPMC checks besides its index (SDM volume 2, RDPMC; APM volume 3, RDPMC).
struct PmcAccess {
  std::uint8_t cpl = 0;
  bool cr4_pce = false;
  bool cr0_pe = true;
};

/// What VirtualPmu::explain() says: one sentence for a person, without a full stop.
struct Explanation {
  bool counts;
  const char* sentence;
};

/// A virtual PMU: register file, counters, overflow and interrupts of one vCPU.
///
/// Place it anywhere; it allocates nothing, throws nothing, makes no system call of its own, and reaches the host only
/// through its backing: in enter(), leave(), sched_out(), reset() and its kin, and where an access needs a count. All
/// calls but post_write() come from the vCPU's thread, or while the vCPU is stopped.
class VirtualPmu {
 public:
  /// `profile` must pass check(). The backing serves this PMU alone and outlives it.
  VirtualPmu(const Profile& profile, Backing& backing, const Policy& policy = Policy{});
  ~VirtualPmu();
  VirtualPmu(const VirtualPmu&) = delete;
  VirtualPmu& operator=(const VirtualPmu&) = delete;

  /// Whether an MSR belongs to a PMU of this vendor, so that guest accesses to it should come here: also those that end
  /// in #GP because the profile lacks the register.
  [[nodiscard]] bool owns(Msr msr) const;
  /// Whether the guest may access it: exactly if the profile enumerates it.
  [[nodiscard]] bool enumerates(Msr msr) const;

  // --- Guest access, at the VM exit (or intercepted RDPMC) ---

  [[nodiscard]] Result<std::uint64_t, Fault> read_msr(Msr msr);
  Status<Fault> write_msr(Msr msr, std::uint64_t value);
  /// RDPMC with this ECX, at CPL 0.
  [[nodiscard]] Result<std::uint64_t, Fault> read_pmc(std::uint32_t ecx);
  /// RDPMC with this ECX, where the privilege level may forbid it.
  [[nodiscard]] Result<std::uint64_t, Fault> read_pmc(std::uint32_t ecx, PmcAccess access);

  // --- Host access: the VMM saving and restoring a vCPU ---

  /// Unlike the guest's: status is writable, nothing is sign-extended, and a register of Profile::save_list that the
  /// profile lacks reads 0 and takes 0.
  [[nodiscard]] Result<std::uint64_t, Fault> host_read_msr(Msr msr);
  Status<Fault> host_write_msr(Msr msr, std::uint64_t value);
  /// host_write_msr() from another thread: checked now, effective at the next enter().
  Status<PostError> post_write(Msr msr, std::uint64_t value);

  /// All of the guest's state, counts up to now, as bytes; posted writes take effect first. The guest goes on
  /// undisturbed. Not between enter() and leave().
  [[nodiscard]] Snapshot save();
  /// Takes that state over, whatever host, policy or backing it comes from; or says why not, and changes nothing. What
  /// this profile lacks must be 0. Posted writes are dropped.
  Status<SnapshotError> restore(const Snapshot& snapshot) { return restore(snapshot.bytes.data(), Snapshot::size); }
  Status<SnapshotError> restore(const std::uint8_t* bytes, std::size_t size);

  // --- The life of a vCPU ---

  /// The VMM completed an instruction, or took a branch, for the guest, and it took effect. `cpl`: a callable that
  /// gives the privilege level at which it began; called only if a counter tells user from kernel.
  template <class CplSource>
  void retire(EmulatedEvent event, CplSource&& cpl) {
    const auto& matches = registers_.retire_[static_cast<std::size_t>(event)];
    if ((matches.user | matches.kernel) == 0) [[likely]]
      return;
    retire_slowly(event, matches.user == matches.kernel ? 0 : static_cast<std::uint32_t>(cpl()));
  }

  /// Before each VM entry: brings the host in line with what changed.
  [[nodiscard]] EntryAction enter() {
    if (registers_.requested_ == 0 && !registers_.pmi_pending_ && mailbox_.empty() && !every_entry_) [[likely]]
      return EntryAction::none;
    return enter_slowly();
  }
  /// After each VM exit: looks at what overflowed.
  void leave() {
    if (exit_work_->load(std::memory_order_relaxed) == 0) [[likely]]
      return;
    backing_.leave(registers_);
  }
  /// The vCPU's thread is scheduled out, or its time slice ends.
  void sched_out() { backing_.sched_out(registers_); }

  // --- Configuration ---

  /// RESET (not INIT, which leaves a PMU alone): registers, counts and a pending PMI go, host events are given back.
  void reset();
  /// New guest CPUID; resets. `profile` must pass check().
  void set_profile(const Profile& profile);
  /// The filter from now on; a null pointer lets all through. It must outlive its use.
  void set_filter(const EventFilter* filter);
  /// Effective at the next enter(), also on a running guest. Changes no count.
  void set_policy(const Policy& policy);

  [[nodiscard]] const Profile& profile() const { return registers_.profile(); }
  [[nodiscard]] const Policy& policy() const { return registers_.policy(); }
  [[nodiscard]] const RegisterFile& registers() const { return registers_; }
  [[nodiscard]] bool pmi_pending() const { return registers_.pmi_pending_; }
  [[nodiscard]] Health health(CounterId counter) const { return backing_.health(counter); }
  /// Why a counter counts, or stands still: the first reason on the way from its own control to the host.
  [[nodiscard]] Explanation explain(CounterId counter) const;

 private:
  enum class Access : std::uint8_t { guest, host };

  Result<std::uint64_t, Fault> read(Msr msr, Access access);
  Status<Fault> write(Msr msr, std::uint64_t value, Access access);
  [[nodiscard]] bool exists(arch::Register reg) const;
  [[nodiscard]] bool answers_zero(arch::Register reg, Access access) const;
  [[nodiscard]] bool takes_nothing(arch::Register reg, std::uint64_t value, Access access) const;
  [[nodiscard]] bool refuses(arch::Register reg, std::uint64_t value, Access access) const;
  std::uint64_t read_counter(CounterId counter);
  void write_counter(CounterId counter, std::uint64_t value);
  void write_selector(CounterId counter, std::uint64_t value);
  void write_fixed_ctrl(std::uint64_t value);
  void set_status(std::uint64_t status);
  [[nodiscard]] std::uint64_t status_set_bits() const;
  [[nodiscard]] std::uint64_t in_use() const;
  static bool is_canonical(std::uint64_t address);
  void fold(CounterSet counters) { backing_.fold(registers_, counters); }
  void retire_slowly(EmulatedEvent event, std::uint32_t cpl);
  EntryAction enter_slowly();
  void take_posted_writes();
  void serve_requests();
  bool take_pmi();

  RegisterFile registers_;
  Backing& backing_;
  const std::atomic<std::uint64_t>* exit_work_;
  bool every_entry_;
  Mailbox mailbox_;
};
static_assert(sizeof(VirtualPmu) <= 2048);

}  // namespace vpmu
