#include "arch/registers.hpp"
#include "lab/guest_port.hpp"

namespace vpmu::lab {
namespace {

class PhysicalPort final : public GuestPort {
 public:
  explicit PhysicalPort(const GuestOptions& options) : profile_{model::svm_host(options.profile)}, hardware_{profile_} {
    // A hypervisor on AMD runs with EFER.SVME set; GuestOnly and HostOnly depend on it.
    hardware_.set_svme(!profile_.is_intel());
  }

  using GuestPort::attach;
  void attach(soft::Machine& /*machine*/) override {}
  void report(GuestResult& /*result*/) const override {}

  bool owns(soft::u32 index) override {
    const arch::Register reg = arch::find_register(static_cast<Msr>(index));
    return reg && reg.vendor() == profile_.vendor;
  }
  std::optional<soft::u64> read_msr(soft::u32 index) override { return answer(hardware_.read_msr(Msr{index})); }
  bool write_msr(soft::u32 index, soft::u64 value) override { return hardware_.write_msr(Msr{index}, value).ok(); }
  std::optional<soft::u64> read_pmc(soft::u32 ecx) override { return answer(hardware_.read_pmc(ecx)); }
  soft::CpuidLeaf cpuid(soft::u32 leaf, soft::u32 subleaf, const soft::CpuidLeaf& base) override {
    return cpuid_of(profile_, leaf, subleaf, base);
  }
  void leave() override {}
  bool enter() override { return hardware_.take_pmi(); }
  void retire(bool, soft::u8) override {}
  /// World switch, RAX = 1: enter guest mode with GLOBAL_CTRL = RBX; 2: leave it with GLOBAL_CTRL = RBX. Gives the
  /// GLOBAL_CTRL that was, as a VM exit saves it. It stands for VM entry and exit (VMCS fields) and for VMRUN.
  std::optional<soft::u64> hypercall(soft::u64 rax, soft::u64 rbx) override {
    constexpr soft::u64 enter_guest = 1;
    constexpr soft::u64 leave_guest = 2;
    if (rax != enter_guest && rax != leave_guest) return std::nullopt;
    const std::uint64_t before = hardware_.global_ctrl();
    if (profile_.is_intel() && !hardware_.load_global_ctrl(rbx).ok()) return std::nullopt;
    mode_ = rax == enter_guest ? model::Mode::guest : model::Mode::host;
    return before;
  }

  bool advance(const model::Activity& activity, model::Ring ring) override {
    return hardware_.advance(activity, ring, mode_) != 0;
  }
  Headroom headroom(model::Ring ring) override { return headroom_of(hardware_.headroom(ring, mode_)); }
  bool uses(model::Event event) override { return hardware_.uses(event, mode_); }
  bool uses_edges() override { return hardware_.uses_edges(mode_); }

 private:
  Profile profile_;
  model::HardwarePmu hardware_;
  model::Mode mode_ = model::Mode::host;
};

}  // namespace

std::unique_ptr<GuestPort> make_physical_port(const GuestOptions& options) {
  return std::make_unique<PhysicalPort>(options);
}

}  // namespace vpmu::lab
