#include "lab/post_mortem.hpp"

#include <fmt/format.h>

#include <array>
#include <initializer_list>
#include <utility>

namespace vpmu::lab {
namespace {

std::string register_line(std::initializer_list<std::pair<const char*, std::uint64_t>> list) {
  std::string line;
  for (const auto& [name, value] : list) line += fmt::format("{}{} {:016x}", line.empty() ? "" : "  ", name, value);
  return line;
}

/// Mnemonics of the exceptions (SDM Vol. 3A table 6-1).
std::string vector_name(soft::u8 vector) {
  constexpr std::array names{"#DE", "#DB", "NMI", "#BP", "#OF", "#BR", "#UD", "#NM", "#DF", "",
                             "#TS", "#NP", "#SS", "#GP", "#PF", "",    "#MF", "#AC", "#MC", "#XM"};
  return vector < names.size() && *names[vector] != 0 ? names[vector] : "an interrupt";
}

std::string exits_line(const soft::Machine& machine) {
  std::string line;
  for (const soft::Exit& exit : machine.last_exits()) {
    line += fmt::format("{} {}", line.empty() ? "last exits, newest first:" : ",", exit_name(exit.reason));
    if (exit.index != 0) line += fmt::format(" {:#x}", exit.index);
  }
  return line;
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

std::vector<std::string> post_mortem(soft::Machine& machine) {
  using enum soft::Gpr;
  const soft::CpuState& cpu = machine.cpu().state();
  const auto& gpr = cpu.gpr;
  std::vector<std::string> lines;
  if (const auto vector = machine.cpu().last_vector()) {
    lines.push_back(fmt::format("last exception or interrupt: vector {} ({})", *vector, vector_name(*vector)));
  }
  lines.push_back(fmt::format("rip {:016x}  cpl {}", cpu.rip, cpu.cpl));
  lines.push_back(register_line({{"rax", gpr[rax]}, {"rbx", gpr[rbx]}, {"rcx", gpr[rcx]}, {"rdx", gpr[rdx]}}));
  lines.push_back(register_line({{"rsi", gpr[rsi]}, {"rdi", gpr[rdi]}, {"rbp", gpr[rbp]}, {"rsp", gpr[rsp]}}));
  lines.push_back(register_line({{"r8 ", gpr[r8]}, {"r9 ", gpr[r9]}, {"r10", gpr[r10]}, {"r11", gpr[r11]}}));
  lines.push_back(register_line({{"r12", gpr[r12]}, {"r13", gpr[r13]}, {"r14", gpr[r14]}, {"r15", gpr[r15]}}));
  lines.push_back(register_line({{"cr0", cpu.cr0}, {"cr2", cpu.cr2}, {"cr3", cpu.cr3}, {"cr4", cpu.cr4}}));
  lines.push_back(exits_line(machine));
  return lines;
}

}  // namespace vpmu::lab
