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

/// Timer interrupts (vector::timer) at equal distances of the TSC: by TSC deadline where offered (unless
/// deadline=0), else by the APIC's periodic mode.
class Ticker {
 public:
  explicit Ticker(std::uint64_t tsc_period);
  void start();
  void stop();
  /// To be called by the handler, once a tick: arms the next one. Returns when this one was due, by the TSC, or 0 if
  /// that is not known (periodic mode).
  std::uint64_t next();
  [[nodiscard]] bool by_deadline() const { return by_deadline_; }

 private:
  std::uint64_t period_;
  std::uint64_t due_ = 0;
  std::uint32_t apic_count_ = 0;
  bool by_deadline_;
};

}  // namespace vpmu::guest
