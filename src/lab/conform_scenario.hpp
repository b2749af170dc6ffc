// Conformance scenarios, as tests/vectors/FORMAT.md describes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host/model/hardware_port.hpp"
#include "lab/conform_host.hpp"
#include "vpmu/profile.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {

/// What an operation answers.
struct Answer {
  enum class Kind : std::uint8_t {
    none,   // the operation has no answer
    value,  // of a register or counter
    count,  // of interrupts
    any,    // succeeds, with a value that does not matter
    ok,
    gp,   // #GP
    err,  // host access refused
    einval,
    e2big,
    as_recorded,  // of the hardware
    differs,      // may differ
  };
  Kind kind = Kind::none;
  std::uint64_t value = 0;  // value, count

  friend bool operator==(const Answer&, const Answer&) = default;
  /// Whether `got` is what this one expects.
  [[nodiscard]] bool allows(const Answer& got) const {
    return *this == got || (kind == Kind::any && got.kind == Kind::value) ||
           (kind == Kind::differs && got.kind == Kind::as_recorded);
  }
};

std::string describe(const Answer& answer);

/// The names of the operations, in the order of this enumeration, are in conform_scenario.cpp.
enum class Verb : std::uint8_t {
  wrmsr,
  rdmsr,
  host_wrmsr,
  host_rdmsr,
  rdpmc,
  mode,
  run,
  emulated,
  entry,
  pmi,
  filter,
  sched,
  refresh,
  vm_enable_pmu,
  perf_fail,
  hw_preset,
  hw_trace,
  hw_view,
};

struct Operation {
  Verb verb = Verb::entry;
  std::uint32_t index = 0;  // MSR, or RDPMC's ECX; filter, refresh, hw_trace, hw_view: place in Scenario's list
  std::uint64_t value = 0;  // to write; vm_enable_pmu, perf_fail: the argument; hw_view: 1 directly after an entry
  Batch batch;              // run, emulated
  PmcAccess access;         // mode
  Answer answer;            // expected
};

/// One line without the answer, such as "wrmsr 0x186 0x4200c0".
std::string describe(const Operation& operation);

struct Filter {
  std::uint32_t action = 0;
  std::uint32_t flags = 0;
  std::uint32_t fixed_bitmap = 0;
  std::vector<std::uint64_t> events;
};

/// What went to the hardware, and what would have caused a VM exit, as a mediated scenario records them.
struct HardwareView {
  std::vector<std::uint64_t> selectors;
  std::uint64_t fixed_ctrl = 0;
  bool intercept_global = true;
  bool intercept_rdpmc = true;
};
using HardwareTrace = std::vector<model::HardwareAccess>;

/// Answers that take the place of the recorded ones, by operation.
using Replacements = std::vector<std::pair<std::size_t, Answer>>;

struct Scenario {
  std::string name;
  std::vector<std::string> tags;
  bool mediated = false;
  Profile host;  // mediated scenarios: the physical PMU
  Profile profile;
  std::vector<Operation> operations;
  std::vector<Filter> filters;
  std::vector<Profile> profiles;
  std::vector<HardwareTrace> traces;
  std::vector<HardwareView> views;
  Replacements exact_rearm;
  Replacements manual;

  [[nodiscard]] bool has_tag(std::string_view tag) const;
};

/// Emulated instructions and branches of one scenario, all operations together.
inline constexpr std::uint64_t max_emulated = std::uint64_t{1} << 20;

/// Reads one line of a vector file, or says in one line what is wrong with it.
std::expected<Scenario, std::string> parse_scenario(std::string_view line);

}  // namespace vpmu::lab
