// The host behind the conformance vectors.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "vpmu/host_events.hpp"

namespace vpmu::lab {

/// What happened while the guest ran at one privilege level.
struct Batch {
  enum Kind : std::uint8_t {
    instructions,
    cycles,
    branches,
    branch_misses,
    ref_cycles,
    llc_references,
    llc_misses,
  };
  static constexpr std::size_t kinds = 7;

  std::array<std::uint64_t, kinds> counts{};
  std::uint8_t cpl = 0;
};

/// Exact host events without limit, fed with batches: the mock of tests/vectors/FORMAT.md.
class VectorHost final : public HostEvents {
 public:
  /// The guest ran, and this happened: counts it, and hints where a period passed.
  void run(const Batch& batch);
  /// The next `opens` calls of open() fail.
  void fail_opens(std::uint64_t opens) { failing_opens_ = opens; }

  Result<HostEvent, HostError> open(const HostEventSpec& spec, std::uint64_t period) override;
  void close(HostEvent event) override;
  Status<HostError> set_period(HostEvent event, std::uint64_t period) override;
  Status<HostError> enable(HostEvent event) override;
  Status<HostError> disable(HostEvent event) override;
  Result<std::uint64_t, HostError> read(HostEvent event) override;
  Result<std::uint64_t, HostError> peek(HostEvent event) override { return read(event); }

 private:
  struct Event {
    HostEventSpec spec;
    std::uint64_t count = 0;
    std::uint64_t period = 0;
    std::uint64_t remaining = 0;  // events to the next hint
    bool open = false;
    bool enabled = false;
  };

  Event* find(HostEvent event);

  std::vector<Event> events_;
  std::uint64_t failing_opens_ = 0;
};

}  // namespace vpmu::lab
