// Platforms with some of their costs changed: what a figure of a guest is made of, and within what range it lies.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "host/model/platform.hpp"
#include "lab/experiments/guest_pool.hpp"
#include "lab/experiments/section.hpp"

namespace vpmu::lab {

/// Costs that belong together, as charts show them.
struct CostKind {
  const char* name;
  std::vector<model::Figure model::Platform::*> figures;
};
std::span<const CostKind> cost_kinds();

model::Platform without(model::Platform platform, const CostKind& kind);
/// No host work costs anything: exits and the guest's own instructions are left.
model::Platform without_host_work(model::Platform platform);
/// All costs, but no clocks, at the lower or upper end of their ranges: &Figure::lo or &Figure::hi.
model::Platform at_bound(model::Platform platform, double model::Figure::* bound);

/// What a figure of a guest is read from.
using Reading = std::function<double(const GuestFigures&)>;

/// "LO to HI": a figure of the job's guest with all costs at either end of their ranges.
std::string range_of(GuestPool& pool, const GuestJob& job, const Reading& reading, int decimals = 0);

/// What each kind of cost adds to a figure: the guest runs once with all, and once without each. One value for each of
/// cost_kinds(), then what is left: the guest's own instructions.
std::vector<double> by_kind(GuestPool& pool, const GuestJob& job, const Reading& reading);

/// A stacked chart of by_kind(), a bar a job.
Chart chart_by_kind(GuestPool& pool, std::span<const GuestJob> jobs, std::vector<std::string> labels,
                    const Reading& reading);

/// The assumed or measured-elsewhere inputs that move a figure most, from one end of their ranges to the other.
std::string widest_inputs(GuestPool& pool, const GuestJob& job, const Reading& reading, const char* unit);

}  // namespace vpmu::lab
