// Accesses that may fault, and then say so.
#pragma once

#include <cstdint>

#include "vpmu/msr.hpp"

namespace vpmu::guest {

/// A value, or that reading it faulted.
struct ProbedValue {
  bool faulted = false;
  std::uint64_t value = 0;
};

[[nodiscard]] ProbedValue try_read_msr(Msr msr);
/// True if it was taken.
[[nodiscard]] bool try_write_msr(Msr msr, std::uint64_t value);
[[nodiscard]] ProbedValue try_read_pmc(std::uint32_t ecx);

}  // namespace vpmu::guest
