// A KVM virtual machine monitor whose guest counts and samples its own cycles, on a host with or without a PMU: the
// clock host needs none. See docs/embedding.md.
//
// Exit status: 0 the guest got its samples, 1 it did not, 77 this machine has no usable KVM.
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include "vpmu/emulated_backing.hpp"
#include "vpmu/host/clock.hpp"
#include "vpmu/kvm.hpp"
#include "vpmu/virtual_pmu.hpp"

// --- The guest: real mode, all of it at CPL 0 ---

extern "C" {
extern const std::uint8_t guest_begin[];
extern const std::uint8_t guest_loop[];
extern const std::uint8_t guest_loop_end[];
extern const std::uint8_t guest_nmi[];
extern const std::uint8_t guest_end[];
}

asm(R"(
    .set PERIOD, 20000000         # cycles
    .set SAMPLES, 10
    .set samples, 0x500           # guest memory

    .macro write_msr index, low
    mov $\index, %ecx
    mov $\low, %eax
    xor %edx, %edx
    wrmsr
    .endm

    .pushsection .rodata
    .code16
    .globl guest_begin, guest_loop, guest_loop_end, guest_nmi, guest_end
guest_begin:
    mov $0x1B, %ecx               # IA32_APIC_BASE: enabled, x2APIC
    rdmsr
    or $0xC00, %eax
    wrmsr
    write_msr 0x80F, 0x1FF        # spurious-interrupt vector: software enable
    write_msr 0x834, 0x400        # LVTPC: NMI
    write_msr 0xC1, -PERIOD       # IA32_PMC0, sign-extended
    write_msr 0x186, 0x53003C     # IA32_PERFEVTSEL0: cycles, user and kernel, INT, enabled
guest_loop:
    mov %ebx, %ebx
    cmpl $SAMPLES, samples
    jb guest_loop
guest_loop_end:
    write_msr 0x186, 0
    mov $0xC1, %ecx
    rdmsr
    mov $0x11, %dx                # the end: what the counter holds
    outl %eax, %dx
    hlt

guest_nmi:                        # the PMI
    pushl %eax
    pushl %ecx
    pushl %edx
    write_msr 0x390, 1            # IA32_PERF_GLOBAL_OVF_CTRL: acknowledged
    write_msr 0xC1, -PERIOD
    incl samples
    movw 12(%esp), %ax            # where the guest was
    mov $0x10, %dx
    outw %ax, %dx
    popl %edx
    popl %ecx
    popl %eax
    iretw
guest_end:
    .code64
    .popsection
)");

