#include "lab/experiments/kvm_guest.hpp"

#include <fmt/format.h>

#include <chrono>
#include <map>

#include "host/probe.hpp"
#include "lab/experiments/embedded.hpp"
#include "lab/experiments/measure.hpp"
#include "lab/experiments/real_guest.hpp"
#include "machine/kvm/machine.hpp"

namespace vpmu::lab {
namespace {

/// What a guest must not expect of KVM: see docs/kvm.md.
constexpr std::string_view limits = "lvtpc_mask=0 user_rdpmc=0 cycle_rings=0";

std::string last_line(std::string_view output) {
  while (output.ends_with('\n')) output.remove_suffix(1);
  return std::string{output.substr(output.find_last_of('\n') + 1)};
}

}  // namespace

double KvmFigures::ns(double ticks) { return ticks * 1e9 / static_cast<double>(tsc_hz()); }

std::expected<KvmFigures, std::string> run_on_kvm(const KvmGuest& guest, const std::atomic<bool>& stop) {
  if (const auto usable = kvm::open_kvm(); !usable) return std::unexpected{usable.error()};
  KvmFigures figures;
  if (probe_linux_perf().why_not.empty()) figures.host = kvm::HostKind::perf;

  constexpr std::chrono::seconds patience{60};
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::atomic<bool> enough{false};
  std::string output;
  kvm::MachineOptions options;
  options.profile = find_profile("intel-v2")->profile;
  options.policy = guest.policy;
  options.host = figures.host;
  options.command_line = guest.append;
  options.stop = &enough;
  options.output = [&output](char c) { output += c; };
  options.idle = [&] {
    if (stop.load(std::memory_order_relaxed) || std::chrono::steady_clock::now() > deadline) enough = true;
  };
  kvm::Machine machine{options};
  if (std::string error = machine.load(guest_image(guest.image)); !error.empty()) return std::unexpected{error};
  const kvm::MachineResult result = machine.run();
  if (stop.load(std::memory_order_relaxed)) throw Interrupted{};
  if (result.ending == kvm::MachineResult::Ending::stopped) return std::unexpected{"the guest on KVM did not end"};
  if (result.ending == kvm::MachineResult::Ending::crash) return std::unexpected{"the guest on KVM crashed"};
  if (result.end.value != 0) return std::unexpected{fmt::format("the guest on KVM failed: {}", last_line(output))};
  figures.lines = figure_lines(output);
  figures.system_calls = result.vcpus.front().host_system_calls;
  return figures;
}

KvmGuest kvm_sampling(const char* policy, std::uint64_t samples) {
  constexpr std::uint64_t pmis_a_second = 50;
  return {.image = "sampling",
          .append = fmt::format("{} only=configured event=cycles ring=kernel period={} samples={}", limits,
                                tsc_hz() / pmis_a_second, samples),
          .policy = policy_of(policy)};
}

double kvm_handler_ns(const KvmFigures& figures) {
  return KvmFigures::ns(find_figure(figures.lines, "handler").number("p50"));
}

KvmGuest kvm_exits(const char* policy, const char* pmu) {
  return {.image = "exits",
          .append = fmt::format("{} kind=port-write ring=kernel count=1000 pmu={}", limits, pmu),
          .policy = policy_of(policy)};
}

double kvm_exit_ns(const KvmFigures& figures) {
  const FigureLine& line = find_figure(figures.lines, "exits");
  return KvmFigures::ns(line.number("elapsed") / line.number("count"));
}

std::expected<double, std::string> KvmReading::of(const KvmFigures& figures) const {
  try {
    return ns(figures);
  } catch (const LabError& error) {
    // A guest leaves out what its PMU does not offer.
    if (figures.host == kvm::HostKind::clock) return std::unexpected{"the host clock counts cycles alone"};
    return std::unexpected{error.what()};
  }
}

void measure_on_kvm(Measurements& out, std::span<const KvmReading> readings, const std::atomic<bool>& stop) {
  constexpr int rounds = 3;
  std::map<std::string, std::vector<double>> times;
  std::map<std::string, std::string> errors;
  for (int round = 0; round < rounds; ++round) {
    for (const KvmReading& reading : readings) {
      const auto figures = run_on_kvm(reading.guest, stop);
      const auto value = figures ? reading.of(*figures) : std::unexpected{figures.error()};
      if (value) {
        times[reading.name].push_back(*value);
      } else {
        errors[reading.name] = value.error();
      }
    }
  }
  // A guest that was disturbed, as by a host without a processor for a whole period, fails its own checks.
  for (const auto& [name, why] : errors) out.put(name, why);
  for (const auto& [name, all] : times) out.put(name, median(all));
}

}  // namespace vpmu::lab
