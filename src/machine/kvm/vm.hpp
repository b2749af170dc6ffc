// A KVM virtual machine: its descriptors and its memory.
#pragma once

#include <cstdint>
#include <expected>
#include <memory>
#include <string>

#include "machine/kvm/abi.hpp"
#include "machine/kvm/guest_host.hpp"
#include "machine/soft/memory.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::kvm {

/// A descriptor that is closed.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_{fd} {}
  Descriptor(Descriptor&& other) noexcept : fd_{other.release()} {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }
  int fd_ = -1;
};

/// Opens /dev/kvm, or says in one line why it cannot be used and what to do.
std::expected<Descriptor, std::string> open_kvm();

/// KVM's own virtual PMU beside ours.
enum class KvmPmu : std::uint8_t { off, may_interfere };

class Vm {
 public:
  /// With an in-kernel interrupt controller and 8254, KVM's own virtual PMU off, and PMU MSRs exiting. `memory`
  /// outlives it.
  static std::expected<std::unique_ptr<Vm>, std::string> create(soft::Memory& memory, Vendor vendor, HostKind host);

  [[nodiscard]] int fd() const { return vm_.get(); }
  /// Bytes of a vCPU's shared page (struct kvm_run and what follows).
  [[nodiscard]] std::size_t run_bytes() const { return run_bytes_; }
  /// What KVM supports.
  [[nodiscard]] const abi::Cpuid& supported_cpuid() const { return cpuid_; }
  [[nodiscard]] KvmPmu kvm_pmu() const { return pmu_; }
  void set_irq(std::uint32_t line, bool level) const;

 private:
  Vm() = default;

  Descriptor kvm_;
  Descriptor vm_;
  std::size_t run_bytes_ = 0;
  abi::Cpuid cpuid_;
  KvmPmu pmu_ = KvmPmu::off;
};

}  // namespace vpmu::kvm
