#include "machine/kvm/vm.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "vpmu/kvm.hpp"

namespace vpmu::kvm {

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) ::close(fd_);
    fd_ = other.release();
  }
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

std::expected<Descriptor, std::string> open_kvm() {
  Descriptor kvm{::open("/dev/kvm", O_RDWR | O_CLOEXEC)};
  if (kvm.get() < 0) {
    switch (errno) {
      case ENOENT:
        return std::unexpected{"/dev/kvm not found: load kvm_intel or kvm_amd; in a VM, enable nested virtualization"};
      case EACCES:
        return std::unexpected{"no access to /dev/kvm: join the group kvm"};
      default:
        return std::unexpected{fmt::format("/dev/kvm: {}", std::strerror(errno))};
    }
  }
  const int version = ::ioctl(kvm.get(), KVM_GET_API_VERSION, 0);
  if (version != KVM_API_VERSION) return std::unexpected{fmt::format("/dev/kvm has API version {}, not 12", version)};
  struct Need {
    int capability;
    const char* name;
  };
  for (const Need& need :
       {Need{KVM_CAP_IRQCHIP, "interrupt controller"}, Need{KVM_CAP_PIT2, "8254"},
        Need{KVM_CAP_X86_USER_SPACE_MSR, "MSR exits (Linux 5.10)"},
        Need{KVM_CAP_X86_MSR_FILTER, "MSR filters (Linux 5.10)"}, Need{KVM_CAP_IMMEDIATE_EXIT, "immediate exit"},
        Need{KVM_CAP_SIGNAL_MSI, "MSI"}, Need{KVM_CAP_USER_NMI, "NMI"}}) {
    if (::ioctl(kvm.get(), KVM_CHECK_EXTENSION, need.capability) <= 0) {
      return std::unexpected{fmt::format("this KVM has no {}: use a newer kernel", need.name)};
    }
  }
  return kvm;
}

namespace {

KvmPmu take_pmu_away(int kvm, int vm) {
  if (disable_kvm_pmu(vm) == 0) return KvmPmu::off;
  // A KVM without the capability gives guests a PMU all the same, unless it has none to give.
  std::ifstream parameter{"/sys/module/kvm/parameters/enable_pmu"};
  char enabled = 'Y';
  parameter >> enabled;
  const bool knows = ::ioctl(kvm, KVM_CHECK_EXTENSION, KVM_CAP_PMU_CAPABILITY) > 0;
  return !knows && enabled == 'N' ? KvmPmu::off : KvmPmu::may_interfere;
}

/// A thread that polls for the end of a HLT runs, and the clock would count that as the guest's cycles. Where KVM knows
/// no such capability (before Linux 5.8) they stay.
void stop_halt_polling(int vm) {
  kvm_enable_cap capability{};
  capability.cap = KVM_CAP_HALT_POLL;
  ::ioctl(vm, KVM_ENABLE_CAP, &capability);
}

}  // namespace

std::expected<std::unique_ptr<Vm>, std::string> Vm::create(soft::Memory& memory, Vendor vendor, HostKind host) {
  auto kvm = open_kvm();
  if (!kvm) return std::unexpected{kvm.error()};
  const auto fail = [](const char* what, int error) {
    return std::unexpected{fmt::format("KVM: {}: {}", what, std::strerror(error))};
  };
  std::unique_ptr<Vm> vm{new Vm};
  vm->kvm_ = std::move(*kvm);
  vm->vm_ = Descriptor{::ioctl(vm->kvm_.get(), KVM_CREATE_VM, 0)};
  const int fd = vm->vm_.get();
  if (fd < 0) return fail("cannot create a VM", errno);

  vm->pmu_ = take_pmu_away(vm->kvm_.get(), fd);
  if (host == HostKind::clock) stop_halt_polling(fd);
  if (const int error = route_msrs(fd, vendor); error != 0) return fail("cannot filter MSRs", error);

  // Intel without unrestricted guest: pages of KVM's own, above all memory.
  constexpr unsigned long task_state = 0xFFFBD000;
  std::uint64_t identity_map = 0xFFFBC000;
  if (::ioctl(fd, KVM_SET_TSS_ADDR, task_state) < 0) return fail("cannot place the TSS", errno);
  if (::ioctl(fd, KVM_SET_IDENTITY_MAP_ADDR, &identity_map) < 0) return fail("cannot place the identity map", errno);
  if (::ioctl(fd, KVM_CREATE_IRQCHIP, 0) < 0) return fail("cannot create the interrupt controller", errno);
  kvm_pit_config pit{};
  pit.flags = KVM_PIT_SPEAKER_DUMMY;
  if (::ioctl(fd, KVM_CREATE_PIT2, &pit) < 0) return fail("cannot create the 8254", errno);

  kvm_userspace_memory_region region{};
  region.memory_size = memory.bytes();
  region.userspace_addr = reinterpret_cast<std::uintptr_t>(memory.at(0));
  if (::ioctl(fd, KVM_SET_USER_MEMORY_REGION, &region) < 0) return fail("cannot map the guest's memory", errno);

  const int run_bytes = ::ioctl(vm->kvm_.get(), KVM_GET_VCPU_MMAP_SIZE, 0);
  if (run_bytes < static_cast<int>(sizeof(kvm_run))) return fail("unusable size of a vCPU's page", errno);
  vm->run_bytes_ = static_cast<std::size_t>(run_bytes);
  vm->cpuid_.count = abi::Cpuid::most;
  if (::ioctl(vm->kvm_.get(), abi::get_supported_cpuid, &vm->cpuid_) < 0) return fail("cannot ask for CPUID", errno);
  return vm;
}

void Vm::set_irq(std::uint32_t line, bool level) const {
  kvm_irq_level irq{};
  irq.irq = line;
  irq.level = level ? 1 : 0;
  ::ioctl(fd(), KVM_IRQ_LINE, &irq);
}

}  // namespace vpmu::kvm
