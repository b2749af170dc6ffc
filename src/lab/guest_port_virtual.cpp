#include <algorithm>
#include <string>

#include "host/model/cost.hpp"
#include "lab/guest_host.hpp"
#include "lab/guest_port.hpp"
#include "lab/zero_reads.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {
namespace {

constexpr std::uint64_t mega = 1'000'000;
/// A host's time slice: 4 ms, that of a 250 Hz host.
constexpr std::uint64_t slices_a_second = 250;

std::unique_ptr<GuestHost> make_host(const GuestOptions& options, HostCallLog* log) {
  if (options.pmu == GuestOptions::Pmu::mediated) {
    return make_mediated_host(model::svm_host(options.profile), options.profile, options.platform);
  }
  return make_emulated_host(options.profile, options.platform, options.free_reads ? FreeReads::yes : FreeReads::no,
                            log);
}

class VirtualPort final : public GuestPort {
 public:
  VirtualPort(const GuestOptions& options, HostCallLog* log)
      : options_{options},
        prices_{options.platform},
        host_{make_host(options, log)},
        hardware_{host_->hardware()},
        pmu_{options.profile, host_->backing(), options.policy} {
    pmu_.set_filter(options.filter);
  }

  void attach(soft::Machine& machine) override { machine_ = &machine; }
  void attach(PmuTimeline& timeline) override { timeline.attach(pmu_, *host_); }
  void report(GuestResult& result) const override {
    const HostUse use = host_->use();
    result.host_calls = use.calls;
    result.hardware = use.hardware;
    constexpr std::uint64_t picoseconds = 1000;
    result.host_ns = use.cost_ps / picoseconds;
    result.emulated_instructions = retired_;
    result.read_zero = zero_reads_.list();
    for (std::uint32_t slot = 0; slot < max_counters; ++slot) {
      if (failed_[slot] != Health::idle) {
        result.unhealthy.emplace_back(counter_name(CounterId::from_slot(slot)), failed_[slot]);
      }
    }
  }

  // The PMU that the guest sees.
  bool owns(soft::u32 index) override { return pmu_.owns(static_cast<Msr>(index)); }
  bool passes_msr(soft::u32 index) override { return in_guest_ && host_->passes(static_cast<Msr>(index)); }
  bool passes_rdpmc() override { return in_guest_ && host_->passes_rdpmc(); }
  std::optional<soft::u64> read_msr(soft::u32 index) override {
    const Msr msr{index};
    const auto value = in_guest_ ? hardware_.read_msr(msr) : pmu_.read_msr(msr);
    if (value.ok()) zero_reads_.read_msr(msr, *value);
    return answer(value);
  }
  bool write_msr(soft::u32 index, soft::u64 value) override {
    const Msr msr{index};
    return (in_guest_ ? hardware_.write_msr(msr, value) : pmu_.write_msr(msr, value)).ok();
  }
  std::optional<soft::u64> read_pmc(soft::u32 ecx) override {
    const auto value = in_guest_ ? hardware_.read_pmc(ecx) : pmu_.read_pmc(ecx);
    if (value.ok()) zero_reads_.read_pmc(options_.profile, ecx, *value);
    return answer(value);
  }
  soft::CpuidLeaf cpuid(soft::u32 leaf, soft::u32 subleaf, const soft::CpuidLeaf& base) override {
    return cpuid_of(options_.profile, leaf, subleaf, base);
  }
  void leave() override {
    skid_left_ = 0;
    in_guest_ = false;
    host_->vm_exit();
    pmu_.leave();
  }
  bool enter() override {
    const std::uint64_t now = machine_->cpu().tsc();
    const std::uint64_t slice = static_cast<std::uint64_t>(options_.platform.tsc_mhz.value) * mega / slices_a_second;
    if (now - slice_began_ >= slice) {
      slice_began_ = now;
      pmu_.sched_out();
    }
    const bool pmi = pmu_.enter() == EntryAction::inject_pmi;
    for_each_counter(pmu_.registers().active(), [this](CounterId counter) {
      const Health health = pmu_.health(counter);
      if (health != Health::counting) failed_[counter.slot()] = health;
    });
    zero_reads_.entered(pmu_);
    host_->vm_entry();
    in_guest_ = true;
    return pmi;
  }
  void retire(bool branch, soft::u8 cpl) override {
    ++retired_;
    const auto source = [cpl] { return cpl; };
    pmu_.retire(EmulatedEvent::instruction, source);
    if (branch) pmu_.retire(EmulatedEvent::branch, source);
  }
  soft::u64 take_host_ticks() override {
    const std::uint64_t cost = host_->cost_picoseconds();
    const std::uint64_t ticks = prices_.tsc_ticks(cost - paid_);
    if (ticks != 0) paid_ = cost;
    return ticks;
  }

  // The physical PMU that counts for it.
  bool advance(const model::Activity& activity, model::Ring ring) override {
    const bool interrupts = host_->advance(activity, ring);
    if (skid_left_ != 0) {
      const std::uint64_t ran = activity[model::Event::instructions];
      skid_left_ -= std::min(skid_left_, ran);
      return skid_left_ == 0;
    }
    if (!interrupts) return false;
    skid_left_ = options_.skid;
    return skid_left_ == 0;
  }
  Headroom headroom(model::Ring ring) override {
    Headroom room = headroom_of(hardware_.headroom(ring, model::Mode::guest));
    if (skid_left_ != 0) room.instructions = std::min(room.instructions, skid_left_ - 1);
    return room;
  }
  bool uses(model::Event event) override { return hardware_.uses(event, model::Mode::guest); }
  bool uses_edges() override { return hardware_.uses_edges(model::Mode::guest); }

 private:
  const GuestOptions& options_;
  model::Prices prices_;
  std::unique_ptr<GuestHost> host_;
  model::HardwarePmu& hardware_;
  VirtualPmu pmu_;
  soft::Machine* machine_ = nullptr;
  bool in_guest_ = false;  // between VM entry and VM exit: accesses are the guest's own
  std::uint64_t slice_began_ = 0;
  std::uint64_t skid_left_ = 0;  // instructions to the exit of an overflow that happened
  std::uint64_t paid_ = 0;       // picoseconds of host work that the guest's clock has seen
  std::uint64_t retired_ = 0;
  std::array<Health, max_counters> failed_{};
  ZeroReads zero_reads_;
};

}  // namespace

std::unique_ptr<GuestPort> make_virtual_port(const GuestOptions& options, HostCallLog* log) {
  return std::make_unique<VirtualPort>(options, log);
}

}  // namespace vpmu::lab
