#include <optional>

#include "host/model/perf.hpp"
#include "lab/guest_host.hpp"
#include "lab/recorded_events.hpp"
#include "vpmu/emulated_backing.hpp"

namespace vpmu::lab {
namespace {

class EmulatedHost final : public GuestHost {
 public:
  EmulatedHost(const Profile& guest, const model::Platform& platform, FreeReads reads, HostCallLog* log)
      : hardware_{model::host_for(guest)},
        perf_{hardware_, {.free_reads = reads == FreeReads::yes, .taken = 0}, platform},
        recorded_{log != nullptr ? std::make_optional<RecordedEvents>(perf_, *log) : std::nullopt},
        backing_{recorded_ ? static_cast<HostEvents&>(*recorded_) : perf_} {}

  [[nodiscard]] Backing& backing() override { return backing_; }
  [[nodiscard]] bool mediated() const override { return false; }
  [[nodiscard]] model::HardwarePmu& hardware() override { return hardware_; }
  bool advance(const model::Activity& activity, model::Ring ring) override {
    return perf_.advance(activity, ring) != 0;
  }
  void vm_exit() override {
    if (recorded_) recorded_->time_passed();
  }
  [[nodiscard]] std::uint64_t cost_picoseconds() const override { return perf_.cost_picoseconds(); }
  [[nodiscard]] HostUse use() const override {
    return {.calls = perf_.calls(), .hardware = {}, .cost_ps = cost_picoseconds()};
  }

 private:
  model::HardwarePmu hardware_;
  model::PerfModel perf_;
  std::optional<RecordedEvents> recorded_;
  EmulatedBacking backing_;
};

}  // namespace

std::unique_ptr<GuestHost> make_emulated_host(const Profile& guest, const model::Platform& platform, FreeReads reads,
                                              HostCallLog* log) {
  return std::make_unique<EmulatedHost>(guest, platform, reads, log);
}

}  // namespace vpmu::lab
