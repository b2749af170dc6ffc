#include "host/model/cost.hpp"
#include "host/model/hardware_port.hpp"
#include "lab/guest_host.hpp"
#include "vpmu/mediated_backing.hpp"

namespace vpmu::lab {
namespace {

class MediatedHost final : public GuestHost {
 public:
  explicit MediatedHost(const GuestOptions& options)
      : guest_{options.profile},
        prices_{options.platform},
        cpu_{model::svm_host(options.profile)},
        port_{cpu_},
        backing_{port_, cpu_.pmu().profile()} {}

  [[nodiscard]] Backing& backing() override { return backing_; }
  [[nodiscard]] model::HardwarePmu& hardware() override { return cpu_.pmu(); }
  bool advance(const model::Activity& activity, model::Ring ring) override {
    cpu_.run(activity, ring, model::Mode::guest);
    return cpu_.guest_vector_waits();
  }

  void vm_entry() override {
    port_.vm_entry();
    at_entry_ = accesses();
  }
  void vm_exit() override {
    by_guest_ += accesses() - at_entry_;
    port_.vm_exit();
  }
  [[nodiscard]] bool passes(Msr msr) const override { return passes_through(guest_, port_.pass(), msr); }
  [[nodiscard]] bool passes_rdpmc() const override { return port_.pass().rdpmc; }

  [[nodiscard]] std::uint64_t cost_picoseconds() const override {
    model::AccessCounts accesses = by_switch();
    accesses.wrmsr += port_.counts().lvtpc_writes;  // as in x2APIC mode
    return prices_.picoseconds(accesses);
  }
  void report(GuestResult& result) const override {
    result.hardware = {.by_switch = by_switch(), .by_guest = by_guest_, .others = port_.counts()};
  }

 private:
  [[nodiscard]] const model::AccessCounts& accesses() const { return cpu_.pmu().accesses(); }
  /// Right while the guest has done nothing since the last VM entry.
  [[nodiscard]] model::AccessCounts by_switch() const { return accesses() - by_guest_; }

  Profile guest_;
  model::Prices prices_;
  model::HardwareCpu cpu_;
  model::HardwarePort port_;
  MediatedBacking<model::HardwarePort> backing_;
  model::AccessCounts at_entry_;
  model::AccessCounts by_guest_;
};

}  // namespace

std::unique_ptr<GuestHost> make_mediated_host(const GuestOptions& options) {
  return std::make_unique<MediatedHost>(options);
}

}  // namespace vpmu::lab
