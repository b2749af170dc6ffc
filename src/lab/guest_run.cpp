#include "lab/guest_run.hpp"

#include <fmt/format.h>

#include "lab/guest_port.hpp"
#include "vpmu/mediated_backing.hpp"

namespace vpmu::lab {
namespace {

constexpr std::uint64_t mega = 1'000'000;

soft::MachineConfig machine_config(const GuestOptions& options) {
  soft::MachineConfig config;
  config.memory_mib = options.memory_mib;
  config.amd = !options.profile.is_intel();
  config.physical = options.pmu == GuestOptions::Pmu::physical;
  const auto tsc_mhz = static_cast<std::uint64_t>(options.platform.tsc_mhz.value);
  const auto core_mhz = static_cast<std::uint64_t>(options.platform.core_mhz.value);
  config.tsc_hz = tsc_mhz * mega;
  config.core_ratio = static_cast<std::uint32_t>(core_mhz);
  config.tsc_ratio = static_cast<std::uint32_t>(tsc_mhz);
  config.exit_ticks = static_cast<std::uint64_t>(options.platform.exit_cycles.value) * tsc_mhz / core_mhz;
  config.instruction_limit = options.max_instructions;
  return config;
}

std::string register_line(const soft::CpuState& cpu, std::initializer_list<std::pair<const char*, soft::Gpr>> list) {
  std::string line;
  for (const auto& [name, index] : list)
    line += fmt::format("{}{} {:016x}", line.empty() ? "" : "  ", name, cpu.gpr[index]);
  return line;
}

std::vector<std::string> post_mortem(soft::Machine& machine) {
  const soft::CpuState& cpu = machine.cpu().state();
  std::vector<std::string> lines{
      fmt::format("rip {:016x}  cpl {}", cpu.rip, cpu.cpl),
      register_line(cpu, {{"rax", soft::rax}, {"rbx", soft::rbx}, {"rcx", soft::rcx}, {"rdx", soft::rdx}}),
      register_line(cpu, {{"rsi", soft::rsi}, {"rdi", soft::rdi}, {"rbp", soft::rbp}, {"rsp", soft::rsp}}),
      register_line(cpu, {{"r8 ", soft::r8}, {"r9 ", soft::r9}, {"r10", soft::r10}, {"r11", soft::r11}}),
      register_line(cpu, {{"r12", soft::r12}, {"r13", soft::r13}, {"r14", soft::r14}, {"r15", soft::r15}}),
  };
  std::string exits = "last exits, newest first:";
  for (const soft::Exit& exit : machine.last_exits()) {
    exits += fmt::format(" {}", exit_name(exit.reason));
    if (exit.index != 0) exits += fmt::format(" {:#x}", exit.index);
    exits += ',';
  }
  exits.back() = exits.back() == ',' ? '.' : exits.back();
  lines.push_back(exits);
  return lines;
}

}  // namespace

const char* exit_name(soft::ExitReason reason) {
  switch (reason) {
    case soft::ExitReason::cpuid:
      return "cpuid";
    case soft::ExitReason::port:
      return "port";
    case soft::ExitReason::rdmsr:
      return "rdmsr";
    case soft::ExitReason::wrmsr:
      return "wrmsr";
    case soft::ExitReason::rdpmc:
      return "rdpmc";
    case soft::ExitReason::hlt:
      return "hlt";
    case soft::ExitReason::mmio:
      return "mmio";
    case soft::ExitReason::overflow:
      return "overflow";
    case soft::ExitReason::deadline:
      return "timer";
    case soft::ExitReason::instruction_limit:
      return "limit";
    case soft::ExitReason::shutdown:
      return "shutdown";
    case soft::ExitReason::stop:
      return "stop";
    case soft::ExitReason::stuck:
      return "stuck";
  }
  return "?";
}

const char* why_not_mediated_run(const Profile& profile) { return why_not_mediated(model::svm_host(profile), profile); }

struct GuestRun::Parts {
  explicit Parts(const GuestOptions& given) : options{given} {
    port = options.pmu == GuestOptions::Pmu::physical ? make_physical_port(options) : make_virtual_port(options);
    machine = std::make_unique<soft::Machine>(machine_config(options), *port, *port, options.output);
    port->attach(*machine);
    machine->set_stop_flag(options.stop);
  }

  GuestOptions options;
  std::unique_ptr<GuestPort> port;
  std::unique_ptr<soft::Machine> machine;
};

GuestRun::GuestRun(const GuestOptions& options) : parts_{std::make_unique<Parts>(options)} {}
GuestRun::~GuestRun() = default;

std::string GuestRun::load(std::span<const std::uint8_t> image) {
  return parts_->machine->load(image, parts_->options.append).error;
}

GuestResult GuestRun::run() {
  soft::Machine& machine = *parts_->machine;
  GuestResult result;
  result.stopped = machine.run();
  result.exit_value = machine.exit_value().value_or(0);
  parts_->port->report(result);
  const soft::CpuTotals& totals = machine.cpu().totals();
  result.instructions = totals.instructions + result.emulated_instructions;
  result.branches = totals.branches;
  result.cycles = totals.cycles;
  result.tsc = machine.cpu().tsc();
  result.tsc_hz = static_cast<std::uint64_t>(parts_->options.platform.tsc_mhz.value) * mega;
  result.exits = machine.exits();
  result.pmu_accesses = machine.pmu_accesses();
  result.pmis = machine.pmis();
  result.unknown = machine.cpu().unknown();
  if (result.stopped == soft::StopReason::shutdown || result.stopped == soft::StopReason::halted ||
      result.stopped == soft::StopReason::stuck) {
    result.post_mortem = post_mortem(machine);
  }
  return result;
}

}  // namespace vpmu::lab
