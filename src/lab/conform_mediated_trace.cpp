#include "lab/conform_mediated_trace.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "vpmu/msr.hpp"

namespace vpmu::lab {
namespace {

using model::HardwareAccess;
using Kind = HardwareAccess::Kind;

constexpr std::uint32_t amd_ctl = index_of(Msr::amd_perf_cntr_global_ctl);
constexpr std::uint32_t amd_status = index_of(Msr::amd_perf_cntr_global_status);
constexpr std::uint32_t amd_clear = index_of(Msr::amd_perf_cntr_global_status_clr);
constexpr std::uint32_t amd_set = index_of(Msr::amd_perf_cntr_global_status_set);

bool writes(const HardwareAccess& access, std::uint32_t index) {
  return access.kind == Kind::wrmsr && access.index == index;
}

}  // namespace

std::string describe(const HardwareAccess& access) {
  switch (access.kind) {
    case Kind::rdmsr:
      return fmt::format("rdmsr {:#x} = {:#x}", access.index, access.value);
    case Kind::wrmsr:
      return fmt::format("wrmsr {:#x} {:#x}", access.index, access.value);
    case Kind::rdpmc:
      return fmt::format("rdpmc {:#x} = {:#x}", access.index, access.value);
    case Kind::set_entry_field:
      return fmt::format("entry GLOBAL_CTRL {:#x}", access.value);
    case Kind::leave_host_perf:
      return "host perf leaves";
    case Kind::return_host_perf:
      return "host perf returns";
    case Kind::set_lvtpc_guest:
      return "LVTPC to the guest";
    case Kind::set_lvtpc_host:
      return "LVTPC to the host";
  }
  return "?";
}

HardwareTrace TraceComparison::without_fields(const HardwareTrace& trace, Kind end, std::optional<std::uint64_t>& field,
                                              Fields& fields) {
  HardwareTrace rest;
  for (const HardwareAccess& access : trace) {
    if (access.kind == Kind::set_entry_field) {
      field = access.value;
      continue;
    }
    if (access.kind == end) fields.push_back(field);
    rest.push_back(access);
  }
  return rest;
}

HardwareTrace TraceComparison::amd_as_ours(const HardwareTrace& recorded, bool global_passes_through) {
  HardwareTrace ours;
  bool loaded = false;  // GLOBAL_CTL holds the guest's value
  std::uint64_t ctl = 0;
  for (std::size_t i = 0; i < recorded.size(); ++i) {
    const HardwareAccess& access = recorded[i];
    if (access.kind == Kind::leave_host_perf) loaded = false;
    if (loaded && writes(access, amd_ctl)) {
      if (global_passes_through) ours.push_back({Kind::rdmsr, amd_ctl, ctl});
      ours.push_back(access);
      continue;
    }
    ours.push_back(access);
    if (loaded || access.kind != Kind::rdmsr || access.index != amd_status) continue;
    // Load: the status, whatever clears it, what sets it, GLOBAL_CTL.
    if (i + 1 < recorded.size() && writes(recorded[i + 1], amd_clear)) ++i;
    std::uint64_t want = 0;
    if (i + 1 < recorded.size() && writes(recorded[i + 1], amd_set)) want = recorded[++i].value;
    const std::uint64_t have = access.value;
    if ((have & ~want) != 0) ours.push_back({Kind::wrmsr, amd_clear, have & ~want});
    if ((want & ~have) != 0) ours.push_back({Kind::wrmsr, amd_set, want & ~have});
    if (i + 1 < recorded.size() && writes(recorded[i + 1], amd_ctl)) {
      ctl = recorded[i + 1].value;
      ours.push_back(recorded[++i]);
      loaded = true;
    }
  }
  return ours;
}

std::string TraceComparison::compare(const HardwareTrace& recorded, const HardwareTrace& ours,
                                     bool global_passes_through) {
  Fields recorded_fields;
  Fields our_fields;
  HardwareTrace expected = without_fields(recorded, Kind::leave_host_perf, recorded_field_, recorded_fields);
  const HardwareTrace got = without_fields(ours, Kind::return_host_perf, our_field_, our_fields);
  if (!intel_) expected = amd_as_ours(expected, global_passes_through);
  const auto [expected_at, got_at] = std::ranges::mismatch(expected, got);
  if (expected_at != expected.end() || got_at != got.end()) {
    const auto text = [](const auto& at, const HardwareTrace& trace) {
      return at == trace.end() ? std::string{"nothing"} : describe(*at);
    };
    return fmt::format("access {}: {} for {}", got_at - got.begin(), text(got_at, got), text(expected_at, expected));
  }
  for (std::size_t i = 0; i < recorded_fields.size() && i < our_fields.size(); ++i) {
    const auto& field = recorded_fields[i];
    if (!field || field == our_fields[i]) continue;
    return fmt::format("switch {}: entry GLOBAL_CTRL {:#x} for {:#x}", i, our_fields[i].value_or(0), field.value_or(0));
  }
  return {};
}

}  // namespace vpmu::lab
