// One vCPU of the kvm machine: its thread, its virtual PMU, and what its exits ask for.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "machine/kvm/devices.hpp"
#include "machine/kvm/guest_host.hpp"
#include "machine/kvm/vm.hpp"
#include "vpmu/event_filter.hpp"
#include "vpmu/host/host_calls.hpp"
#include "vpmu/kvm.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::kvm {

enum class Exit : std::uint8_t { msr, port, mmio, interrupted, other };
inline constexpr std::size_t exit_kinds = 5;
const char* name_of(Exit exit);

struct VcpuOptions {
  Profile profile;
  Policy policy;
  HostKind host = HostKind::clock;
  const EventFilter* filter = nullptr;
  std::span<const RdpmcSite> sites;
  std::uint32_t cpus = 1;
};

/// What a vCPU did, once its thread has ended.
struct VcpuResult {
  std::array<std::uint64_t, exit_kinds> exits{};
  VcpuPmu::Counts pmu;
  HostCallCounts host_calls;
  std::uint64_t host_system_calls = 0;
  std::uint64_t emulated_instructions = 0;
  /// Counters whose host events failed at some time, and the last reason.
  std::vector<std::pair<CounterId, Health>> unhealthy;
  std::string crash;  // why the vCPU could not go on; empty if it could
};

class Vcpu {
 public:
  Vcpu(Vm& vm, Devices& devices, std::uint32_t id);
  ~Vcpu();
  Vcpu(const Vcpu&) = delete;
  Vcpu& operator=(const Vcpu&) = delete;

  /// Creates it in KVM. Empty, or what went wrong.
  [[nodiscard]] std::string create(const VcpuOptions& options);
  /// Its first registers, for the vCPU that boots.
  [[nodiscard]] std::string set_registers(const std::function<void(kvm_sregs&, kvm_regs&)>& change);
  [[nodiscard]] std::uint64_t tsc_hz() const { return tsc_hz_; }

  /// Runs on a thread of its own until stop(), or until it can't. `ended` is called on that thread, last.
  void start(std::function<void()> ended);
  /// From any thread; returns at once. To be repeated until the thread has ended.
  void stop();
  void join();
  [[nodiscard]] const VcpuResult& result() const { return result_; }

 private:
  void loop();
  [[nodiscard]] bool handle(VcpuPmu& bridge, VirtualPmu& pmu, VcpuPort& port);
  void handle_port(VirtualPmu& pmu, VcpuPort& port);
  void note_health(const VirtualPmu& pmu);
  void crash(std::string why);
  [[nodiscard]] std::string registers_text() const;

  Vm& vm_;
  Devices& devices_;
  std::uint32_t id_;
  VcpuOptions options_;
  Descriptor fd_;
  kvm_run* run_ = nullptr;
  std::uint64_t tsc_hz_ = 0;
  std::atomic<bool> stop_{false};
  VcpuResult result_;
  std::array<Health, max_counters> failed_{};
  std::thread thread_;
};

}  // namespace vpmu::kvm
