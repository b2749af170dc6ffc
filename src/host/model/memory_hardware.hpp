// A PMU's registers as plain memory: what is left is the code around the accesses.
#pragma once

#include <array>
#include <cstdint>

#include "vpmu/hardware.hpp"
#include "vpmu/msr.hpp"

namespace vpmu::model {

/// `Hardware` without hardware: to time a switch's own code, in user mode.
class MemoryHardware {
 public:
  std::uint64_t rdmsr(Msr msr) { return msrs_[index_of(msr) % msrs_.size()]; }
  void wrmsr(Msr msr, std::uint64_t value) { msrs_[index_of(msr) % msrs_.size()] = value; }
  std::uint64_t rdpmc(std::uint32_t ecx) {
    return rdmsr((ecx & 0x40000000) != 0 ? ia32_fixed_ctr[ecx & 0xF] : ia32_a_pmc[ecx & 0xF]);
  }
  [[nodiscard]] std::uint64_t entry_global_ctrl() const { return entry_global_ctrl_; }
  void set_entry_global_ctrl(std::uint64_t value) { entry_global_ctrl_ = value; }
  [[nodiscard]] std::uint64_t host_debugctl() const { return 0; }
  void set_entry_debugctl(std::uint64_t value) { entry_debugctl_ = value; }
  void set_lvtpc(LvtpcOwner owner) { lvtpc_ = owner; }
  bool take_guest_pmi() { return false; }
  void leave_host_perf() { ++epoch_; }
  void return_host_perf() { ++epoch_; }
  [[nodiscard]] std::uint32_t current_cpu() const { return 0; }
  [[nodiscard]] std::uint64_t owner_epoch(std::uint32_t /*cpu*/) const { return epoch_; }
  void set_intercepts(const PassThrough& pass) { pass_ = pass; }

 private:
  // From 0x186 to 0x4C8 no two indices that the switch uses are equal modulo this.
  std::array<std::uint64_t, 0x400> msrs_{};
  std::uint64_t entry_global_ctrl_ = 0;
  std::uint64_t entry_debugctl_ = 0;
  std::uint64_t epoch_ = 0;
  LvtpcOwner lvtpc_ = LvtpcOwner::host;
  PassThrough pass_{};
};
static_assert(Hardware<MemoryHardware>);

}  // namespace vpmu::model