namespace {

constexpr std::uint32_t code_at = 0x1000;
constexpr std::uint16_t sample_port = 0x10;
constexpr std::uint16_t end_port = 0x11;
constexpr std::size_t wanted_samples = 10;
constexpr int skipped = 77;

int skip(const char* what) {
  std::printf("SKIPPED: %s: %s\n", what, std::strerror(errno));
  return skipped;
}

std::uint32_t guest_address(const std::uint8_t* symbol) {
  return code_at + static_cast<std::uint32_t>(symbol - guest_begin);
}

struct Machine {
  int kvm = -1;
  int vm = -1;
  int vcpu = -1;
  kvm_run* run = nullptr;
  std::uint64_t tsc_hz = 0;
};

/// What is wrong, or a null pointer.
const char* create(Machine& machine) {
  machine.kvm = ::open("/dev/kvm", O_RDWR | O_CLOEXEC);
  if (machine.kvm < 0) return "/dev/kvm";
  machine.vm = ::ioctl(machine.kvm, KVM_CREATE_VM, 0);
  if (machine.vm < 0) return "KVM_CREATE_VM";
  // Before the first vCPU. A KVM too old to be told has a PMU of its own, whose registers we take over all the same.
  static_cast<void>(vpmu::kvm::disable_kvm_pmu(machine.vm));
  if (const int error = vpmu::kvm::route_msrs(machine.vm, vpmu::Vendor::intel); error != 0) {
    errno = error;
    return "MSR exits (Linux 5.10)";
  }
  constexpr std::uint64_t tss_at = 0xFFFBD000;  // three pages that Intel needs for real mode
  ::ioctl(machine.vm, KVM_SET_TSS_ADDR, tss_at);
  if (::ioctl(machine.vm, KVM_CREATE_IRQCHIP, 0) < 0) return "KVM_CREATE_IRQCHIP";

  constexpr std::size_t memory_bytes = 1 << 20;
  void* memory = ::mmap(nullptr, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return "memory";
  kvm_userspace_memory_region region{};
  region.memory_size = memory_bytes;
  region.userspace_addr = reinterpret_cast<std::uint64_t>(memory);
  if (::ioctl(machine.vm, KVM_SET_USER_MEMORY_REGION, &region) < 0) return "KVM_SET_USER_MEMORY_REGION";
  auto* bytes = static_cast<std::uint8_t*>(memory);
  std::memcpy(bytes + code_at, guest_begin, static_cast<std::size_t>(guest_end - guest_begin));
  const std::uint32_t nmi_vector = guest_address(guest_nmi);  // segment 0
  std::memcpy(bytes + 2 * sizeof nmi_vector, &nmi_vector, sizeof nmi_vector);

  machine.vcpu = ::ioctl(machine.vm, KVM_CREATE_VCPU, 0);
  if (machine.vcpu < 0) return "KVM_CREATE_VCPU";
  const int run_bytes = ::ioctl(machine.kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
  void* page =
      ::mmap(nullptr, static_cast<std::size_t>(run_bytes), PROT_READ | PROT_WRITE, MAP_SHARED, machine.vcpu, 0);
  if (page == MAP_FAILED) return "the vCPU's page";
  machine.run = static_cast<kvm_run*>(page);
  constexpr std::uint64_t kilo = 1000;
  const int tsc_khz = ::ioctl(machine.vcpu, KVM_GET_TSC_KHZ, 0);
  machine.tsc_hz = tsc_khz > 0 ? static_cast<std::uint64_t>(tsc_khz) * kilo : 0;
  return nullptr;
}

/// struct kvm_cpuid2 with its entries. The header's own ends in an array that has another size in C++ than in C, and
/// the size is part of an ioctl's number: so the numbers are C's.
struct Cpuid {
  static constexpr std::uint32_t most = 256;
  std::uint32_t count = most;
  std::uint32_t padding = 0;
  kvm_cpuid_entry2 entries[most] = {};
};
constexpr unsigned long get_supported_cpuid = 0xC008AE05;
constexpr unsigned long set_cpuid2 = 0x4008AE90;

/// CPUID is what KVM supports, with the PMU's part put in.
bool set_cpuid(const Machine& machine, const vpmu::Profile& profile) {
  Cpuid cpuid;
  if (::ioctl(machine.kvm, get_supported_cpuid, &cpuid) < 0) return false;
  for (std::uint32_t i = 0; i < cpuid.count; ++i) {
    kvm_cpuid_entry2& entry = cpuid.entries[i];
    const auto made =
        vpmu::pmu_cpuid(profile, entry.function, entry.index, {entry.eax, entry.ebx, entry.ecx, entry.edx});
    entry.eax = made.eax;
    entry.ebx = made.ebx;
    entry.ecx = made.ecx;
    entry.edx = made.edx;
  }
  return ::ioctl(machine.vcpu, set_cpuid2, &cpuid) == 0;
}

bool set_registers(const Machine& machine) {
  kvm_sregs sregs{};
  if (::ioctl(machine.vcpu, KVM_GET_SREGS, &sregs) < 0) return false;
  sregs.cs.base = sregs.cs.selector = 0;
  kvm_regs regs{};
  regs.rip = code_at;
  regs.rsp = code_at;
  regs.rflags = 2;
  return ::ioctl(machine.vcpu, KVM_SET_SREGS, &sregs) == 0 && ::ioctl(machine.vcpu, KVM_SET_REGS, &regs) == 0;
}

struct Outcome {
  std::vector<std::uint32_t> samples;  // guest addresses
  bool ended = false;
  std::uint32_t counter = 0;
};

Outcome run(Machine& machine, const vpmu::Profile& profile) {
  Outcome outcome;
  vpmu::ClockHost host{{.tsc_hz = machine.tsc_hz, .kick = &machine.run->immediate_exit}};
  vpmu::EmulatedBacking backing{host};
  vpmu::VirtualPmu pmu{profile, backing};
  vpmu::kvm::LinuxVcpuPort port{machine.vm, machine.vcpu, 0};
  vpmu::kvm::VcpuPmu bridge{pmu, *machine.run, port, {}};

  while (!outcome.ended) {
    bridge.before_run();
    host.guest_entered();
    const int result = ::ioctl(machine.vcpu, KVM_RUN, 0);
    const int error = result < 0 ? errno : 0;
    machine.run->immediate_exit = 0;
    host.guest_left();
    bridge.after_run();
    if (error == EINTR || error == EAGAIN) continue;  // the host's counter is due: before_run() tells the guest
    if (error != 0) break;
    if (bridge.on_exit()) continue;  // an access to the PMU
    if (machine.run->exit_reason != KVM_EXIT_IO) break;
    std::uint32_t value = 0;
    std::memcpy(&value, reinterpret_cast<std::uint8_t*>(machine.run) + machine.run->io.data_offset,
                machine.run->io.size);
    if (machine.run->io.port == sample_port) outcome.samples.push_back(value);
    if (machine.run->io.port == end_port) {
      outcome.ended = true;
      outcome.counter = value;
    }
    pmu.retire(vpmu::EmulatedEvent::instruction, [&port] { return port.cpl(); });
  }
  return outcome;
}

}  // namespace

int main() {
  Machine machine;
  if (const char* missing = create(machine); missing != nullptr) return skip(missing);
  const vpmu::Profile profile = vpmu::find_profile("intel-v2")->profile;
  if (!set_cpuid(machine, profile)) return skip("KVM_SET_CPUID2");
  if (!set_registers(machine)) return skip("registers");
  const Outcome outcome = run(machine, profile);
  std::size_t in_loop = 0;
  for (const std::uint32_t address : outcome.samples) {
    std::printf("sample at %#x\n", address);
    if (address >= guest_address(guest_loop) && address <= guest_address(guest_loop_end)) ++in_loop;
  }
  std::printf("%zu samples, %zu of them in the loop; the counter ended at %#x\n", outcome.samples.size(), in_loop,
              outcome.counter);
  if (!outcome.ended) std::printf("the guest did not come to its end: exit reason %u\n", machine.run->exit_reason);
  return outcome.ended && outcome.samples.size() == wanted_samples && in_loop == wanted_samples ? 0 : 1;
}
