#include "runtime/checks.hpp"

#include <array>

#include "runtime/processor.hpp"

namespace vpmu::guest {
namespace {

constexpr std::size_t kind_count = 4;
constexpr std::array<const char*, kind_count> kind_names{"counts", "registers", "faults", "interrupts"};
constexpr std::uint64_t printed_failures = 20;  // of each group

struct Tally {
  std::uint64_t passed = 0;
  std::uint64_t failed = 0;
  std::uint64_t unavailable = 0;
};
constinit Tally group{};
constinit Tally total{};
constinit std::array<std::uint64_t, kind_count> by_kind{};
constinit Text group_name{};

void end_group() {
  if (group_name.length == 0) return;
  print("group {}: {} passed, {} failed, {} unavailable\n", group_name, group.passed, group.failed, group.unavailable);
  total.passed += group.passed;
  total.failed += group.failed;
  total.unavailable += group.unavailable;
  group = {};
}

bool record(Kind kind, bool holds) {
  ++by_kind[static_cast<std::size_t>(kind)];
  ++(holds ? group.passed : group.failed);
  return holds;
}

bool print_failure(Kind kind, Text what, std::uint64_t detail) {
  if (group.failed > printed_failures) return false;
  print("FAIL {} [{}] {} ({x})", group_name, kind_names[static_cast<std::size_t>(kind)], what, detail);
  return true;
}

}  // namespace

void begin_group(Text name) {
  end_group();
  group_name = name;
}

bool check(Kind kind, bool holds, Text what, std::uint64_t detail) {
  if (!record(kind, holds) && print_failure(kind, what, detail)) print("\n");
  return holds;
}

bool check_equal(Kind kind, std::uint64_t got, std::uint64_t expected, Text what, std::uint64_t detail) {
  if (!record(kind, got == expected) && print_failure(kind, what, detail)) {
    print(": expected {x} ({}), got {x} ({})\n", expected, expected, got, got);
  }
  return got == expected;
}

bool check_between(Kind kind, std::uint64_t got, std::uint64_t low, std::uint64_t high, Text what,
                   std::uint64_t detail) {
  const bool holds = got >= low && got <= high;
  if (!record(kind, holds) && print_failure(kind, what, detail)) {
    print(": expected {} to {}, got {}\n", low, high, got);
  }
  return holds;
}

void unavailable(Text what) {
  ++group.unavailable;
  print("unavailable {}: {}\n", group_name, what);
}

void finish() {
  end_group();
  print("kinds:");
  for (std::size_t i = 0; i < kind_count; ++i) print("{} {} {}", i == 0 ? "" : ",", kind_names[i], by_kind[i]);
  print("\n{}: {} checks passed, {} failed, {} unavailable\n", guest_name, total.passed, total.failed,
        total.unavailable);
  exit_machine(total.failed == 0 ? 0 : 1);
}

}  // namespace vpmu::guest
