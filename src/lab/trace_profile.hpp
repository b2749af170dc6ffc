// The PMU that a recorded guest saw, from the CPUID answers in its trace.
#pragma once

#include <cstdint>
#include <optional>

#include "lab/trace_event.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

/// Gathers kvm_cpuid events until they say what PMU the guest has.
class TraceProfile {
 public:
  /// True if profile() may have changed.
  bool see(const KvmCpuid& cpuid);
  /// IA32_PERF_CAPABILITIES as the guest read it. True if profile() may have changed.
  bool see_capabilities(std::uint64_t value);
  /// The profile that fits what was seen; nothing if that says nothing of a PMU, or of one that vpmu cannot be.
  [[nodiscard]] std::optional<Profile> profile() const;

 private:
  [[nodiscard]] Profile intel(const KvmCpuid& perfmon) const;
  [[nodiscard]] Profile amd() const;

  std::optional<Vendor> vendor_;
  std::optional<KvmCpuid> features_;      // leaf 1
  std::optional<KvmCpuid> extended_;      // leaf 7
  std::optional<KvmCpuid> perfmon_;       // leaf 0AH
  std::optional<KvmCpuid> amd_features_;  // leaf 80000001H
  std::optional<KvmCpuid> amd_perfmon_;   // leaf 80000022H
  std::optional<std::uint64_t> capabilities_;
};

}  // namespace vpmu::lab
