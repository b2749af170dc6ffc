// The groups of checks of this guest, in the order in which they run, and the sequences of sequences.S.
#pragma once

#include <cstdint>

namespace vpmu::guest {

void check_reset_state();  // before anything touched the PMU
void check_presence();
void check_register_bits();
void check_exact_counts();
void check_gates();
void check_emulated();
void check_running_counters();
void check_user_access();
void check_faulting_instructions();
void check_overflow();
void check_freeze();
void check_modelled_events();

extern "C" {
/// WRMSR, then RDMSR of the same register as the next instruction.
std::uint64_t write_then_read(std::uint32_t msr, std::uint64_t value);

/// RDMSR, RDPMC, RDPMC, RDMSR of a counter: what they read, and how many instructions apart they are.
void read_four_times(std::uint32_t msr, std::uint32_t pmc, std::uint64_t* values);
inline constexpr std::uint64_t gaps_of_four_reads[3] = {4, 3, 4};

/// A WRMSR of a counter as the first instruction, then two reads of `status`, of which the first is the 22nd.
void watch_22nd_instruction(std::uint32_t msr, std::uint64_t value, std::uint32_t status, std::uint64_t* values);

/// The instruction itself, in ring 3; all ones if it faults.
std::uint64_t user_rdpmc(std::uint64_t index);
std::uint64_t user_rdmsr(std::uint64_t index);
std::uint64_t user_cli(std::uint64_t unused);
std::uint64_t user_in(std::uint64_t port);
std::uint64_t user_kernel_read(std::uint64_t unused);
}
inline constexpr std::uint64_t user_faulted = ~std::uint64_t{0};

}  // namespace vpmu::guest
