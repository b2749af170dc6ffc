// Replay of a recorded guest: what its PMU accesses would ask of a host under several policies.
#pragma once

#include <atomic>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host/model/platform.hpp"
#include "lab/host_use.hpp"
#include "lab/replay_names.hpp"
#include "lab/replay_registers.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

class Timeline;

struct ReplayPolicy {
  std::string name;
  Policy policy;
};

struct ReplayOptions {
  /// The guest's PMU; without one it is taken from the CPUID answers in the trace, else intel-v2 (amd-v2 if the first
  /// PMU register that the guest touches is AMD's).
  std::optional<Profile> profile;
  std::vector<ReplayPolicy> policies;
  enum class Backing : std::uint8_t { emulated, mediated } backing = Backing::emulated;
  model::Platform platform = model::platforms().front();
  /// The guest's core and reference clock; without it, the platform's.
  std::optional<double> mhz;
  /// Instructions that the guest retires per core cycle, above 0 and at most 1.
  double ipc = 1.0;
  /// A time slice ends here if nothing in the trace ends it before.
  std::uint64_t slice_ns = 4'000'000;
  /// Shows the recorded exits as rows of one process, and each policy as another's.
  Timeline* timeline = nullptr;
  /// Raised, it ends replay_trace() with an error.
  const std::atomic<bool>* stop = nullptr;
};

struct PolicyResult {
  std::string name;
  Policy policy;
  HostUse use;
  std::uint64_t pmu_exits = 0;  // PMU accesses that took a VM exit
  std::uint64_t exits_ps = 0;   // modelled time of those, picoseconds
  std::uint64_t pmis = 0;
  std::uint64_t unhealthy = 0;  // counters that the host could not count at the end
};

/// What a trace was and what came of it. Depends on the trace and the options alone.
struct ReplayResult {
  std::string trace;
  Profile profile;
  enum class ProfileFrom : std::uint8_t { option, cpuid, registers, fallback } profile_from = ProfileFrom::fallback;
  ReplayOptions::Backing backing = ReplayOptions::Backing::emulated;
  model::Platform platform;
  double core_mhz = 0;  // of the guest
  double ipc = 1.0;

  std::uint64_t lines = 0;
  std::uint64_t vcpus = 0;
  std::uint64_t span_ns = 0;   // from the first event to the last
  std::uint64_t guest_ns = 0;  // between entries and exits, over all vCPUs
  std::uint64_t entries = 0;
  NameCounts exits;           // by reason
  NameCounts events;          // by name
  std::uint64_t retired = 0;  // instructions that the VMM completed
  std::vector<RegisterUse> registers;
  std::uint64_t other_msrs = 0;      // accesses to MSRs that belong to no PMU
  std::uint64_t acknowledged = 0;    // guest writes that clear an overflow
  std::uint64_t untraced_rdpmc = 0;  // RDPMC exits of which the trace does not say the counter
  std::vector<PolicyResult> policies;

  // What a reader should know before trusting the rest.
  std::uint64_t lost_events = 0;
  std::uint64_t lost_notes = 0;  // lines that say that events were lost
  std::uint64_t entries_without_exit = 0;
  std::uint64_t exits_without_entry = 0;
  std::uint64_t backward_times = 0;
  std::uint64_t differing_answers = 0;  // reads on which two policies disagree

  [[nodiscard]] std::uint64_t pmu_accesses() const;
};

/// One replay. Memory does not grow with the trace.
class Replay {
 public:
  static constexpr std::size_t max_vcpus = 256;

  explicit Replay(ReplayOptions options);
  ~Replay();
  Replay(const Replay&) = delete;
  Replay& operator=(const Replay&) = delete;

  /// Takes the next line of the trace; or says what is wrong with it.
  std::expected<void, std::string> take(std::string_view line);
  /// The trace is over: ends the timeline, if there is one.
  void finish();
  [[nodiscard]] ReplayResult result() const;

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace vpmu::lab
