// Linux KVM: what a VMM does so that its guests have a virtual PMU.
//
// In this order: disable_kvm_pmu() and route_msrs() for the VM, before its first vCPU; find_rdpmc() and patch_rdpmc()
// for the guest's code; for each vCPU a VcpuPmu, whose before_run(), after_run() and on_exit() stand around KVM_RUN.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "vpmu/profile.hpp"
#include "vpmu/virtual_pmu.hpp"

struct kvm_run;

namespace vpmu::kvm {

// --- The VM ---

/// Consecutive MSRs whose guest accesses KVM hands to the VMM.
struct MsrRange {
  enum class Access : std::uint8_t { read, read_write };

  std::uint32_t first;
  std::uint32_t count;
  Access access = Access::read_write;

  [[nodiscard]] constexpr bool contains(std::uint32_t index) const { return index - first < count; }
};

/// Those of the PMUs of both vendors, and the indices of patched RDPMCs. At most 16 ranges of at most 0x3000 MSRs, as
/// KVM takes them (KVM_X86_SET_MSR_FILTER); a VMM that filters others too adds these to its own.
std::span<const MsrRange> msr_ranges(Vendor vendor);

/// Keeps KVM's own virtual PMU out of this VM (KVM_CAP_PMU_CAPABILITY, Linux 5.18). Before the first vCPU. 0, or the
/// error number: EINVAL where KVM cannot.
[[nodiscard]] int disable_kvm_pmu(int vm);

/// Lets guest accesses to msr_ranges() exit (KVM_CAP_X86_USER_SPACE_MSR, KVM_X86_SET_MSR_FILTER; Linux 5.10). 0, or the
/// error number. Replaces a filter that was set before.
[[nodiscard]] int route_msrs(int vm, Vendor vendor);

// --- RDPMC, which KVM never hands out: rewritten to RDMSR, which it does ---

enum class CodeSize : std::uint8_t { bits32, bits64 };

/// An RDPMC instruction in a guest's code.
struct RdpmcSite {
  std::uint64_t rip = 0;       // linear address of the instruction
  std::uint64_t physical = 0;  // guest-physical address of its two opcode bytes
  friend bool operator==(const RdpmcSite&, const RdpmcSite&) = default;
};

/// The RDPMC instructions of one stretch of code that begins with an instruction. Only decoded instructions count: the
/// bytes 0F 33 inside of others do not. Bytes that do not decode are skipped one by one.
void find_rdpmc(std::span<const std::uint8_t> code, CodeSize size, std::uint64_t rip, std::uint64_t physical,
                std::vector<RdpmcSite>& sites);

/// Those of an ELF64 image's executable sections, or of its executable segments if it states no sections. `linear` and
/// physical addresses are those of the image (p_vaddr, p_paddr). Empty if it is not a sound ELF64 image.
std::vector<RdpmcSite> find_rdpmc(std::span<const std::uint8_t> image);

/// Rewrites the sites in guest memory, which begins at guest-physical 0, to RDMSR. Gives those rewritten: where memory
/// does not hold an RDPMC, the site is left alone.
std::vector<RdpmcSite> patch_rdpmc(std::span<const RdpmcSite> sites, std::span<std::uint8_t> memory);

// --- A vCPU ---

/// What VcpuPmu asks of KVM about its vCPU. Tests put their own in its place.
class VcpuPort {
 public:
  virtual std::uint64_t rip() = 0;
  virtual std::uint8_t cpl() = 0;
  /// The local APIC's LVTPC.
  virtual std::uint32_t lvtpc() = 0;
  virtual void inject_nmi() = 0;
  virtual void inject_vector(std::uint8_t vector) = 0;

 protected:
  VcpuPort() = default;
  ~VcpuPort() = default;
  VcpuPort(const VcpuPort&) = delete;
  VcpuPort& operator=(const VcpuPort&) = delete;
};

/// The port on KVM's ioctls, with the in-kernel local APIC (KVM_CREATE_IRQCHIP).
class LinuxVcpuPort final : public VcpuPort {
 public:
  /// Descriptors of VM and vCPU; the vCPU's APIC ID, below 255.
  LinuxVcpuPort(int vm, int vcpu, std::uint8_t apic_id) : vm_{vm}, vcpu_{vcpu}, apic_id_{apic_id} {}

  std::uint64_t rip() override;
  std::uint8_t cpl() override;
  std::uint32_t lvtpc() override;
  void inject_nmi() override;
  void inject_vector(std::uint8_t vector) override;
  /// Number of the last error of an ioctl, or 0.
  [[nodiscard]] int error() const { return error_; }

 private:
  int call(int fd, unsigned long request, void* argument);

  int vm_;
  int vcpu_;
  std::uint8_t apic_id_;
  int error_ = 0;
};

/// Serves the virtual PMU of one vCPU. All calls come from its thread.
///
/// A PMI goes to the local APIC as LVTPC says. Where the processor masks LVTPC as it takes a PMI (Intel), KVM's APIC
/// cannot be told to without a race: instead the next PMI is held back until the guest acknowledges status by
/// IA32_PERF_GLOBAL_OVF_CTRL, and dropped if no status is left then. So LVTPC reads unmasked there.
class VcpuPmu {
 public:
  struct Counts {
    std::uint64_t msr_accesses = 0;      // of the guest's PMU MSRs
    std::uint64_t rdpmcs = 0;            // by patched instructions
    std::uint64_t unpatched_rdmsrs = 0;  // of RDPMC's indices, by instructions that were not patched
    std::uint64_t faults = 0;            // of all these, answered with #GP
    std::uint64_t pmis = 0;              // injected
    std::uint64_t pmis_held = 0;         // came before the last one was acknowledged
    std::uint64_t pmis_masked = 0;       // dropped, since LVTPC was masked
  };

  /// All outlive it. `sites`: those that were patched, in any order.
  VcpuPmu(VirtualPmu& pmu, kvm_run& run, VcpuPort& vcpu, std::span<const RdpmcSite> sites);

  /// Just before KVM_RUN.
  void before_run();
  /// Just after it.
  void after_run() { pmu_.leave(); }
  /// Answers the exit if it is an access to msr_ranges(); false if it is another's. Instructions that it completes are
  /// counted; the VMM reports others, such as IN and OUT, by VirtualPmu::retire().
  [[nodiscard]] bool on_exit();
  /// The vCPU was reset, and its PMU too.
  void reset() { pending_ = unacknowledged_ = false; }

  [[nodiscard]] const Counts& counts() const { return counts_; }

 private:
  enum class Direction : std::uint8_t { read, write };

  void answer(Result<std::uint64_t, Fault> result);
  void answer_write(Status<Fault> result);
  void answer_index(std::uint32_t index);
  void completed(bool well);
  [[nodiscard]] bool is_patched(std::uint64_t rip) const;
  [[nodiscard]] bool masks_lvtpc() const;
  void deliver();

  VirtualPmu& pmu_;
  kvm_run& run_;
  VcpuPort& vcpu_;
  std::vector<std::uint64_t> sites_;  // sorted
  Counts counts_;
  bool pending_ = false;         // a PMI waits
  bool unacknowledged_ = false;  // the last one's status is not cleared yet
};

}  // namespace vpmu::kvm
