#include "host/model/perf.hpp"
#include "lab/guest_host.hpp"
#include "vpmu/emulated_backing.hpp"

namespace vpmu::lab {
namespace {

class EmulatedHost final : public GuestHost {
 public:
  EmulatedHost(const Profile& guest, const model::Platform& platform, FreeReads reads)
      : hardware_{model::host_for(guest)},
        perf_{hardware_, {.free_reads = reads == FreeReads::yes, .taken = 0}, platform},
        backing_{perf_} {}

  [[nodiscard]] Backing& backing() override { return backing_; }
  [[nodiscard]] model::HardwarePmu& hardware() override { return hardware_; }
  bool advance(const model::Activity& activity, model::Ring ring) override {
    return perf_.advance(activity, ring) != 0;
  }
  [[nodiscard]] std::uint64_t cost_picoseconds() const override { return perf_.cost_picoseconds(); }
  [[nodiscard]] HostUse use() const override {
    return {.calls = perf_.calls(), .hardware = {}, .cost_ps = cost_picoseconds()};
  }

 private:
  model::HardwarePmu hardware_;
  model::PerfModel perf_;
  EmulatedBacking backing_;
};

}  // namespace

std::unique_ptr<GuestHost> make_emulated_host(const Profile& guest, const model::Platform& platform, FreeReads reads) {
  return std::make_unique<EmulatedHost>(guest, platform, reads);
}

}  // namespace vpmu::lab
