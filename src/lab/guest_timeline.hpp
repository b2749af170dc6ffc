// A guest's run on the soft machine as rows of a timeline: VM exits, PMIs and their handlers, and its PMU.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "lab/guest_run.hpp"
#include "lab/pmu_timeline.hpp"
#include "lab/timeline.hpp"
#include "machine/soft/machine.hpp"

namespace vpmu::lab {

class GuestTimeline final : public soft::Observer {
 public:
  /// `options` have a timeline, and outlive it.
  explicit GuestTimeline(const GuestOptions& options);

  [[nodiscard]] PmuTimeline& pmu() { return pmu_; }
  /// The machine outlives all calls but this.
  void attach(soft::Machine& machine);
  void finish();

  void exited(const soft::Exit& exit) override;
  void entering() override;
  void read_msr(soft::u32 index, std::optional<soft::u64> value) override;
  void wrote_msr(soft::u32 index, soft::u64 value, bool accepted) override;
  void read_pmc(soft::u32 ecx, std::optional<soft::u64> value) override;
  void pmi(soft::u32 lvtpc) override;
  void interrupt_taken(soft::u8 vector, soft::u64 frame) override;
  void interrupt_returns(soft::u64 frame) override;

 private:
  struct OpenExit {
    const char* name;
    std::uint64_t at;
    Timeline::Args args;
  };

  [[nodiscard]] std::uint64_t now() const;
  void answered(std::optional<std::uint64_t> value);
  void end_exit();
  /// Ends the handler at this place of `handlers_`, and those within it.
  void end_handlers(std::size_t from);
  Timeline::Row handler_row();

  Timeline& out_;
  std::uint64_t tsc_mhz_;
  soft::Machine* machine_ = nullptr;
  PmuTimeline pmu_;
  std::optional<OpenExit> exit_;
  std::optional<soft::u8> pmi_vector_;  // of a PMI that no handler has begun for
  std::vector<soft::u64> handlers_;     // frames of PMI handlers that have not returned, the innermost last
};

}  // namespace vpmu::lab
