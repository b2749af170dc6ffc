#include "lab/replay_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lab/options.hpp"

namespace vpmu::lab {
namespace {

using Text = std::back_insert_iterator<std::string>;

/// 1234567 as "1,234,567".
std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<std::size_t>(at), ",");
  }
  return digits;
}

double percent(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }
double milliseconds(std::uint64_t ps) { return static_cast<double>(ps) / 1e9; }

std::string describe(const Profile& profile) {
  const char* const vendor = profile.is_intel() ? "Intel" : "AMD";
  if (!profile.present()) return fmt::format("{} without a PMU", vendor);
  std::string text =
      fmt::format("{} v{}, {}", profile.is_intel() ? "Intel perfmon" : vendor, profile.version, profile.gp_counters);
  if (profile.fixed_mask != 0) text += fmt::format(" + {}", std::popcount(profile.fixed_mask));
  return text + fmt::format(" counters of {} bits", profile.gp_width);
}

std::string_view text_of(ReplayResult::ProfileFrom from) {
  switch (from) {
    case ReplayResult::ProfileFrom::option:
      return "as asked for";
    case ReplayResult::ProfileFrom::cpuid:
      return "from the guest's CPUID";
    case ReplayResult::ProfileFrom::registers:
      return "by the registers that the guest uses";
    case ReplayResult::ProfileFrom::fallback:
      break;
  }
  return "the default; the trace does not say";
}

/// A row of the table that has a column for each policy.
struct Row {
  const char* name;
  const char* key;
  std::uint64_t HostCallCounts::* member;
};

constexpr std::array rows{
    Row{"open", "open", &HostCallCounts::open},
    Row{"close", "close", &HostCallCounts::close},
    Row{"set period", "set_period", &HostCallCounts::set_period},
    Row{"enable", "enable", &HostCallCounts::enable},
    Row{"disable", "disable", &HostCallCounts::disable},
    Row{"read", "read", &HostCallCounts::read},
};

struct AccessRow {
  const char* name;
  const char* key;
  std::uint64_t model::AccessCounts::* member;
};
constexpr std::array access_rows{
    AccessRow{"RDMSR", "rdmsr", &model::AccessCounts::rdmsr},
    AccessRow{"WRMSR", "wrmsr", &model::AccessCounts::wrmsr},
    AccessRow{"RDPMC", "rdpmc", &model::AccessCounts::rdpmc},
};

struct SwitchRow {
  const char* name;
  const char* key;
  std::uint64_t model::SwitchCounts::* member;
};
constexpr std::array switch_rows{
    SwitchRow{"LVTPC writes", "lvtpc_writes", &model::SwitchCounts::lvtpc_writes},
    SwitchRow{"VM-entry fields (memory)", "vm_entry_fields", &model::SwitchCounts::entry_fields},
    SwitchRow{"host perf calls", "host_perf_calls", &model::SwitchCounts::host_perf_calls},
    SwitchRow{"intercept changes", "intercept_changes", &model::SwitchCounts::intercept_changes},
};

class Table {
 public:
  Table(Text& out, const ReplayResult& result) : out_{out}, result_{result} {
    for (const PolicyResult& policy : result.policies) widths_.push_back(std::max<std::size_t>(policy.name.size(), 12));
  }
  template <class Cell>
  void row(std::string_view name, Cell&& cell) {
    fmt::format_to(out_, "{:<34}", name);
    for (std::size_t i = 0; i < widths_.size(); ++i) {
      fmt::format_to(out_, "  {:>{}}", cell(result_.policies[i]), widths_[i]);
    }
    *out_++ = '\n';
  }

 private:
  Text& out_;
  const ReplayResult& result_;
  std::vector<std::size_t> widths_;
};

void head(Text& out, const ReplayResult& result) {
  fmt::format_to(out, "{}: {} lines, {:.3f} s, {} vCPU{}, {:.3f} s of it in the guest\n", result.trace,
                 grouped(result.lines), seconds(result.span_ns), result.vcpus, result.vcpus == 1 ? "" : "s",
                 seconds(result.guest_ns));
  fmt::format_to(out, "Guest PMU: {} ({})\n", describe(result.profile), text_of(result.profile_from));
}

void exits(Text& out, const ReplayResult& result) {
  const std::uint64_t total = result.exits.total();
  fmt::format_to(out, "\n{:<34}  {:>12}\n", "VM exits", grouped(total));
  for (const auto& [name, count] : result.exits.sorted()) {
    fmt::format_to(out, "  {:<32}  {:>12}  {:>5.1f} %\n", name, grouped(count), percent(count, total));
  }
}

