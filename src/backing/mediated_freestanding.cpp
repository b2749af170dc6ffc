// Mediated mode as ring 0 builds it: proof that it needs nothing from outside. Not part of the library.
#include "vpmu/mediated_backing.hpp"
#include "vpmu/ring0_hardware.hpp"

namespace vpmu {
namespace {

/// The least that a hypervisor can be.
struct Hypervisor {
  std::uint64_t global_ctrl = 0;
  std::uint64_t debugctl = 0;
  std::uint64_t epoch = 0;
  PassThrough pass{};

  [[nodiscard]] std::uint64_t entry_global_ctrl() const { return global_ctrl; }
  void set_entry_global_ctrl(std::uint64_t value) { global_ctrl = value; }
  [[nodiscard]] std::uint64_t host_debugctl() const { return debugctl; }
  void set_entry_debugctl(std::uint64_t value) { debugctl = value; }
  void set_lvtpc(LvtpcOwner /*owner*/) {}
  bool take_guest_pmi() { return false; }
  void leave_host_perf() { ++epoch; }
  void return_host_perf() { ++epoch; }
  [[nodiscard]] std::uint32_t current_cpu() const { return 0; }
  [[nodiscard]] std::uint64_t owner_epoch(std::uint32_t /*cpu*/) const { return epoch; }
  void set_intercepts(const PassThrough& passes) { pass = passes; }
};
static_assert(Hardware<Ring0Hardware<Hypervisor>>);

}  // namespace

template class MediatedBacking<Ring0Hardware<Hypervisor>>;

}  // namespace vpmu
