// The kvm machine: vCPUs on Linux KVM, each with a virtual PMU, around a bare-metal image or a Linux kernel.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "machine/kvm/vcpu.hpp"

namespace vpmu::kvm {

enum class PatchRdpmc : std::uint8_t { no, yes };

struct MachineOptions {
  Profile profile;
  Policy policy;
  HostKind host = HostKind::clock;
  PatchRdpmc patch_rdpmc = PatchRdpmc::yes;
  std::uint64_t memory_mib = 64;
  std::uint32_t cpus = 1;
  std::string command_line;
  std::vector<std::uint8_t> initrd;  // of a Linux kernel; may be empty
  const EventFilter* filter = nullptr;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(char)> output;  // from any thread, one at a time
  int input = -1;                    // a descriptor whose characters go to the serial line, or -1
  /// Called some 50 times a second while it runs.
  std::function<void()> idle;
};

struct MachineResult {
  enum class Ending : std::uint8_t { guest, crash, stopped };
  Ending ending = Ending::stopped;
  GuestEnd end;  // of Ending::guest
  std::vector<VcpuResult> vcpus;
};

/// The profile as a guest on this host sees it: events that the clock cannot count are said to be unavailable (Intel:
/// CPUID.0AH:EBX, and only fixed counters that count cycles).
Profile profile_on(const Profile& profile, HostKind host);

class Machine {
 public:
  /// What `options` point to outlives it.
  explicit Machine(MachineOptions options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  /// Creates the VM and loads a multiboot image or a Linux kernel. Empty, or what is wrong in one line.
  [[nodiscard]] std::string load(std::span<const std::uint8_t> image);
  MachineResult run();
  /// A character of the input that stops the machine.
  void set_escape(char character) { escape_ = character; }

  /// The RDPMC instructions that were rewritten.
  [[nodiscard]] std::span<const RdpmcSite> sites() const { return sites_; }
  /// What the user should know, a line each.
  [[nodiscard]] std::span<const std::string> warnings() const { return warnings_; }

 private:
  [[nodiscard]] std::string load_image(std::span<const std::uint8_t> image,
                                       std::function<void(kvm_sregs&, kvm_regs&)>& first_state);
  void patch(std::span<const std::uint8_t> elf);
  void serve_input(bool& open);

  MachineOptions options_;
  soft::Memory memory_;
  std::unique_ptr<Vm> vm_;
  Devices devices_;
  std::vector<std::unique_ptr<Vcpu>> vcpus_;
  std::vector<RdpmcSite> sites_;
  std::vector<std::string> warnings_;
  std::vector<char> typed_;  // read, and not yet taken by the serial line
  char escape_ = 0;          // 0: none
  bool escaped_ = false;
};

}  // namespace vpmu::kvm
