#include "runtime/register_rules.hpp"

#include "runtime/processor.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::guest {
namespace {

using Access = RegisterRule::Access;
using Content = RegisterRule::Content;

constexpr RegisterRule absent{.access = Access::absent};

/// The number of a register in a row, or -1.
constexpr std::int32_t number_in(const MsrArray& row, Msr msr) {
  const std::uint32_t offset = index_of(msr) - row.first;
  return offset % row.stride == 0 && offset / row.stride < row.count ? static_cast<std::int32_t>(offset / row.stride)
                                                                     : -1;
}

constexpr std::uint64_t low_bits(std::uint32_t count) { return (1ULL << count) - 1; }

/// SDM volume 3, figure "Layout of IA32_PERFEVTSELx MSRs". AnyThread: v3 and v4, where
/// CPUID.0AH:EDX[15] does not deprecate it.
RegisterRule intel_selector(const Profile& profile, std::int32_t number) {
  std::uint64_t legal = low_bits(32) & ~std::uint64_t{evtsel::any_thread};
  if (profile.tsx) legal |= evtsel::in_tx | (number == 2 ? evtsel::in_tx_cp : 0);
  if (profile.pebs_baseline()) legal |= evtsel::adaptive_record;
  constexpr std::uint32_t deprecated = 1U << 15;
  const bool has_any_thread = (profile.version == 3 || profile.version == 4) && (cpuid(0xA).edx & deprecated) == 0;
  if (has_any_thread) legal |= evtsel::any_thread;
  return {.access = Access::plain, .legal = legal, .kept = legal};
}

std::uint64_t fixed_ctrl_bits(const Profile& profile) {
  std::uint64_t bits = 0;
  for (std::uint32_t n = 0; n < max_fixed_counters; ++n) {
    if ((profile.fixed_mask >> n & 1) != 0) bits |= 0b1011ULL << (4 * n);
  }
  return bits;
}

RegisterRule intel_global(const Profile& profile, Msr msr) {
  if (profile.version < 2) return absent;
  const bool v4 = profile.version >= 4;
  const std::uint64_t counters = profile.counters();
  const std::uint64_t clearable =
      counters | global_status::buffer_overflow | global_status::condition_changed | (v4 ? global_status::v4 : 0);
  switch (msr) {
    case Msr::ia32_fixed_ctr_ctrl:
      return {.access = Access::plain, .legal = fixed_ctrl_bits(profile)};
    case Msr::ia32_perf_global_status:
      return {.access = Access::read_only};
    case Msr::ia32_perf_global_ctrl:
      return {.access = Access::plain, .legal = counters};
    case Msr::ia32_perf_global_ovf_ctrl:
      return {.access = Access::reads_zero, .legal = clearable};
    case Msr::ia32_perf_global_status_set:
      // Whether a processor without uncore overflow takes its bit, the manual does not say.
      return v4 ? RegisterRule{.access = Access::reads_zero,
                               .legal = clearable & ~global_status::condition_changed,
                               .open = global_status::uncore}
                : absent;
    case Msr::ia32_perf_global_inuse:
      return v4 ? RegisterRule{.access = Access::read_only} : absent;
    default:
      return {};
  }
}

RegisterRule intel_rule(const Profile& profile, Msr msr) {
  const std::uint64_t gp_mask = low_bits(profile.gp_width);
  if (const std::int32_t n = number_in(ia32_pmc, msr); n >= 0) {
    return n < profile.gp_counters
               ? RegisterRule{.access = Access::plain, .content = Content::legacy_counter, .kept = gp_mask}
               : absent;
  }
  if (const std::int32_t n = number_in(ia32_perfevtsel, msr); n >= 0) {
    return n < profile.gp_counters ? intel_selector(profile, n) : absent;
  }
  if (const std::int32_t n = number_in(ia32_a_pmc, msr); n >= 0) {
    return n < profile.gp_counters && profile.full_width_writes()
               ? RegisterRule{.access = Access::plain, .content = Content::counter, .legal = gp_mask, .kept = gp_mask}
               : absent;
  }
  if (const std::int32_t n = number_in(ia32_fixed_ctr, msr); n >= 0) {
    return (profile.fixed_mask >> n & 1) != 0 ? RegisterRule{.access = Access::plain,
                                                             .content = Content::counter,
                                                             .kept = low_bits(profile.fixed_width)}
                                              : absent;
  }
  switch (msr) {
    case Msr::ia32_perf_capabilities:
      return profile.pdcm ? RegisterRule{.access = Access::read_only} : absent;
    case Msr::ia32_pebs_enable:
      return profile.pebs()
                 ? RegisterRule{.access = Access::plain,
                                .legal =
                                    low_bits(profile.gp_counters) |
                                    (profile.pebs_baseline() ? std::uint64_t{profile.fixed_mask} << fixed_shift : 0)}
                 : absent;
    case Msr::msr_pebs_data_cfg:
      return profile.pebs_baseline() ? RegisterRule{.access = Access::plain, .open = ~std::uint64_t{0}} : absent;
    case Msr::ia32_ds_area:
      return profile.ds ? RegisterRule{.access = Access::plain, .content = Content::address} : absent;
    default:
      return intel_global(profile, msr);
  }
}

/// APM volume 2, section 13.2.1: reserved bits are dropped, never #GP.
RegisterRule amd_selector(const Profile& profile) {
  constexpr std::uint64_t bits = low_bits(36) & ~(1ULL << 21 | 1ULL << 19);
  return {.access = Access::plain,
          .kept = bits | (profile.nested_virtualization ? evtsel::guest_only | evtsel::host_only : 0)};
}

RegisterRule amd_rule(const Profile& profile, Msr msr) {
  const RegisterRule counter{.access = Access::plain, .content = Content::counter, .kept = low_bits(48)};
  const std::int32_t k7_selector = number_in(amd_k7_perf_ctl, msr);
  const std::int32_t k7_counter = number_in(amd_k7_perf_ctr, msr);
  if (k7_selector >= 0 || k7_counter >= 0) {
    if (!profile.present()) return {.access = Access::dead};
    return k7_selector >= 0 ? amd_selector(profile) : counter;
  }
  const std::int32_t core_selector = number_in(amd_core_perf_ctl, msr);
  const std::int32_t core_counter = number_in(amd_core_perf_ctr, msr);
  if (core_selector >= 0 || core_counter >= 0) {
    const std::int32_t n = core_selector >= 0 ? core_selector : core_counter;
    if (!profile.core_ext || n >= profile.gp_counters) return absent;
    return core_selector >= 0 ? amd_selector(profile) : counter;
  }
  if (profile.version < 2) return absent;
  switch (msr) {
    case Msr::amd_perf_cntr_global_status:
      return {.access = Access::ignores};
    case Msr::amd_perf_cntr_global_ctl:
      return {.access = Access::plain, .kept = profile.counters()};
    case Msr::amd_perf_cntr_global_status_clr:
    case Msr::amd_perf_cntr_global_status_set:
      return {.access = Access::reads_zero};
    default:
      return {};
  }
}

bool is_amd_register(Msr msr) { return index_of(msr) >= index_of(Msr::amd_perf_cntr_global_status); }

bool is_pmu_register(Msr msr) {
  for (const MsrArray& row : pmu_registers) {
    if (number_in(row, msr) >= 0) return true;
  }
  return false;
}

}  // namespace

