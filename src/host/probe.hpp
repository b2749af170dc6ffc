// What this system's hosts can do: found out by trying, once, at start-up.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "vpmu/host/clock_system.hpp"
#include "vpmu/host/linux_perf_system.hpp"

namespace vpmu {

enum class Verdict : std::uint8_t {
  works,
  limited,  // works, within limits that `fact` says
  missing,
};

const char* describe(Verdict verdict);

struct Finding {
  std::string name;
  Verdict verdict = Verdict::works;
  std::string fact;    // what was found
  std::string change;  // what the user can do about it; may be empty
};

struct HostProbe {
  std::vector<Finding> findings;
  /// Empty if a guest can be backed by it; else the reason and what to change, in one line.
  std::string why_not;
};

/// What is looked at. Tests put their own in place of each part.
struct ProbeOptions {
  PerfSystem* perf = nullptr;    // null: this Linux
  ClockSystem* clock = nullptr;  // null: this Linux
  std::string root;              // put before /proc and /sys
  std::function<void(std::uint64_t ns)> keep_busy;
};

HostProbe probe_linux_perf(const ProbeOptions& options = {});
HostProbe probe_clock(const ProbeOptions& options = {});

}  // namespace vpmu
