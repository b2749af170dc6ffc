#include "machine/kvm/guest_cpuid.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace vpmu::kvm {
namespace {

// Leaves (SDM volume 2, CPUID; APM volume 3, appendix E; Linux, Documentation/virt/kvm/x86/cpuid.rst).
constexpr std::uint32_t features_leaf = 0x1;
constexpr std::uint32_t cache_leaf = 0x4;
constexpr std::uint32_t structured_leaf = 0x7;
constexpr std::uint32_t perfmon_leaf = 0xA;
constexpr std::uint32_t topology_leaf = 0xB;
constexpr std::uint32_t topology2_leaf = 0x1F;
constexpr std::uint32_t hypervisor_leaf = 0x40000000;
constexpr std::uint32_t timing_leaf = 0x40000010;
constexpr std::uint32_t extended_leaf = 0x80000000;
constexpr std::uint32_t extended_features_leaf = 0x80000001;
constexpr std::uint32_t sizes_leaf = 0x80000008;
constexpr std::uint32_t svm_leaf = 0x8000000A;
constexpr std::uint32_t amd_topology_leaf = 0x8000001E;
constexpr std::uint32_t amd_perfmon_leaf = 0x80000022;

/// An unknown model of family 6, whose PMU Linux then drives by what CPUID says; and Zen 3.
constexpr std::uint32_t intel_signature = 0x000F06F1;
constexpr std::uint32_t amd_signature = 0x00A00F11;

constexpr std::uint32_t hypervisor_bit = 1U << 31;
constexpr std::uint32_t tsc_deadline_bit = 1U << 24;

std::uint32_t word(const char* text) {
  std::uint32_t value = 0;
  std::memcpy(&value, text, sizeof value);
  return value;
}

class Leaves {
 public:
  explicit Leaves(abi::Cpuid& cpuid) : cpuid_{cpuid} {}

  /// The leaf's answer, made if there is none. A null pointer if there is no room.
  kvm_cpuid_entry2* get(std::uint32_t leaf, std::uint32_t subleaf = 0) {
    for (kvm_cpuid_entry2& entry : used()) {
      const bool indexed = (entry.flags & KVM_CPUID_FLAG_SIGNIFCANT_INDEX) != 0;
      if (entry.function == leaf && (!indexed || entry.index == subleaf)) return &entry;
    }
    if (cpuid_.count >= abi::Cpuid::most) return nullptr;
    kvm_cpuid_entry2& entry = cpuid_.entries[cpuid_.count++];
    entry = {};
    entry.function = leaf;
    entry.index = subleaf;
    return &entry;
  }
  void drop(std::uint32_t leaf) {
    const auto list = used();
    const auto end = std::remove_if(list.begin(), list.end(), [leaf](const auto& e) { return e.function == leaf; });
    cpuid_.count = static_cast<std::uint32_t>(end - list.begin());
  }
  [[nodiscard]] std::span<kvm_cpuid_entry2> used() { return std::span{cpuid_.entries}.first(cpuid_.count); }

 private:
  abi::Cpuid& cpuid_;
};

void set_vendor(kvm_cpuid_entry2& entry, bool intel) {
  const char* name = intel ? "GenuineIntel" : "AuthenticAMD";
  entry.ebx = word(name);
  entry.edx = word(name + 4);
  entry.ecx = word(name + 8);
}

void set_pmu(Leaves& leaves, const Profile& profile) {
  for (const std::uint32_t leaf :
       {features_leaf, structured_leaf, perfmon_leaf, extended_features_leaf, amd_perfmon_leaf}) {
    kvm_cpuid_entry2* entry = leaves.get(leaf);
    if (entry == nullptr) continue;
    const CpuidResult made = pmu_cpuid(profile, leaf, 0, {entry->eax, entry->ebx, entry->ecx, entry->edx});
    entry->eax = made.eax;
    entry->ebx = made.ebx;
    entry->ecx = made.ecx;
    entry->edx = made.edx;
  }
}

/// One thread a core, all in one package.
void set_topology(Leaves& leaves, const GuestCpu& cpu) {
  constexpr std::uint32_t id_shift = 24;
  constexpr std::uint32_t count_shift = 16;
  constexpr std::uint32_t hyper_threading = 1U << 28;
  kvm_cpuid_entry2& features = *leaves.get(features_leaf);
  features.ebx = (features.ebx & 0xFFFF) | cpu.apic_id << id_shift | cpu.cpus << count_shift;
  features.edx = cpu.cpus > 1 ? features.edx | hyper_threading : features.edx & ~hyper_threading;
  for (kvm_cpuid_entry2& entry : leaves.used()) {
    if (entry.function == topology_leaf || entry.function == topology2_leaf) entry.edx = cpu.apic_id;
    if (entry.function == cache_leaf) entry.eax &= 0x3FFF;  // each cache is one core's
    if (entry.function == sizes_leaf) entry.ecx = (entry.ecx & ~0xF0FFU) | (cpu.cpus - 1);
    if (entry.function == amd_topology_leaf) {
      entry.eax = cpu.apic_id;
      entry.ebx = cpu.apic_id;
      entry.ecx = 0;
    }
  }
}

}  // namespace

bool shape_cpuid(abi::Cpuid& cpuid, const GuestCpu& cpu) {
  Leaves leaves{cpuid};
  const bool intel = cpu.profile.is_intel();
  constexpr std::array needed{0U,          features_leaf, structured_leaf,        perfmon_leaf,    hypervisor_leaf,
                              timing_leaf, extended_leaf, extended_features_leaf, amd_perfmon_leaf};
  for (const std::uint32_t leaf : needed) {
    if (leaves.get(leaf) == nullptr) return false;
  }
  // A guest on this machine is no hypervisor.
  leaves.drop(svm_leaf);
  set_vendor(*leaves.get(0), intel);
  leaves.get(0)->eax = std::max(leaves.get(0)->eax, perfmon_leaf);
  kvm_cpuid_entry2& extended = *leaves.get(extended_leaf);
  if (!intel) set_vendor(extended, false);
  if (intel) extended.ebx = extended.ecx = extended.edx = 0;
  extended.eax = std::max(extended.eax, amd_perfmon_leaf);
  kvm_cpuid_entry2& features = *leaves.get(features_leaf);
  features.eax = intel ? intel_signature : amd_signature;
  features.ecx |= hypervisor_bit | tsc_deadline_bit;
  constexpr std::uint32_t vmx = 1U << 5;
  features.ecx &= ~vmx;
  constexpr std::uint32_t svm = 1U << 2;
  leaves.get(extended_features_leaf)->ecx &= ~svm;
  leaves.get(hypervisor_leaf)->eax = std::max(leaves.get(hypervisor_leaf)->eax, timing_leaf);
  *leaves.get(timing_leaf) = {
      .function = timing_leaf, .index = 0, .flags = 0, .eax = cpu.tsc_khz, .ebx = 0, .ecx = 0, .edx = 0, .padding = {}};
  set_pmu(leaves, cpu.profile);
  set_topology(leaves, cpu);
  return true;
}

}  // namespace vpmu::kvm