bool RegisterRule::takes(std::uint64_t value) const {
  if (access == Access::absent || access == Access::read_only) return false;
  if (content == Content::address) {
    constexpr std::uint32_t unused = 16;
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused) == value;
  }
  return (value & ~legal) == 0;
}

std::uint64_t RegisterRule::stored(std::uint64_t value) const {
  // SDM volume 3, "Full-Width Writes to Performance Counter Registers": the legacy address takes 32 bits and extends
  // their sign.
  if (content == Content::legacy_counter) {
    value = static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<std::int32_t>(value)));
  }
  return value & kept;
}

RegisterRule register_rule(const Profile& profile, Msr msr) {
  if (!is_pmu_register(msr) || is_other_register(msr)) return {};
  if (is_amd_register(msr) == profile.is_intel()) return absent;
  return profile.is_intel() ? intel_rule(profile, msr) : amd_rule(profile, msr);
}

bool rdpmc_takes(const Profile& profile, std::uint32_t ecx) {
  constexpr std::uint32_t fixed_type = 0x4000;
  if (profile.is_intel() && ecx >> 16 == fixed_type) {
    const std::uint32_t number = ecx & 0xFFFF;
    return number < max_fixed_counters && (profile.fixed_mask >> number & 1) != 0;
  }
  return ecx < profile.gp_counters;
}

}  // namespace vpmu::guest
