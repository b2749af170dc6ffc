// The local APIC of the one CPU: xAPIC by MMIO, x2APIC by MSR, the timer, and LVTPC for the PMU (SDM Vol. 3A ch. 10).
#pragma once

#include <array>
#include <optional>

#include "machine/soft/types.hpp"

namespace vpmu::soft {

class LocalApic {
 public:
  struct Options {
    /// Intel masks LVTPC when it accepts a PMI; AMD does not.
    bool masks_on_pmi = true;
    /// TSC ticks of one tick of the timer before its divider.
    u64 timer_ratio = 100;
  };
  /// Offsets of registers in the page; an x2APIC MSR is 0x800 + offset / 16.
  enum Register : u32 {
    id = 0x20,
    version = 0x30,
    tpr = 0x80,
    apr = 0x90,
    ppr = 0xa0,
    eoi = 0xb0,
    rrd = 0xc0,
    ldr = 0xd0,
    dfr = 0xe0,
    svr = 0xf0,
    isr = 0x100,
    tmr = 0x180,
    irr = 0x200,
    esr = 0x280,
    lvt_cmci = 0x2f0,
    icr_low = 0x300,
    icr_high = 0x310,
    lvt_timer = 0x320,
    lvt_thermal = 0x330,
    lvt_performance = 0x340,
    lvt_lint0 = 0x350,
    lvt_lint1 = 0x360,
    lvt_error = 0x370,
    initial_count = 0x380,
    current_count = 0x390,
    divide = 0x3e0,
    self_ipi = 0x3f0
  };
  static constexpr u32 base_msr = 0x1b, deadline_msr = 0x6e0, first_x2apic_msr = 0x800, last_x2apic_msr = 0x8ff;
  static constexpr u64 default_base = 0xfee00000;
  static constexpr u64 no_deadline = ~u64{0};

  explicit LocalApic(const Options& options);
  void reset();

  /// The page at which it answers; none in x2APIC mode or if disabled.
  [[nodiscard]] std::optional<u64> page() const;
  [[nodiscard]] u64 base() const { return base_; }
  [[nodiscard]] bool set_base(u64 value);  ///< False is #GP.

  u32 read(u32 offset, u64 now);
  void write(u32 offset, u32 value, u64 now);
  /// x2APIC registers and TSC_DEADLINE. None, or false, is #GP.
  std::optional<u64> read_msr(u32 index, u64 now);
  bool write_msr(u32 index, u64 value, u64 now);

  /// When the timer fires next, in TSC.
  [[nodiscard]] u64 next_deadline() const;
  /// Lets the timer fire if its time has come.
  void tick(u64 now);
  /// The PMU's interrupt: goes by LVTPC; a masked one is dropped.
  void deliver_pmi();

  [[nodiscard]] std::optional<u8> pending_vector() const;
  void acknowledge(u8 vector);
  /// An NMI to the CPU since the last call.
  [[nodiscard]] bool take_nmi();
  [[nodiscard]] u64 task_priority() const { return at(tpr) >> 4; }
  void set_task_priority(u64 value) { at(tpr) = static_cast<u32>(value << 4); }
  /// Some interrupt could still come with no help from the guest.
  [[nodiscard]] bool can_wake() const { return next_deadline() != no_deadline; }

 private:
  [[nodiscard]] u32& at(u32 offset) { return registers_[offset / 16]; }
  [[nodiscard]] u32 at(u32 offset) const { return registers_[offset / 16]; }
  [[nodiscard]] bool x2apic() const { return (base_ & (1u << 10)) != 0; }
  [[nodiscard]] bool enabled() const { return (base_ & (1u << 11)) != 0; }
  [[nodiscard]] bool software_enabled() const { return enabled() && (at(svr) & 0x100) != 0; }
  [[nodiscard]] int highest(u32 first) const;
  [[nodiscard]] u32 processor_priority() const;
  static u64 later(u64 time, u64 ticks);
  [[nodiscard]] u64 period() const;  ///< Of the divided timer, in TSC ticks.
  [[nodiscard]] bool timer_in_deadline_mode() const { return ((at(lvt_timer) >> 17) & 3) == 2; }
  void request(u8 vector);
  void deliver(u32 lvt);
  void error(u32 bit);
  void send(u64 command, bool to_self);
  void end_of_interrupt();
  [[nodiscard]] static bool exists(u32 offset);
  [[nodiscard]] static u32 writable_bits(u32 offset);

  Options options_;
  std::array<u32, 64> registers_{};
  u64 base_ = 0;
  u32 pending_errors_ = 0;
  bool nmi_ = false;
  u64 timer_next_ = no_deadline;  ///< When the count reaches 0.
  u64 tsc_deadline_ = 0;
};

}  // namespace vpmu::soft
