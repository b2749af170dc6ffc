// vpmu info: what there is to choose from, and what this system supports.
#include <fmt/format.h>

#include <array>
#include <string>
#include <string_view>

#include "cli/command.hpp"
#include "host/probe.hpp"
#include "lab/options.hpp"
#include "machine/kvm/vm.hpp"

namespace vpmu::cli {
namespace {

/// Something that may be missing on this system.
struct Facility {
  std::string_view name;
  std::string_view summary;
  /// Why it can't be used and what to change; empty if it can.
  std::string (*why_not)();
};

std::string always() { return {}; }

std::string why_no_kvm() {
  const auto kvm = kvm::open_kvm();
  return kvm ? std::string{} : kvm.error();
}

constexpr std::array hosts{
    Facility{"vectors", "exact events fed from recorded scenarios (conform)", always},
    Facility{"model", "a modelled hardware PMU with host events on top (replay)", always},
};

constexpr std::array machines{
    Facility{"soft", "interpreter, exact and deterministic (run)", always},
    Facility{"kvm", "Linux KVM: bare-metal guests and Linux (run --machine kvm)", why_no_kvm},
};

template <class List>
void print_facilities(const char* title, const List& list) {
  fmt::print("\n{}\n", title);
  for (const Facility& facility : list) {
    const std::string why_not = facility.why_not();
    fmt::print("  {:<12} {}\n", facility.name, facility.summary);
    fmt::print("  {:<12} {}\n", "", why_not.empty() ? "supported" : "not supported: " + why_not);
  }
}

template <class List>
void print_named(const char* title, const List& list) {
  fmt::print("{}\n", title);
  for (const auto& named : list) fmt::print("  {:<12} {}\n", named.name, named.summary);
}

/// A host that was tried, and what was found.
void print_probe(std::string_view name, std::string_view summary, const HostProbe& probe) {
  fmt::print("  {:<12} {}\n", name, summary);
  fmt::print("  {:<12} {}\n", "", probe.why_not.empty() ? "supported" : "not supported: " + probe.why_not);
  for (const Finding& finding : probe.findings) {
    fmt::print("  {:<12}   {:<18} {:<8} {}\n", "", finding.name, describe(finding.verdict),
               finding.change.empty() ? finding.fact : finding.fact + ": " + finding.change);
  }
}

void run() {
  print_named("profiles (--profile)", named_profiles());
  fmt::print("\n");
  print_named("policies (--policy)", named_policies());
  print_facilities("hosts", hosts);
  print_probe("linux_perf", "perf events of this Linux system", probe_linux_perf());
  print_probe("clock", "thread CPU time, for cycles on a host without a PMU", probe_clock());
  print_facilities("machines", machines);
}

}  // namespace

void add_info(CLI::App& app, ExitStatus& status) {
  CLI::App* command = app.add_subcommand("info", "List profiles, policies, hosts and machines, and what is supported");
  command->callback([&status] {
    run();
    status = ExitStatus::success;
  });
}

}  // namespace vpmu::cli
