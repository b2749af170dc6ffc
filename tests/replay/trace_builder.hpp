// Traces line by line, for tests.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace vpmu::test {

/// ftrace text of one vCPU's thread. Each line is a microsecond after the last.
class TraceBuilder {
 public:
  explicit TraceBuilder(std::uint32_t thread = 101, std::uint32_t vcpu = 0) : thread_{thread}, vcpu_{vcpu} {}

  TraceBuilder& line(const std::string& event_and_fields) {
    text_ += fmt::format("           vmm-{}     [000] d..1. {:5}.{:06}: {}\n", thread_, us_ / 1'000'000,
                         us_ % 1'000'000, event_and_fields);
    ++us_;
    return *this;
  }
  TraceBuilder& entry() { return line(fmt::format("kvm_entry: vcpu {}, rip {:#x}", vcpu_, rip_)); }
  TraceBuilder& exit(const std::string& reason) {
    return line(fmt::format("kvm_exit: vcpu {} reason {} rip {:#x} info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0",
                            vcpu_, reason, rip_));
  }
  /// Lets time pass.
  TraceBuilder& wait_us(std::uint64_t us) {
    us_ += us;
    return *this;
  }
  /// RIP moves on: past an instruction, or to wherever the guest runs.
  TraceBuilder& skip(std::uint64_t bytes = 2) {
    rip_ += bytes;
    return *this;
  }
  TraceBuilder& at(std::uint64_t rip) {
    rip_ = rip;
    return *this;
  }
  /// An MSR access from exit to entry.
  TraceBuilder& write(std::uint32_t msr, std::uint64_t value) {
    return exit("msr").line(fmt::format("kvm_msr: msr_write {:x} = {:#x}", msr, value)).skip().entry();
  }
  TraceBuilder& read(std::uint32_t msr, std::uint64_t value = 0) {
    return exit("msr").line(fmt::format("kvm_msr: msr_read {:x} = {:#x}", msr, value)).skip().entry();
  }
  TraceBuilder& read_fault(std::uint32_t msr) {
    return exit("msr").line(fmt::format("kvm_msr: msr_read {:x} = 0x0 (#GP)", msr)).entry();
  }

  [[nodiscard]] const std::string& text() const { return text_; }
  operator std::string() const { return text_; }  // NOLINT(google-explicit-constructor): it is the text

 private:
  std::string text_;
  std::uint32_t thread_;
  std::uint32_t vcpu_;
  std::uint64_t us_ = 1'000'000;
  std::uint64_t rip_ = 0xFFFFFFFF81000000;
};

}  // namespace vpmu::test
