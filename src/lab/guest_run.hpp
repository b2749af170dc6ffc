// One guest on the soft machine, with a virtual PMU on a modelled host or with the CPU's own PMU.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host/model/platform.hpp"
#include "lab/host_use.hpp"
#include "machine/soft/machine.hpp"
#include "vpmu/event_filter.hpp"
#include "vpmu/health.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

class Timeline;

struct GuestOptions {
  enum class Pmu : std::uint8_t {
    emulated,  // a virtual PMU on the modelled host's events
    mediated,  // a virtual PMU on the modelled hardware's counters, which has the guest's profile
    physical,  // the guest is the hypervisor: its accesses reach the modelled hardware
  };

  std::string image_name;  // for the report
  Pmu pmu = Pmu::emulated;
  Profile profile;
  Policy policy;
  model::Platform platform;
  std::uint64_t memory_mib = 64;
  std::string append;  // command line
  std::uint64_t max_instructions = ~std::uint64_t{0};
  std::uint64_t skid = 0;  // instructions from an overflow to the exit that it causes
  bool free_reads = true;  // the host's events can be read without a call
  const EventFilter* filter = nullptr;
  const std::atomic<bool>* stop = nullptr;
  std::function<void(char)> output;
  /// Shows a run with a virtual PMU as rows of this process.
  Timeline* timeline = nullptr;
  std::string timeline_process;
};

/// What a run did. All of it but the wall-clock figures, which the caller adds, is the same on each run and machine.
struct GuestResult {
  soft::StopReason stopped = soft::StopReason::stopped;
  bool out_of_time = false;      // if stopped by the host: because of the caller's limit of time
  std::uint32_t exit_value = 0;  // what the guest wrote to port 0xF4
  std::uint64_t instructions = 0;
  std::uint64_t emulated_instructions = 0;  // of those, completed by the machine at an exit
  std::uint64_t branches = 0;
  std::uint64_t cycles = 0;
  std::uint64_t tsc = 0;
  std::uint64_t tsc_hz = 0;
  std::array<std::uint64_t, soft::Machine::exit_reasons> exits{};
  std::uint64_t pmu_accesses = 0;
  std::uint64_t pmis = 0;
  HostCallCounts host_calls;  // emulated
  HardwareUse hardware;       // mediated
  std::uint64_t host_ns = 0;  // modelled cost of the host's calls, or of the switch's register accesses
  /// Counters whose host events failed at some time, and the last reason.
  std::vector<std::pair<std::string, Health>> unhealthy;
  /// Counters that the guest had on by their own control, read 0 in, and never anything else since; and why they stood
  /// still.
  std::vector<std::pair<std::string, std::string>> read_zero;
  std::vector<soft::UnknownInstruction> unknown;
  /// Of a guest that crashed or halted for ever: lines of post_mortem().
  std::vector<std::string> post_mortem;
};

/// Why a guest of this profile can't run with Pmu::mediated, where the hardware has the guest's profile: see
/// why_not_mediated().
const char* why_not_mediated_run(const Profile& profile);

/// A loaded guest.
class GuestRun {
 public:
  /// What `options` point to outlives the run.
  explicit GuestRun(const GuestOptions& options);
  ~GuestRun();
  GuestRun(const GuestRun&) = delete;
  GuestRun& operator=(const GuestRun&) = delete;

  /// Empty, or what is wrong with the image.
  [[nodiscard]] std::string load(std::span<const std::uint8_t> image);
  GuestResult run();

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace vpmu::lab
