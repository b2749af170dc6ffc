// The hardware itself, from ring 0: real instructions, and a hypervisor's own functions for the rest.
#pragma once

#include <cstdint>

#include "vpmu/hardware.hpp"

namespace vpmu {

/// `Hardware` for a hypervisor that runs in ring 0. `Hypervisor` provides the calls that are not instructions, under
/// the same names, and these register accesses are not virtualized.
template <class Hypervisor>
class Ring0Hardware {
 public:
  explicit Ring0Hardware(Hypervisor& hypervisor) : hypervisor_{hypervisor} {}

  std::uint64_t rdmsr(Msr msr) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    asm volatile("rdmsr" : "=a"(low), "=d"(high) : "c"(index_of(msr)) : "memory");
    return std::uint64_t{high} << 32 | low;
  }
  void wrmsr(Msr msr, std::uint64_t value) {
    asm volatile("wrmsr"
                 :
                 : "c"(index_of(msr)), "a"(static_cast<std::uint32_t>(value)),
                   "d"(static_cast<std::uint32_t>(value >> 32))
                 : "memory");
  }
  std::uint64_t rdpmc(std::uint32_t ecx) {
    std::uint32_t low = 0;
    std::uint32_t high = 0;
    asm volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(ecx) : "memory");
    return std::uint64_t{high} << 32 | low;
  }

  std::uint64_t entry_global_ctrl() { return hypervisor_.entry_global_ctrl(); }
  void set_entry_global_ctrl(std::uint64_t value) { hypervisor_.set_entry_global_ctrl(value); }
  std::uint64_t host_debugctl() { return hypervisor_.host_debugctl(); }
  void set_entry_debugctl(std::uint64_t value) { hypervisor_.set_entry_debugctl(value); }
  void set_lvtpc(LvtpcOwner owner) { hypervisor_.set_lvtpc(owner); }
  bool take_guest_pmi() { return hypervisor_.take_guest_pmi(); }
  void leave_host_perf() { hypervisor_.leave_host_perf(); }
  void return_host_perf() { hypervisor_.return_host_perf(); }
  std::uint32_t current_cpu() { return hypervisor_.current_cpu(); }
  std::uint64_t owner_epoch(std::uint32_t cpu) { return hypervisor_.owner_epoch(cpu); }
  void set_intercepts(const PassThrough& pass) { hypervisor_.set_intercepts(pass); }

 private:
  Hypervisor& hypervisor_;
};

}  // namespace vpmu
