#include "lab/conform_differences.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "lab/conform_mediated.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/msr.hpp"

namespace vpmu::lab {
namespace {

using Difference = ExpectedDifference;
using global_status::asci;
using global_status::counters_frozen;
using global_status::lbr_frozen;
using global_status::trace_topa_pmi;

constexpr Answer ok{Answer::Kind::ok};
constexpr Answer gp{Answer::Kind::gp};
constexpr Answer err{Answer::Kind::err};
constexpr Answer value(std::uint64_t number) { return {Answer::Kind::value, number}; }

constexpr std::uint32_t status = index_of(Msr::ia32_perf_global_status);
constexpr std::uint32_t status_reset = index_of(Msr::ia32_perf_global_ovf_ctrl);
constexpr std::uint32_t status_set = index_of(Msr::ia32_perf_global_status_set);
constexpr std::uint32_t in_use = index_of(Msr::ia32_perf_global_inuse);
constexpr std::string_view v5_bits = "global_status_ovf_ctrl_bits/v5";

// The recorded peer stops at the registers of perfmon v2. A guest of v4 and later has 0x391, 0x392 and the status bits
// 55 and 58 to 60, which its VMM must be able to restore (SDM volume 3, "Architectural Performance Monitoring Version
// 4"). Ordered by scenario.
constexpr std::array differences{
    Difference{v5_bits, 113, Verb::host_wrmsr, status, trace_topa_pmi, err, ok},
    Difference{v5_bits, 114, Verb::rdmsr, status, 0, value(0x400000000), value(trace_topa_pmi)},
    Difference{v5_bits, 116, Verb::rdmsr, status, 0, value(0x400000000), value(trace_topa_pmi)},
    Difference{v5_bits, 118, Verb::rdmsr, status, 0, value(0x400000000), value(trace_topa_pmi)},
    Difference{v5_bits, 119, Verb::host_wrmsr, status, lbr_frozen, err, ok},
    Difference{v5_bits, 120, Verb::rdmsr, status, 0, value(0x400000000), value(lbr_frozen)},
    Difference{v5_bits, 121, Verb::host_wrmsr, status, counters_frozen, err, ok},
    Difference{v5_bits, 122, Verb::rdmsr, status, 0, value(0x400000000), value(counters_frozen)},
    Difference{v5_bits, 123, Verb::host_wrmsr, status, asci, err, ok},
    Difference{v5_bits, 124, Verb::rdmsr, status, 0, value(0x400000000), value(asci)},
    Difference{v5_bits, 126, Verb::rdmsr, status, 0, value(0x400000000), value(asci)},
    Difference{v5_bits, 244, Verb::wrmsr, status_reset, trace_topa_pmi, gp, ok},
    Difference{v5_bits, 250, Verb::wrmsr, status_reset, lbr_frozen, gp, ok},
    Difference{v5_bits, 252, Verb::wrmsr, status_reset, counters_frozen, gp, ok},
    Difference{v5_bits, 254, Verb::wrmsr, status_reset, asci, gp, ok},
    Difference{v5_bits, 268, Verb::rdmsr, status_set, 0, gp, value(0x0)},
    Difference{v5_bits, 269, Verb::wrmsr, status_set, 0x1, gp, ok},
    Difference{v5_bits, 270, Verb::rdmsr, in_use, 0, gp, value(0x0)},
    Difference{"random/121", 131, Verb::rdmsr, status_set, 0, gp, value(0)},
    Difference{"random/55", 18, Verb::rdmsr, status_set, 0, gp, value(0)},
};

}  // namespace

std::span<const ExpectedDifference> expected_differences(const Scenario& scenario) {
  std::span<const Difference> all;
  if (scenario.mediated) {
    all = mediated_differences(scenario.profile.vendor);
  } else if (scenario.profile.is_intel()) {
    all = differences;
  }
  const auto rows = std::ranges::equal_range(all, scenario.name, {}, &Difference::scenario);
  const bool all_there = std::ranges::all_of(rows, [&](const Difference& row) {
    if (row.operation >= scenario.operations.size()) return false;
    const Operation& operation = scenario.operations[row.operation];
    if (operation.verb != row.verb || operation.answer != row.recorded) return false;
    // The hardware's have no register of their own.
    if (row.recorded.kind == Answer::Kind::as_recorded) return true;
    return operation.index == row.index && operation.value == row.value;
  });
  if (!all_there) return {};
  return rows;
}

}  // namespace vpmu::lab
