#include "cli/run_kvm.hpp"

#include <fmt/format.h>
#include <termios.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/command.hpp"
#include "host/probe.hpp"
#include "lab/options.hpp"
#include "machine/kvm/linux_image.hpp"
#include "machine/kvm/machine.hpp"

namespace vpmu::cli {
namespace {

constexpr std::uint64_t image_memory_mib = 64;
constexpr std::uint64_t linux_memory_mib = 256;
constexpr char escape_key = 0x1D;  // Ctrl-]

/// A terminal that hands each key to the guest, while it lives.
class RawTerminal {
 public:
  explicit RawTerminal(bool wanted) {
    if (!wanted || ::isatty(STDIN_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    ::cfmakeraw(&raw);
    raw.c_oflag = before_.c_oflag;
    active_ = ::tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  ~RawTerminal() {
    if (active_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  [[nodiscard]] bool active() const { return active_; }

 private:
  termios before_{};
  bool active_ = false;
};

kvm::HostKind choose_host(const KvmRun& run) {
  if (run.options.host == "clock" || !run.profile.present()) return kvm::HostKind::clock;
  const HostProbe probe = probe_linux_perf();
  if (run.options.host == "perf") {
    if (!probe.why_not.empty()) throw UseError{fmt::format("--host perf: {}", probe.why_not)};
    return kvm::HostKind::perf;
  }
  return probe.why_not.empty() ? kvm::HostKind::perf : kvm::HostKind::clock;
}

std::string counter_name(CounterId counter) {
  return fmt::format("{} {}", counter.is_fixed() ? "fixed" : "gp", counter.number());
}

std::string ending(const kvm::MachineResult& result) {
  switch (result.ending) {
    case kvm::MachineResult::Ending::stopped:
      return "the run was stopped";
    case kvm::MachineResult::Ending::crash:
      return "the guest crashed";
    case kvm::MachineResult::Ending::guest:
      break;
  }
  switch (result.end.kind) {
    case kvm::GuestEnd::Kind::exit:
      return fmt::format("the guest ended with {}", result.end.value);
    case kvm::GuestEnd::Kind::power_off:
      return "the guest switched itself off";
    case kvm::GuestEnd::Kind::reset:
      return "the guest reset itself";
  }
  return "?";
}

KvmOutcome::Kind kind_of(const kvm::MachineResult& result) {
  switch (result.ending) {
    case kvm::MachineResult::Ending::stopped:
      return KvmOutcome::Kind::stopped;
    case kvm::MachineResult::Ending::crash:
      return KvmOutcome::Kind::crashed;
    case kvm::MachineResult::Ending::guest:
      break;
  }
  return result.end.value == 0 ? KvmOutcome::Kind::passed : KvmOutcome::Kind::failed;
}

std::vector<std::pair<const char*, std::uint64_t>> pmu_figures(const kvm::VcpuPmu::Counts& counts) {
  return {{"accesses", counts.msr_accesses},
          {"RDPMC", counts.rdpmcs},
          {"unpatched RDMSR", counts.unpatched_rdmsrs},
          {"#GP", counts.faults},
          {"PMIs", counts.pmis},
          {"PMIs held", counts.pmis_held},
          {"PMIs masked", counts.pmis_masked}};
}

std::vector<std::pair<const char*, std::uint64_t>> exit_figures(const kvm::VcpuResult& vcpu) {
  std::vector<std::pair<const char*, std::uint64_t>> list;
  list.reserve(kvm::exit_kinds);
  for (std::size_t n = 0; n < kvm::exit_kinds; ++n) {
    list.emplace_back(kvm::name_of(static_cast<kvm::Exit>(n)), vcpu.exits[n]);
  }
  return list;
}

std::vector<std::pair<const char*, std::uint64_t>> host_figures(const kvm::VcpuResult& vcpu) {
  const HostCallCounts& calls = vcpu.host_calls;
  return {{"open", calls.open},      {"close", calls.close},     {"set period", calls.set_period},
          {"enable", calls.enable},  {"disable", calls.disable}, {"read", calls.read},
          {"free read", calls.peek}, {"signal", calls.signals},  {"system calls", vcpu.host_system_calls}};
}

std::string list(const std::vector<std::pair<const char*, std::uint64_t>>& items) {
  std::string text;
  for (const auto& [name, count] : items) {
    if (count != 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  }
  return text.empty() ? "none" : text;
}

std::string health_text(const kvm::VcpuResult& vcpu) {
  std::string text;
  for (const auto& [counter, why] : vcpu.unhealthy) {
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", counter_name(counter), describe(why));
  }
  return text.empty() ? "all counters counted" : text;
}

const char* name_of(kvm::HostKind host) { return host == kvm::HostKind::clock ? "clock" : "linux_perf"; }

std::string to_text(const kvm::MachineResult& result, kvm::HostKind host, std::size_t sites, double seconds) {
  std::string text;
  const auto row = [&](const std::string& name, const std::string& value) {
    fmt::format_to(std::back_inserter(text), "{:<14}{}\n", name, value);
  };
  row("result", ending(result));
  row("RDPMC sites", fmt::format("{} rewritten", sites));
  for (std::size_t n = 0; n < result.vcpus.size(); ++n) {
    const kvm::VcpuResult& vcpu = result.vcpus[n];
    if (result.vcpus.size() > 1) row(fmt::format("vCPU {}", n), "");
    if (!vcpu.crash.empty()) row("crash", vcpu.crash);
    row("exits", list(exit_figures(vcpu)));
    row("PMU", list(pmu_figures(vcpu.pmu)));
    row("host calls", list(host_figures(vcpu)));
    row("health", health_text(vcpu));
  }
  row("wall", fmt::format("{:.2f} s on host {}", seconds, name_of(host)));
  return text;
}

std::string to_json(const KvmRun& run, const kvm::MachineResult& result, kvm::HostKind host, double seconds) {
  nlohmann::ordered_json json;
  json["image"] = run.image_name;
  json["append"] = run.append;
  json["machine"] = "kvm";
  json["host"] = name_of(host);
  json["policy"] = lab::to_text(run.policy);
  json["ending"] = ending(result);
  json["exit_value"] = result.end.value;
  json["vcpus"] = nlohmann::ordered_json::array();
  for (const kvm::VcpuResult& vcpu : result.vcpus) {
    nlohmann::ordered_json one;
    for (const auto& [name, count] : exit_figures(vcpu)) one["exits"][name] = count;
    for (const auto& [name, count] : pmu_figures(vcpu.pmu)) one["pmu"][name] = count;
    for (const auto& [name, count] : host_figures(vcpu)) one["host_calls"][name] = count;
    one["health"] = nlohmann::ordered_json::object();
    for (const auto& [counter, why] : vcpu.unhealthy) one["health"][counter_name(counter)] = describe(why);
    json["vcpus"].push_back(std::move(one));
  }
  json["wall"]["seconds"] = seconds;
  constexpr int indent = 2;
  return json.dump(indent, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

void add_kvm_options(CLI::App& command, KvmOptions& options) {
  const char* group = "Options of --machine kvm";
  command.add_option("--host", options.host, "What counts: perf (hardware events), clock (cycles alone), auto")
      ->check(CLI::IsMember({"perf", "clock", "auto"}))
      ->capture_default_str()
      ->group(group);
  command
      .add_flag("--accept-missing-events", options.accept_missing_events,
                "Go on where an AMD guest cannot be told that the host counts cycles alone")
      ->group(group);
  command.add_flag("--no-patch-rdpmc", options.no_patch_rdpmc, "Leave the guest's RDPMC instructions alone")
      ->group(group);
  command.add_flag("--verbose", options.verbose, "List the RDPMC instructions that were rewritten")->group(group);
  constexpr std::uint32_t most_cpus = 64;
  command.add_option("--cpus", options.cpus, "vCPUs, each with its own PMU")
      ->check(CLI::Range(1U, most_cpus))
      ->capture_default_str()
      ->group(group);
  command.add_option("--initrd", options.initrd, "Initial RAM disk of a Linux kernel")->group(group);
}

KvmOutcome run_on_kvm(const KvmRun& run) {
  if (const auto usable = kvm::open_kvm(); !usable) throw UseError{usable.error()};
  const bool is_linux = kvm::is_linux(run.image);
  const kvm::HostKind host = choose_host(run);
  if (host == kvm::HostKind::clock && run.profile.present() && !run.profile.is_intel() &&
      !run.options.accept_missing_events) {
    throw UseError{
        "the host clock counts cycles alone, and AMD's CPUID cannot tell that to a guest: add --accept-missing-events"};
  }
  kvm::MachineOptions options;
  options.profile = run.profile;
  options.policy = run.policy;
  options.host = host;
  options.patch_rdpmc = run.options.no_patch_rdpmc ? kvm::PatchRdpmc::no : kvm::PatchRdpmc::yes;
  options.memory_mib = run.memory_mib != 0 ? run.memory_mib : is_linux ? linux_memory_mib : image_memory_mib;
  options.cpus = run.options.cpus;
  options.command_line = run.append;
  options.initrd = run.initrd;
  options.filter = run.filter;
  options.stop = &run.stop;
  options.output = run.output;
  options.idle = [] { std::fflush(stdout); };
  if (is_linux) options.input = STDIN_FILENO;

  kvm::Machine machine{options};
  if (const std::string error = machine.load(run.image); !error.empty()) {
    throw UseError{fmt::format("{}: {}", run.image_name, error)};
  }
  for (const std::string& warning : machine.warnings()) fmt::print(stderr, "vpmu: {}\n", warning);
  if (run.options.verbose) {
    for (const kvm::RdpmcSite& site : machine.sites()) fmt::print(stderr, "RDPMC rewritten at {:#x}\n", site.rip);
  }
  const auto began = std::chrono::steady_clock::now();
  kvm::MachineResult result;
  {
    const RawTerminal terminal{is_linux};
    if (terminal.active()) {
      fmt::print(stderr, "Ctrl-] ends the guest\r\n");
      machine.set_escape(escape_key);
    }
    result = machine.run();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  std::fflush(stdout);
  return {.kind = kind_of(result),
          .text = to_text(result, host, machine.sites().size(), took.count()),
          .json = to_json(run, result, host, took.count())};
}

}  // namespace vpmu::cli