void registers(Text& out, const ReplayResult& result) {
  fmt::format_to(out, "\n{:<34}  {:>12}  {:>12}\n", "PMU accesses", "reads", "writes");
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  for (const RegisterUse& use : result.registers) {
    fmt::format_to(out, "  {:<32}  {:>12}  {:>12}\n", use.name, grouped(use.reads), grouped(use.writes));
    reads += use.reads;
    writes += use.writes;
  }
  fmt::format_to(out, "  {:<32}  {:>12}  {:>12}\n", "all", grouped(reads), grouped(writes));
  if (result.registers.empty()) {
    fmt::format_to(out, "  none: was kvm:kvm_msr recorded, and did the guest use its PMU?\n");
  }
}

void host_calls(Table& table) {
  table.row("Asked of the host by policy", [](const PolicyResult& policy) { return policy.name; });
  for (const Row& row : rows) {
    table.row(std::string{"  "} + row.name,
              [&row](const PolicyResult& policy) { return grouped(policy.use.calls.*row.member); });
  }
  table.row("  calls in all", [](const PolicyResult& policy) { return grouped(policy.use.calls.system_calls()); });
  table.row("  free reads (no call)", [](const PolicyResult& policy) { return grouped(policy.use.calls.peek); });
  table.row("  overflow signals", [](const PolicyResult& policy) { return grouped(policy.use.calls.signals); });
}

void hardware_accesses(Table& table) {
  table.row("Switching the hardware by policy", [](const PolicyResult& policy) { return policy.name; });
  for (const AccessRow& row : access_rows) {
    table.row(std::string{"  "} + row.name,
              [&row](const PolicyResult& policy) { return grouped(policy.use.hardware.by_switch.*row.member); });
  }
  for (const SwitchRow& row : switch_rows) {
    table.row(std::string{"  "} + row.name,
              [&row](const PolicyResult& policy) { return grouped(policy.use.hardware.others.*row.member); });
  }
  table.row("PMU accesses that exit", [](const PolicyResult& policy) { return grouped(policy.pmu_exits); });
  table.row("  that pass through",
            [](const PolicyResult& policy) { return grouped(policy.use.hardware.by_guest.total()); });
}

void policies(Text& out, const ReplayResult& result) {
  Table table{out, result};
  *out++ = '\n';
  const bool mediated = result.backing == ReplayOptions::Backing::mediated;
  mediated ? hardware_accesses(table) : host_calls(table);

  fmt::format_to(out, "\nModelled on platform {} (no measurement)\n", result.platform.name);
  table.row("  host's work, ms",
            [](const PolicyResult& policy) { return fmt::format("{:.3f}", milliseconds(policy.use.cost_ps)); });
  const std::uint64_t accesses = result.pmu_accesses();
  if (accesses != 0) {
    table.row("  a PMU access, ns", [accesses](const PolicyResult& policy) {
      return fmt::format("{:.0f}", static_cast<double>(policy.use.cost_ps) / 1000 / static_cast<double>(accesses));
    });
  }
  if (result.guest_ns != 0) {
    table.row("  of the guest's time, %", [&result](const PolicyResult& policy) {
      return fmt::format("{:.3f}", percent(policy.use.cost_ps / 1000, result.guest_ns));
    });
  }
  if (result.policies.size() > 1 && result.policies.front().use.cost_ps != 0) {
    table.row("  against the first policy", [&result](const PolicyResult& policy) {
      return policy.use.cost_ps == 0 || &policy == &result.policies.front()
                 ? std::string{"-"}
                 : fmt::format("{:.1f} x less", static_cast<double>(result.policies.front().use.cost_ps) /
                                                    static_cast<double>(policy.use.cost_ps));
    });
  }
  table.row("PMIs", [](const PolicyResult& policy) { return grouped(policy.pmis); });
  table.row("VM exits of PMU accesses, ms",
            [](const PolicyResult& policy) { return fmt::format("{:.3f}", milliseconds(policy.exits_ps)); });
  fmt::format_to(out,
                 "Guest at {:.0f} MHz, {:g} instructions a cycle; {} instructions completed at exits.\n"
                 "In the trace the guest acknowledged overflows {} times.\n",
                 result.core_mhz, result.ipc, grouped(result.retired), grouped(result.acknowledged));
}

