// A guest of host events on this Linux system: a loop in place of the guest's code, its PMI handler's accesses as a
// VMM sees them, and real host calls behind them.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <atomic>
#include <cstdint>
#include <string>

#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/host/clock.hpp"
#include "vpmu/host/linux_perf.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {

/// Rate of this machine's time-stamp counter; measured once.
inline std::uint64_t tsc_hz() {
  static const std::uint64_t hz = linux_clock_system().measure_tsc_hz();
  return hz;
}

/// Longer than a tick of the host's scheduler, so that setting the software clock does not also set the processor's
/// timer: in a VM that is an exit of its own, and not a cost of host events.
constexpr std::uint64_t real_period_ns = 8'000'000;

/// perf's software clock as a host.
template <LinuxPerf::Reads reads>
struct PerfSide {
  static constexpr const char* name = reads == LinuxPerf::Reads::each ? "perf" : "perf_group";
  LinuxPerf host{{.source = LinuxPerf::Source::task_clock, .reads = reads}};
  static constexpr std::uint64_t period = real_period_ns;
  void entered() {}
  void left() { host.guest_left(); }
  [[nodiscard]] bool wants_exit() const { return host.hints().load(std::memory_order_relaxed) != 0; }
};

struct ClockSide {
  static constexpr const char* name = "clock";
  std::uint8_t kick = 0;
  ClockHost host{{.tsc_hz = tsc_hz(), .kick = &kick}};
  const std::uint64_t period = tsc_hz() / (1'000'000'000 / real_period_ns);  // cycles
  void entered() { host.guest_entered(); }
  void left() {
    std::atomic_ref{kick}.store(0, std::memory_order_relaxed);
    host.guest_left();
  }
  [[nodiscard]] bool wants_exit() { return std::atomic_ref{kick}.load(std::memory_order_relaxed) != 0; }
};

/// Counter 0 samples cycles; the others count them.
template <class Side>
class RealSampledGuest {
 public:
  RealSampledGuest(const Policy& policy, std::uint32_t counters)
      : backing_{side.host}, pmu_{find_profile("intel-v2")->profile, backing_, policy}, mask_{first_gp(counters)} {
    constexpr std::uint64_t cycles = 0x3C | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;
    for (std::uint32_t n = 0; n < counters; ++n) write(ia32_perfevtsel[n], cycles);
    write(ia32_pmc[0], reload());
    write(Msr::ia32_perf_global_ctrl, mask_);
    static_cast<void>(enter());
  }

  /// Runs the guest to its next PMI and handles that. TSC cycles that the VMM took, or 0 if the PMI never came.
  std::uint64_t one_pmi() {
    constexpr int patience = 100;
    for (int exits = 0; exits < patience; ++exits) {
      run_to_exit();
      const std::uint64_t start = __rdtsc();
      side.left();
      pmu_.leave();
      if (enter()) {
        handle();
        return __rdtsc() - start;
      }
    }
    return 0;
  }
  [[nodiscard]] Health health() const { return pmu_.health(CounterId::gp(0)); }

  Side side;

 private:
  [[nodiscard]] std::uint32_t reload() const { return static_cast<std::uint32_t>(0 - side.period); }
  void write(Msr msr, std::uint64_t value) { static_cast<void>(pmu_.write_msr(msr, value)); }

  bool enter() {
    const bool pmi = pmu_.enter() == EntryAction::inject_pmi;
    side.entered();
    return pmi;
  }
  void run_to_exit() {
    const std::uint64_t limit = __rdtsc() + tsc_hz() / 10;
    while (!side.wants_exit() && __rdtsc() < limit) _mm_pause();
    ::syscall(SYS_getppid);  // KVM_RUN returns from the kernel too
  }
  void exit() {
    side.left();
    pmu_.leave();
  }

  /// A perfmon v2 handler: each access is an exit and an entry.
  void handle() {
    exit();
    write(Msr::ia32_perf_global_ctrl, 0);
    static_cast<void>(enter());
    exit();
    const std::uint64_t status = pmu_.read_msr(Msr::ia32_perf_global_status).value_or(0);
    static_cast<void>(enter());
    exit();
    write(Msr::ia32_perf_global_ovf_ctrl, status);
    static_cast<void>(enter());
    exit();
    seen_ = pmu_.read_pmc(0).value_or(0);
    static_cast<void>(enter());
    exit();
    write(ia32_pmc[0], reload());
    static_cast<void>(enter());
    exit();
    write(Msr::ia32_perf_global_ctrl, mask_);
    static_cast<void>(enter());
  }

  EmulatedBacking backing_;
  VirtualPmu pmu_;
  CounterSet mask_;
  volatile std::uint64_t seen_ = 0;
};

/// The VMM's side of exits that it emulates: the instruction counts, and the entry serves what that asks of perf.
class RealRetiringGuest {
 public:
  enum class Use : std::uint8_t {
    off,
    idle,      // a counter of cycles, which emulated instructions do not count in
    counting,  // one of instructions
  };

  RealRetiringGuest(const Policy& policy, Use use)
      : use_{use},
        backing_{side_.host},
        pmu_{find_profile(use == Use::off ? "intel-none" : "intel-v2")->profile, backing_, policy} {
    if (use == Use::off) return;
    const std::uint64_t event = use == Use::idle ? 0x3C : 0xC0;
    static_cast<void>(
        pmu_.write_msr(ia32_perfevtsel[0], event | evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt));
    static_cast<void>(pmu_.write_msr(Msr::ia32_perf_global_ctrl, 1));
    static_cast<void>(pmu_.enter());
  }
  /// Why nothing is counted; empty if it is.
  [[nodiscard]] std::string why_not() const {
    const Health health = pmu_.health(CounterId::gp(0));
    return use_ == Use::off || health == Health::counting ? std::string{} : describe(health);
  }
  void exits(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
      side_.left();
      pmu_.leave();
      pmu_.retire(EmulatedEvent::instruction, [] { return 0; });
      static_cast<void>(pmu_.enter());
      side_.entered();
    }
  }

 private:
  Use use_;
  PerfSide<LinuxPerf::Reads::each> side_;
  EmulatedBacking backing_;
  VirtualPmu pmu_;
};

}  // namespace vpmu::lab
