// The host events of one vCPU of the kvm machine, whichever host gives them.
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "vpmu/host/clock.hpp"
#include "vpmu/host/linux_perf.hpp"

namespace vpmu::kvm {

enum class HostKind : std::uint8_t { perf, clock };

/// Construct it on the vCPU's thread. `immediate_exit` is kvm_run's.
class GuestHost {
 public:
  GuestHost(HostKind kind, std::uint64_t tsc_hz, std::uint8_t* immediate_exit) {
    if (kind == HostKind::clock) {
      host_.emplace<ClockHost>(ClockHost::Options{.tsc_hz = tsc_hz, .kick = immediate_exit});
    } else {
      host_.emplace<LinuxPerf>(LinuxPerf::Options{.kick = immediate_exit});
    }
  }

  /// Just before and just after KVM_RUN.
  void guest_entered() {
    if (auto* clock = std::get_if<ClockHost>(&host_)) clock->guest_entered();
  }
  void guest_left() {
    if (auto* clock = std::get_if<ClockHost>(&host_)) {
      clock->guest_left();
    } else {
      std::get<LinuxPerf>(host_).guest_left();
    }
  }
  [[nodiscard]] HostEvents& events() {
    if (auto* clock = std::get_if<ClockHost>(&host_)) return *clock;
    return std::get<LinuxPerf>(host_);
  }
  [[nodiscard]] HostCallCounts calls() const {
    if (const auto* clock = std::get_if<ClockHost>(&host_)) return clock->calls();
    return std::get<LinuxPerf>(host_).calls();
  }
  [[nodiscard]] std::uint64_t system_calls() const {
    if (const auto* clock = std::get_if<ClockHost>(&host_)) return clock->system_calls();
    return std::get<LinuxPerf>(host_).system_calls();
  }

 private:
  std::variant<std::monostate, ClockHost, LinuxPerf> host_;
};

}  // namespace vpmu::kvm
