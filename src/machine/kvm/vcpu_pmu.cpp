#include <linux/kvm.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "machine/kvm/rdpmc_indices.hpp"
#include "vpmu/kvm.hpp"

namespace vpmu::kvm {
namespace {

// Of the local APIC (SDM volume 3, chapter "Advanced Programmable Interrupt Controller").
constexpr std::size_t lvtpc_offset = 0x340;
constexpr std::uint32_t lvt_masked = 1U << 16;
constexpr std::uint32_t lvt_mode = 7U << 8;
constexpr std::uint32_t lvt_fixed = 0U << 8;
constexpr std::uint32_t lvt_nmi = 4U << 8;
constexpr std::uint32_t first_vector = 16;

/// Processors of today answer these two of the Pentium with 0.
constexpr std::uint32_t last_p5_msr = 1;

constexpr std::uint64_t fast_strings = 1;  // IA32_MISC_ENABLE[0]

bool within(std::span<const MsrRange> ranges, std::uint32_t index) {
  return std::any_of(ranges.begin(), ranges.end(), [index](const MsrRange& range) { return range.contains(index); });
}

}  // namespace

// --- The port ---

int LinuxVcpuPort::call(int fd, unsigned long request, void* argument) {
  const int result = ::ioctl(fd, request, argument);
  if (result < 0) error_ = errno;
  return result;
}

std::uint64_t LinuxVcpuPort::rip() {
  kvm_regs regs{};
  call(vcpu_, KVM_GET_REGS, &regs);
  return regs.rip;
}

std::uint8_t LinuxVcpuPort::cpl() {
  kvm_sregs sregs{};
  call(vcpu_, KVM_GET_SREGS, &sregs);
  return sregs.ss.dpl;
}

std::uint32_t LinuxVcpuPort::lvtpc() {
  kvm_lapic_state apic{};
  if (call(vcpu_, KVM_GET_LAPIC, &apic) < 0) return lvt_masked;
  std::uint32_t value = 0;
  std::memcpy(&value, apic.regs + lvtpc_offset, sizeof value);
  return value;
}

void LinuxVcpuPort::inject_nmi() { call(vcpu_, KVM_NMI, nullptr); }

void LinuxVcpuPort::inject_vector(std::uint8_t vector) {
  constexpr std::uint32_t msi_address = 0xFEE00000;
  kvm_msi msi{};
  msi.address_lo = msi_address | static_cast<std::uint32_t>(apic_id_) << 12;
  msi.data = vector;
  call(vm_, KVM_SIGNAL_MSI, &msi);
}

// --- Exits ---

VcpuPmu::VcpuPmu(VirtualPmu& pmu, kvm_run& run, VcpuPort& vcpu, std::span<const RdpmcSite> sites)
    : pmu_{pmu}, run_{run}, vcpu_{vcpu} {
  for (const RdpmcSite& site : sites) sites_.push_back(site.rip);
  std::sort(sites_.begin(), sites_.end());
}

bool VcpuPmu::is_patched(std::uint64_t rip) const { return std::binary_search(sites_.begin(), sites_.end(), rip); }

/// KVM completes the instruction, or injects #GP, as it enters the guest again.
void VcpuPmu::completed(bool well) {
  run_.msr.error = well ? 0 : 1;
  if (well) {
    pmu_.retire(EmulatedEvent::instruction, [this] { return vcpu_.cpl(); });
  } else {
    ++counts_.faults;
  }
}

void VcpuPmu::answer(Result<std::uint64_t, Fault> result) {
  run_.msr.data = result.value_or(0);
  completed(result.ok());
}

void VcpuPmu::answer_write(Status<Fault> result) { completed(result.ok()); }

void VcpuPmu::answer_index(std::uint32_t index) {
  if (is_patched(vcpu_.rip())) {
    ++counts_.rdpmcs;
    return answer(pmu_.read_pmc(index));
  }
  ++counts_.unpatched_rdmsrs;
  answer(index <= last_p5_msr ? Result<std::uint64_t, Fault>{std::uint64_t{0}} : Fault::general_protection);
}

bool VcpuPmu::on_exit() {
  const bool reads = run_.exit_reason == KVM_EXIT_X86_RDMSR;
  if (!reads && run_.exit_reason != KVM_EXIT_X86_WRMSR) return false;
  const std::uint32_t index = run_.msr.index;
  if (!within(msr_ranges(pmu_.profile().vendor), index)) return false;
  if (patched_gp.contains(index) || patched_fixed.contains(index)) {
    // Writes are not filtered: KVM has refused this one already.
    if (reads) {
      answer_index(index);
    } else {
      completed(false);
    }
    return true;
  }
  ++counts_.msr_accesses;
  const auto msr = static_cast<Msr>(index);
  if (!pmu_.owns(msr)) {
    completed(false);
  } else if (reads) {
    auto result = pmu_.read_msr(msr);
    if (result && msr == Msr::ia32_misc_enable) result = *result | fast_strings;
    answer(result);
  } else {
    const auto done = pmu_.write_msr(msr, run_.msr.data);
    if (done && msr == Msr::ia32_perf_global_ovf_ctrl) unacknowledged_ = false;
    answer_write(done);
  }
  return true;
}

// --- PMIs ---

bool VcpuPmu::masks_lvtpc() const { return pmu_.profile().is_intel() && pmu_.profile().has_global_ctrl(); }

void VcpuPmu::before_run() {
  if (pmu_.enter() == EntryAction::inject_pmi) {
    if (unacknowledged_) ++counts_.pmis_held;
    pending_ = true;
  }
  if (pending_ && !unacknowledged_) [[unlikely]]
    deliver();
}

void VcpuPmu::deliver() {
  pending_ = false;
  // The handler may have seen this overflow already, on its way to acknowledge another.
  if (masks_lvtpc() && pmu_.host_read_msr(Msr::ia32_perf_global_status).value_or(0) == 0) return;
  const std::uint32_t lvtpc = vcpu_.lvtpc();
  if ((lvtpc & lvt_masked) != 0) {
    ++counts_.pmis_masked;
    return;
  }
  const std::uint32_t vector = lvtpc & 0xFF;
  if ((lvtpc & lvt_mode) == lvt_nmi) {
    vcpu_.inject_nmi();
  } else if ((lvtpc & lvt_mode) == lvt_fixed && vector >= first_vector) {
    vcpu_.inject_vector(static_cast<std::uint8_t>(vector));
  } else {
    return;
  }
  ++counts_.pmis;
  unacknowledged_ = masks_lvtpc();
}

}  // namespace vpmu::kvm