void notes(Text& out, const ReplayResult& result) {
  const auto note = [&out](std::uint64_t count, std::string_view what) {
    if (count != 0) fmt::format_to(out, "note: {} {}\n", grouped(count), what);
  };
  for (const RegisterUse& use : result.registers) {
    note(use.faulted_here, fmt::format("accesses to {} get #GP here, none in the trace: see --profile", use.name));
    note(use.faulted_there, fmt::format("accesses to {} got #GP in the trace, none here: see --profile", use.name));
  }
  if (result.lost_notes != 0) {
    fmt::format_to(out, "note: the trace lost events, {} places, {} events or more\n", grouped(result.lost_notes),
                   grouped(result.lost_events));
  }
  note(result.untraced_rdpmc, "RDPMC exits whose counter the trace does not tell: not replayed");
  note(result.entries_without_exit, "VM entries without an exit before the next");
  note(result.exits_without_entry, "VM exits without an entry before: their guest time is not known");
  note(result.backward_times, "VM exits earlier than their entry: the clock went backwards");
  note(result.differing_answers, "answers on which two policies differ: please report this");
  for (const PolicyResult& policy : result.policies) {
    note(policy.unhealthy, fmt::format("counters not counted at the end under {}", policy.name));
  }
  std::uint64_t unused = 0;
  std::string names;
  constexpr std::array<std::string_view, 6> used{"kvm_entry", "kvm_exit",  "kvm_msr",
                                                 "kvm_pio",   "kvm_cpuid", "kvm_emulate_insn"};
  std::size_t more = 0;
  for (const auto& [name, count] : result.events.sorted()) {
    if (std::ranges::find(used, name) != used.end()) continue;
    unused += count;
    constexpr std::size_t shown = 80;
    if (names.size() + name.size() < shown) {
      names += (names.empty() ? "" : ", ") + name;
    } else {
      ++more;
    }
  }
  if (more != 0) names += fmt::format(" and {} more kinds", more);
  if (unused != 0) note(unused, "events played no part: " + names);
}

}  // namespace

std::string replay_text(const ReplayResult& result) {
  std::string text;
  Text out{text};
  head(out, result);
  exits(out, result);
  registers(out, result);
  policies(out, result);
  notes(out, result);
  return text;
}

std::string replay_json(const ReplayResult& result) {
  using Json = nlohmann::ordered_json;
  const auto counts = [](const NameCounts& names) {
    Json json = Json::object();
    for (const auto& [name, count] : names.sorted()) json[name] = count;
    return json;
  };
  Json json;
  json["trace"] = result.trace;
  json["lines"] = result.lines;
  json["vcpus"] = result.vcpus;
  json["span_ns"] = result.span_ns;
  json["guest_ns"] = result.guest_ns;
  const Profile& profile = result.profile;
  json["profile"] = {
      {"from", text_of(result.profile_from)}, {"vendor", profile.is_intel() ? "intel" : "amd"},
      {"version", profile.version},           {"gp_counters", profile.gp_counters},
      {"fixed_mask", profile.fixed_mask},     {"gp_width", profile.gp_width},
  };
  json["backing"] = result.backing == ReplayOptions::Backing::mediated ? "mediated" : "emulated";
  json["events"] = counts(result.events);
  json["entries"] = result.entries;
  json["exits"] = counts(result.exits);
  json["completed_instructions"] = result.retired;
  Json& registers = json["pmu_accesses"] = Json::array();
  for (const RegisterUse& use : result.registers) {
    registers.push_back({{"register", use.name},
                         {"reads", use.reads},
                         {"writes", use.writes},
                         {"faults_only_recorded", use.faulted_there},
                         {"faults_only_replayed", use.faulted_here}});
  }
  json["acknowledged_overflows"] = result.acknowledged;
  json["other_msr_accesses"] = result.other_msrs;
  json["untraced_rdpmc"] = result.untraced_rdpmc;
  json["model"] = {
      {"platform", result.platform.name}, {"core_mhz", result.core_mhz}, {"instructions_per_cycle", result.ipc}};
  Json& policies = json["policies"] = Json::array();
  for (const PolicyResult& policy : result.policies) {
    Json calls;
    for (const Row& row : rows) calls[row.key] = policy.use.calls.*row.member;
    calls["free_read"] = policy.use.calls.peek;
    calls["signals"] = policy.use.calls.signals;
    Json hardware;
    for (const AccessRow& row : access_rows) {
      hardware["by_switch"][row.key] = policy.use.hardware.by_switch.*row.member;
      hardware["by_guest_without_exit"][row.key] = policy.use.hardware.by_guest.*row.member;
    }
    for (const SwitchRow& row : switch_rows) hardware[row.key] = policy.use.hardware.others.*row.member;
    policies.push_back({{"policy", policy.name},
                        {"settings", to_text(policy.policy)},
                        {"host_calls", calls},
                        {"hardware", hardware},
                        {"modelled_cost_ps", policy.use.cost_ps},
                        {"pmu_exits", policy.pmu_exits},
                        {"modelled_pmu_exits_ps", policy.exits_ps},
                        {"pmis", policy.pmis},
                        {"counters_not_counted", policy.unhealthy}});
  }
  json["doubts"] = {{"lost_notes", result.lost_notes},
                    {"lost_events", result.lost_events},
                    {"entries_without_exit", result.entries_without_exit},
                    {"exits_without_entry", result.exits_without_entry},
                    {"backward_times", result.backward_times},
                    {"differing_answers", result.differing_answers}};
  return json.dump(2, ' ', true, Json::error_handler_t::replace) + '\n';
}

}  // namespace vpmu::lab
