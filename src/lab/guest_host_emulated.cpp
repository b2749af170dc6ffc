#include "host/model/perf.hpp"
#include "lab/guest_host.hpp"
#include "vpmu/emulated_backing.hpp"

namespace vpmu::lab {
namespace {

class EmulatedHost final : public GuestHost {
 public:
  explicit EmulatedHost(const GuestOptions& options)
      : hardware_{model::host_for(options.profile)},
        perf_{hardware_, {.free_reads = options.free_reads, .taken = 0}, options.platform},
        backing_{perf_} {}

  [[nodiscard]] Backing& backing() override { return backing_; }
  [[nodiscard]] model::HardwarePmu& hardware() override { return hardware_; }
  bool advance(const model::Activity& activity, model::Ring ring) override {
    return perf_.advance(activity, ring) != 0;
  }
  [[nodiscard]] std::uint64_t cost_picoseconds() const override { return perf_.cost_picoseconds(); }
  void report(GuestResult& result) const override { result.host_calls = perf_.calls(); }

 private:
  model::HardwarePmu hardware_;
  model::PerfModel perf_;
  EmulatedBacking backing_;
};

}  // namespace

std::unique_ptr<GuestHost> make_emulated_host(const GuestOptions& options) {
  return std::make_unique<EmulatedHost>(options);
}

}  // namespace vpmu::lab
