// Checks, counted by kind and printed by group.
#pragma once

#include <cstdint>

#include "runtime/print.hpp"

namespace vpmu::guest {

enum class Kind : std::uint8_t { counts, registers, faults, interrupts };

/// All checks until the next call belong to this group.
void begin_group(Text name);

/// True if it holds; else a line says what failed. `detail` is a number that tells like checks apart.
bool check(Kind kind, bool holds, Text what, std::uint64_t detail = 0);
bool check_equal(Kind kind, std::uint64_t got, std::uint64_t expected, Text what, std::uint64_t detail = 0);
/// Both ends included.
bool check_between(Kind kind, std::uint64_t got, std::uint64_t low, std::uint64_t high, Text what,
                   std::uint64_t detail = 0);

/// A check that this machine cannot serve, by its own word.
void unavailable(Text what);

/// Prints the last group, the kinds and the summary, and ends the guest: 0 if no check failed, else 1.
[[noreturn]] void finish();

/// What each guest defines.
extern const char guest_name[];
void run_guest();

}  // namespace vpmu::guest
