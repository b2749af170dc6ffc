// Which of a trace's MSR accesses are a PMU's, and how often each register was accessed.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "arch/registers.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

/// The PMU register of this index, for a guest with this profile. Rows of counters are longer than those of any
/// processor so far, and their ends hold other MSRs (SDM volume 4): FSB_FREQ 0CDH, PLATFORM_INFO 0CEH, FLEX_RATIO 194H.
/// A guest without such a counter means these.
arch::Register pmu_register(const Profile& profile, std::uint32_t index);

/// A register that says what a PMU is, or that it shares with others. An access to it does not use the PMU.
bool is_shared_or_constant(arch::Register reg);

/// Of a write to a register that a PMU shares, the bits that the hypervisor hands to it.
std::uint64_t pmu_part(arch::Register reg, std::uint64_t value, const Profile& profile);

/// Accesses to one PMU register, or RDPMC of one counter.
struct RegisterUse {
  std::string name;
  std::uint64_t reads = 0;
  std::uint64_t writes = 0;
  std::uint64_t faulted_there = 0;  // #GP in the trace, served here
  std::uint64_t faulted_here = 0;   // the other way round

  [[nodiscard]] std::uint64_t total() const { return reads + writes; }
};

class RegisterUses {
 public:
  RegisterUse& of(std::uint32_t index);
  RegisterUse& of_rdpmc(CounterId counter);
  /// The most frequent first, then by name.
  [[nodiscard]] std::vector<RegisterUse> sorted() const;

 private:
  template <class Name>
  RegisterUse& at(std::uint64_t key, Name&& name);

  std::vector<RegisterUse> uses_;
  std::unordered_map<std::uint64_t, std::size_t> places_;
};

}  // namespace vpmu::lab
