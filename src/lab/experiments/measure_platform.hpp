// What this machine's host calls cost, as a platform.
#pragma once

#include <atomic>
#include <string>

#include "host/model/platform.hpp"

namespace vpmu::lab {

struct MeasuredPlatform {
  model::Platform platform;
  std::string not_measured;  // why host calls were not, or empty
};

/// The generic platform with what can be measured in user mode: the TSC's rate, each perf call and the signal, on
/// software events of this thread. VM exits and register accesses stay assumed. Throws Interrupted.
MeasuredPlatform measure_platform(const std::atomic<bool>& stop);

}  // namespace vpmu::lab
