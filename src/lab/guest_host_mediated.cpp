#include <utility>

#include "host/model/cost.hpp"
#include "host/model/hardware_port.hpp"
#include "lab/guest_host.hpp"
#include "vpmu/mediated_backing.hpp"

namespace vpmu::lab {
namespace {

class MediatedHost final : public GuestHost {
 public:
  MediatedHost(const Profile& host, const Profile& guest, const model::Platform& platform)
      : guest_{guest}, prices_{platform}, cpu_{host}, port_{cpu_}, backing_{port_, host} {}

  [[nodiscard]] Backing& backing() override { return backing_; }
  [[nodiscard]] bool mediated() const override { return true; }
  [[nodiscard]] model::HardwarePmu& hardware() override { return cpu_.pmu(); }
  bool advance(const model::Activity& activity, model::Ring ring) override {
    overflows_ |= cpu_.run(activity, ring, model::Mode::guest);
    return cpu_.guest_vector_waits();
  }

  void vm_entry() override {
    port_.vm_entry();
    at_entry_ = accesses();
    in_guest_ = true;
  }
  void vm_exit() override {
    if (in_guest_) by_guest_ += accesses() - at_entry_;
    in_guest_ = false;
    port_.vm_exit();
  }
  CounterSet take_overflows() override { return std::exchange(overflows_, 0); }
  [[nodiscard]] bool passes(Msr msr) const override { return passes_through(guest_, port_.pass(), msr); }
  [[nodiscard]] bool passes_rdpmc() const override { return port_.pass().rdpmc; }

  [[nodiscard]] std::uint64_t cost_picoseconds() const override {
    model::AccessCounts accesses = by_switch();
    accesses.wrmsr += port_.counts().lvtpc_writes;  // as in x2APIC mode
    return prices_.picoseconds(accesses);
  }
  [[nodiscard]] HostUse use() const override {
    return {.calls = {},
            .hardware = {.by_switch = by_switch(), .by_guest = by_guest(), .others = port_.counts()},
            .cost_ps = cost_picoseconds()};
  }

 private:
  [[nodiscard]] const model::AccessCounts& accesses() const { return cpu_.pmu().accesses(); }
  [[nodiscard]] model::AccessCounts by_switch() const { return (in_guest_ ? at_entry_ : accesses()) - by_guest_; }
  [[nodiscard]] model::AccessCounts by_guest() const { return accesses() - by_switch(); }

  Profile guest_;
  model::Prices prices_;
  model::HardwareCpu cpu_;
  model::HardwarePort port_;
  MediatedBacking<model::HardwarePort> backing_;
  model::AccessCounts at_entry_;
  model::AccessCounts by_guest_;  // up to the last VM exit
  bool in_guest_ = false;
  CounterSet overflows_ = 0;
};

}  // namespace

std::unique_ptr<GuestHost> make_mediated_host(const Profile& host, const Profile& guest,
                                              const model::Platform& platform) {
  return std::make_unique<MediatedHost>(host, guest, platform);
}

}  // namespace vpmu::lab
