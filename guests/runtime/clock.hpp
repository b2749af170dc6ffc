// How fast the TSC runs, and timer interrupts.
#pragma once

#include <cstdint>

namespace vpmu::guest {

/// TSC ticks in a second, and who says so.
struct TscRate {
  std::uint64_t hz;
  const char* source;
};
/// From the option tsc_khz, CPUID.15H, the hypervisor's timing leaf 40000010H, or the 8254; else assumed.
TscRate tsc_rate();

/// Timer interrupts (vector::timer) at equal distances of the TSC: by TSC deadline where offered (unless deadline=0),
/// else by the APIC's one-shot timer.
class Ticker {
 public:
  explicit Ticker(std::uint64_t tsc_period);
  void start();
  void stop();
  /// To be called by the handler, once a tick: arms the next one. A tick that is already over is left out, as a
  /// kernel's tick does. Returns when this one was due, by the TSC.
  std::uint64_t next();
  /// The same, but the next tick is a whole period from now.
  void restart();
  [[nodiscard]] bool by_deadline() const { return by_deadline_; }

 private:
  void arm(std::uint64_t now) const;

  std::uint64_t period_;
  std::uint64_t due_ = 0;
  std::uint64_t apic_count_ = 0;  // of the one-shot timer, in a period
  bool by_deadline_;
};

}  // namespace vpmu::guest
