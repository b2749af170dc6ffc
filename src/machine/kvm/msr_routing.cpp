// Which MSRs leave KVM, and how it is told.
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include <array>
#include <bit>
#include <cerrno>

#include "machine/kvm/rdpmc_indices.hpp"
#include "vpmu/kvm.hpp"
#include "vpmu/msr.hpp"

namespace vpmu::kvm {
namespace {

/// As many of a row as KVM's filter has room for beside its neighbours: 0xC9 and up are no counters on Intel.
constexpr std::uint32_t counters = 8;
constexpr std::uint32_t amd_counters = 6;

constexpr MsrRange one(Msr msr) { return {index_of(msr), 1}; }
constexpr MsrRange row(const MsrArray& msrs, std::uint32_t count) { return {msrs.first, count * msrs.stride}; }

constexpr std::array common{
    patched_gp,
    patched_fixed,
    row(ia32_pmc, counters),
    row(ia32_perfevtsel, counters),
    row(ia32_fixed_ctr, ia32_fixed_ctr.count),
    one(Msr::ia32_perf_capabilities),
    MsrRange{index_of(Msr::ia32_fixed_ctr_ctrl), 6},  // to IA32_PERF_GLOBAL_INUSE
    MsrRange{index_of(Msr::ia32_pebs_enable), 2},     // and MSR_PEBS_DATA_CFG
    row(ia32_a_pmc, counters),
    one(Msr::ia32_ds_area),
    MsrRange{amd_k7_perf_ctl.first, 2 * amd_k7_perf_ctl.count},
    row(amd_core_perf_ctl, amd_counters),
    MsrRange{index_of(Msr::amd_perf_cntr_global_status), 4},
    // AMD has these too, for other things: there KVM keeps them.
    one(Msr::ia32_misc_enable),
    one(Msr::ia32_debugctl),
};
constexpr std::size_t intel_only = 2;
static_assert(common.size() <= KVM_MSR_FILTER_MAX_RANGES);

int answer(int result) { return result < 0 ? errno : 0; }

}  // namespace

std::span<const MsrRange> msr_ranges(Vendor vendor) {
  return std::span{common}.first(common.size() - (vendor == Vendor::intel ? 0 : intel_only));
}

int disable_kvm_pmu(int vm) {
  kvm_enable_cap capability{};
  capability.cap = KVM_CAP_PMU_CAPABILITY;
  capability.args[0] = KVM_PMU_CAP_DISABLE;
  return answer(::ioctl(vm, KVM_ENABLE_CAP, &capability));
}

int route_msrs(int vm, Vendor vendor) {
  kvm_enable_cap capability{};
  capability.cap = KVM_CAP_X86_USER_SPACE_MSR;
  capability.args[0] = KVM_MSR_EXIT_REASON_FILTER;
  if (const int error = answer(::ioctl(vm, KVM_ENABLE_CAP, &capability)); error != 0) return error;
  // A bit of 0 denies, and what is denied exits. KVM copies the bitmap: the longest range has 16 MSRs.
  std::array<std::uint8_t, 2> denied{};
  kvm_msr_filter filter{};
  filter.flags = KVM_MSR_FILTER_DEFAULT_ALLOW;
  std::size_t n = 0;
  for (const MsrRange& range : msr_ranges(vendor)) {
    kvm_msr_filter_range& to = filter.ranges[n++];
    to.flags = KVM_MSR_FILTER_READ |
               (range.access == MsrRange::Access::read ? 0U : static_cast<unsigned>(KVM_MSR_FILTER_WRITE));
    to.nmsrs = range.count;
    to.base = range.first;
    to.bitmap = denied.data();
  }
  return answer(::ioctl(vm, KVM_X86_SET_MSR_FILTER, &filter));
}

}  // namespace vpmu::kvm
