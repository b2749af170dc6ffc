#include "lab/guest_report.hpp"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "lab/options.hpp"
#include "lab/post_mortem.hpp"

namespace vpmu::lab {
namespace {

constexpr double mega = 1e6;

struct HostRow {
  const char* name;
  const char* key;
  std::uint64_t HostCallCounts::* member;
};
constexpr std::array host_rows{
    HostRow{"open", "open", &HostCallCounts::open},
    HostRow{"close", "close", &HostCallCounts::close},
    HostRow{"set period", "set_period", &HostCallCounts::set_period},
    HostRow{"enable", "enable", &HostCallCounts::enable},
    HostRow{"disable", "disable", &HostCallCounts::disable},
    HostRow{"read", "read", &HostCallCounts::read},
    HostRow{"free read", "free_read", &HostCallCounts::peek},
    HostRow{"signal", "signal", &HostCallCounts::signals},
};

std::vector<std::pair<const char*, std::uint64_t>> hardware_rows(const HardwareUse& use) {
  return {{"RDMSR", use.by_switch.rdmsr},
          {"WRMSR", use.by_switch.wrmsr},
          {"RDPMC", use.by_switch.rdpmc},
          {"LVTPC write", use.others.lvtpc_writes},
          {"VM-entry field", use.others.entry_fields},
          {"host perf call", use.others.host_perf_calls},
          {"intercept change", use.others.intercept_changes}};
}

/// "name 12, other 3", leaving zeros out; "none" if all are.
template <class Items>
std::string list(const Items& items) {
  std::string text;
  for (const auto& [name, count] : items) {
    if (count != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  }
  return text.empty() ? "none" : text;
}

std::vector<std::pair<const char*, std::uint64_t>> exits_of(const GuestResult& result) {
  std::vector<std::pair<const char*, std::uint64_t>> exits;
  exits.reserve(result.exits.size());
  for (std::size_t i = 0; i < result.exits.size(); ++i) {
    exits.emplace_back(exit_name(static_cast<soft::ExitReason>(i)), result.exits[i]);
  }
  return exits;
}

const char* pmu_name(GuestOptions::Pmu pmu) {
  switch (pmu) {
    case GuestOptions::Pmu::emulated:
      return "emulated";
    case GuestOptions::Pmu::mediated:
      return "mediated";
    case GuestOptions::Pmu::physical:
      return "physical";
  }
  return "?";
}

nlohmann::ordered_json json_of(const model::AccessCounts& accesses) {
  return {{"rdmsr", accesses.rdmsr}, {"wrmsr", accesses.wrmsr}, {"rdpmc", accesses.rdpmc}};
}

double mips(const GuestResult& result, const WallFigures& wall) {
  return wall.seconds > 0 ? static_cast<double>(result.instructions) / wall.seconds / mega : 0;
}

}  // namespace

std::string ending(const GuestResult& result) {
  switch (result.stopped) {
    case soft::StopReason::guest_exit:
      return fmt::format("the guest ended with {}", result.exit_value);
    case soft::StopReason::shutdown:
      return "the guest crashed: triple fault";
    case soft::StopReason::halted:
      return "the guest halted for ever: HLT, and nothing can wake it";
    case soft::StopReason::stuck:
      return "the guest crashed: exceptions, or iterations of one instruction, without end";
    case soft::StopReason::instruction_limit:
      return "the limit of instructions was reached";
    case soft::StopReason::stopped:
      return result.out_of_time ? "the limit of time was reached" : "interrupted";
  }
  return "?";
}

std::string guest_text(const GuestOptions& options, const GuestResult& result, const WallFigures& wall) {
  std::string text;
  const auto row = [&](const char* name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<14}{}\n", name, value);
  };
  row("result", ending(result));
  for (const std::string& line : result.post_mortem) row("", line);
  for (const soft::UnknownInstruction& unknown : result.unknown) {
    row("unknown", fmt::format("{} at {:#x}: #UD, {} in all", unknown.text, unknown.rip, unknown.times));
  }
  row("instructions", fmt::format("{}, of them {} by emulation", result.instructions, result.emulated_instructions));
  row("branches", fmt::format("{}", result.branches));
  row("cycles",
      fmt::format("{} in the guest, {:.3f} ms of guest time in all (modelled: {})", result.cycles,
                  1e3 * static_cast<double>(result.tsc) / static_cast<double>(result.tsc_hz), options.platform.name));
  row("exits", list(exits_of(result)));
  const bool mediated = options.pmu == GuestOptions::Pmu::mediated;
  row("PMU accesses",
      mediated ? fmt::format("{}, of them {} without an exit", result.pmu_accesses, result.hardware.by_guest.total())
               : fmt::format("{}", result.pmu_accesses));
  row("PMIs", fmt::format("{}", result.pmis));
  if (options.pmu != GuestOptions::Pmu::physical) {
    std::vector<std::pair<const char*, std::uint64_t>> calls;
    calls.reserve(host_rows.size());
    for (const HostRow& call : host_rows) calls.emplace_back(call.name, result.host_calls.*call.member);
    if (mediated) {
      row("switches", list(hardware_rows(result.hardware)));
    } else {
      row("host calls", list(calls));
    }
    row("host time", fmt::format("{:.3f} ms (modelled)", static_cast<double>(result.host_ns) / mega));
    std::string health;
    for (const auto& [counter, why] : result.unhealthy) {
      health += fmt::format("{}{}: {}", health.empty() ? "" : "; ", counter, describe(why));
    }
    row("health", health.empty() ? "all counters counted" : health);
    for (const auto& [counter, why] : result.read_zero) row("read 0", fmt::format("{}: {}", counter, why));
  }
  row("wall", fmt::format("{:.2f} s, {:.0f} million instructions a second", wall.seconds, mips(result, wall)));
  return text;
}

nlohmann::ordered_json work_json(const GuestResult& result) {
  nlohmann::ordered_json json;
  json["instructions"] = result.instructions;
  json["emulated_instructions"] = result.emulated_instructions;
  json["branches"] = result.branches;
  json["cycles"] = result.cycles;
  json["tsc"] = result.tsc;
  json["tsc_hz"] = result.tsc_hz;
  for (const auto& [name, count] : exits_of(result)) json["exits"][name] = count;
  json["pmu_accesses"] = result.pmu_accesses;
  json["pmis"] = result.pmis;
  for (const HostRow& call : host_rows) json["host_calls"][call.key] = result.host_calls.*call.member;
  const HardwareUse& hardware = result.hardware;
  json["hardware"] = {
      {"by_switch", json_of(hardware.by_switch)},           {"by_guest_without_exit", json_of(hardware.by_guest)},
      {"lvtpc_writes", hardware.others.lvtpc_writes},       {"vm_entry_fields", hardware.others.entry_fields},
      {"host_perf_calls", hardware.others.host_perf_calls}, {"intercept_changes", hardware.others.intercept_changes}};
  json["modelled_host_ns"] = result.host_ns;
  return json;
}

std::string guest_json(const GuestOptions& options, const GuestResult& result, const WallFigures& wall) {
  nlohmann::ordered_json json;
  json["image"] = options.image_name;
  json["append"] = options.append;
  json["pmu"] = pmu_name(options.pmu);
  json["policy"] = to_text(options.policy);
  json["platform"] = options.platform.name;
  json["ending"] = ending(result);
  json["exit_value"] = result.exit_value;
  json.update(work_json(result));
  json["health"] = nlohmann::ordered_json::object();
  for (const auto& [counter, why] : result.unhealthy) json["health"][counter] = describe(why);
  json["read_zero"] = nlohmann::ordered_json::object();
  for (const auto& [counter, why] : result.read_zero) json["read_zero"][counter] = why;
  json["unknown_instructions"] = nlohmann::ordered_json::array();
  for (const soft::UnknownInstruction& unknown : result.unknown) json["unknown_instructions"].push_back(unknown.text);
  json["wall"] = {{"seconds", wall.seconds}, {"million_instructions_a_second", mips(result, wall)}};
  constexpr int indent = 2;
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace vpmu::lab
