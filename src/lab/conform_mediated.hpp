// The mediated scenarios: a virtual PMU that owns modelled hardware, and what that hardware was asked to do.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "lab/conform_differences.hpp"
#include "lab/conform_rig.hpp"
#include "lab/conform_scenario.hpp"
#include "vpmu/policy.hpp"

namespace vpmu::lab {

/// Hardware as a scenario's host has it. Where the peer could not use mediated mode there, host events instead.
/// Accesses are compared under `switch=elide`, the recorded way; under the others the guest's answers alone.
std::unique_ptr<ConformRig> mediated_rig(const Scenario& scenario, const Policy& policy);

/// The differences from the recorded accesses that are the same in all scenarios, one line each.
std::span<const std::string_view> mediated_rules();

/// Rows for conform_differences.cpp.
std::span<const ExpectedDifference> mediated_differences(Vendor vendor);

}  // namespace vpmu::lab
