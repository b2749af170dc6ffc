#include "machine/kvm/vcpu.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "machine/kvm/guest_cpuid.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::kvm {
namespace {

/// A host's time slice: 4 ms, that of a 250 Hz host.
constexpr std::uint64_t slices_a_second = 250;

int stop_signal() { return SIGRTMIN + 5; }

/// The signal is there to interrupt KVM_RUN; the flag that it is about is set already.
void on_stop_signal(int) {}

void install_stop_signal() {
  struct sigaction action{};
  action.sa_handler = on_stop_signal;
  ::sigaction(stop_signal(), &action, nullptr);
}

void set_exit(kvm_run& run, std::uint8_t value) {
  std::atomic_ref{run.immediate_exit}.store(value, std::memory_order_relaxed);
}

}  // namespace

const char* name_of(Exit exit) {
  switch (exit) {
    case Exit::msr:
      return "msr";
    case Exit::port:
      return "port";
    case Exit::mmio:
      return "mmio";
    case Exit::interrupted:
      return "interrupted";
    case Exit::other:
      return "other";
  }
  return "?";
}

Vcpu::Vcpu(Vm& vm, Devices& devices, std::uint32_t id) : vm_{vm}, devices_{devices}, id_{id} {}

Vcpu::~Vcpu() {
  join();
  if (run_ != nullptr) ::munmap(run_, vm_.run_bytes());
}

std::string Vcpu::create(const VcpuOptions& options) {
  options_ = options;
  const auto failed = [this](const char* what) {
    return fmt::format("KVM: vCPU {}: {}: {}", id_, what, std::strerror(errno));
  };
  fd_ = Descriptor{::ioctl(vm_.fd(), KVM_CREATE_VCPU, id_)};
  if (fd_.get() < 0) return failed("cannot create it");
  void* page = ::mmap(nullptr, vm_.run_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (page == MAP_FAILED) return failed("cannot map its page");
  run_ = static_cast<kvm_run*>(page);
  const int tsc_khz = ::ioctl(fd_.get(), KVM_GET_TSC_KHZ, 0);
  if (tsc_khz <= 0) return failed("its TSC has no known rate");
  constexpr std::uint64_t kilo = 1000;
  tsc_hz_ = static_cast<std::uint64_t>(tsc_khz) * kilo;
  abi::Cpuid cpuid = vm_.supported_cpuid();
  const GuestCpu cpu{
      .profile = options.profile, .apic_id = id_, .cpus = options.cpus, .tsc_khz = static_cast<std::uint32_t>(tsc_khz)};
  if (!shape_cpuid(cpuid, cpu)) return "KVM: no room for the CPUID of a vCPU";
  if (::ioctl(fd_.get(), abi::set_cpuid2, &cpuid) < 0) return failed("cannot set CPUID");
  return "";
}

std::string Vcpu::set_registers(const std::function<void(kvm_sregs&, kvm_regs&)>& change) {
  kvm_sregs sregs{};
  kvm_regs regs{};
  if (::ioctl(fd_.get(), KVM_GET_SREGS, &sregs) < 0 || ::ioctl(fd_.get(), KVM_GET_REGS, &regs) < 0) {
    return fmt::format("KVM: cannot read registers: {}", std::strerror(errno));
  }
  change(sregs, regs);
  if (::ioctl(fd_.get(), KVM_SET_SREGS, &sregs) < 0 || ::ioctl(fd_.get(), KVM_SET_REGS, &regs) < 0) {
    return fmt::format("KVM: cannot set registers: {}", std::strerror(errno));
  }
  return "";
}

void Vcpu::start(std::function<void()> ended) {
  install_stop_signal();
  thread_ = std::thread{[this, ended = std::move(ended)] {
    loop();
    ended();
  }};
}

void Vcpu::stop() {
  stop_.store(true, std::memory_order_relaxed);
  if (run_ != nullptr) set_exit(*run_, 1);
  if (thread_.joinable()) ::pthread_kill(thread_.native_handle(), stop_signal());
}

void Vcpu::join() {
  if (thread_.joinable()) thread_.join();
}

void Vcpu::crash(std::string why) { result_.crash = fmt::format("vCPU {}: {}\n{}", id_, why, registers_text()); }

std::string Vcpu::registers_text() const {
  kvm_regs r{};
  kvm_sregs s{};
  if (::ioctl(fd_.get(), KVM_GET_REGS, &r) < 0 || ::ioctl(fd_.get(), KVM_GET_SREGS, &s) < 0) return "";
  return fmt::format(
      "rip {:016x} rsp {:016x} rflags {:08x} cs {:04x} cr0 {:x} cr2 {:x} cr3 {:x} cr4 {:x} efer {:x}\n"
      "rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x} rsi {:016x} rdi {:016x}",
      r.rip, r.rsp, r.rflags, s.cs.selector, s.cr0, s.cr2, s.cr3, s.cr4, s.efer, r.rax, r.rbx, r.rcx, r.rdx, r.rsi,
      r.rdi);
}

void Vcpu::note_health(const VirtualPmu& pmu) {
  for_each_counter(pmu.registers().active(), [&](CounterId counter) {
    const Health health = pmu.health(counter);
    if (health != Health::counting) failed_[counter.slot()] = health;
  });
}

void Vcpu::loop() {
  GuestHost host{options_.host, tsc_hz_, &run_->immediate_exit};
  EmulatedBacking backing{host.events()};
  VirtualPmu pmu{options_.profile, backing, options_.policy};
  pmu.set_filter(options_.filter);
  LinuxVcpuPort port{vm_.fd(), fd_.get(), static_cast<std::uint8_t>(id_)};
  VcpuPmu bridge{pmu, *run_, port, options_.sites};
  const std::uint64_t slice = tsc_hz_ / slices_a_second;
  std::uint64_t slice_began = __rdtsc();

  while (!stop_.load(std::memory_order_relaxed)) {
    if (const std::uint64_t now = __rdtsc(); now - slice_began >= slice) {
      slice_began = now;
      pmu.sched_out();
    }
    bridge.before_run();
    note_health(pmu);
    host.guest_entered();
    const int result = ::ioctl(fd_.get(), KVM_RUN, 0);
    const int error = result < 0 ? errno : 0;
    // First of all: a signal from now on is for the next KVM_RUN.
    set_exit(*run_, 0);
    host.guest_left();
    bridge.after_run();
    if (error == EINTR || error == EAGAIN) {
      ++result_.exits[static_cast<std::size_t>(Exit::interrupted)];
      continue;
    }
    if (error != 0) {
      crash(fmt::format("KVM_RUN: {}", std::strerror(error)));
      break;
    }
    if (!handle(bridge, pmu, port)) break;
  }
  result_.pmu = bridge.counts();
  result_.host_calls = host.calls();
  result_.host_system_calls = host.system_calls();
  for (std::uint32_t slot = 0; slot < max_counters; ++slot) {
    if (failed_[slot] != Health::idle) result_.unhealthy.emplace_back(CounterId::from_slot(slot), failed_[slot]);
  }
}

bool Vcpu::handle(VcpuPmu& bridge, VirtualPmu& pmu, VcpuPort& port) {
  const auto count = [this](Exit exit) { ++result_.exits[static_cast<std::size_t>(exit)]; };
  if (bridge.on_exit()) {
    count(Exit::msr);
    return true;
  }
  switch (run_->exit_reason) {
    case KVM_EXIT_IO:
      count(Exit::port);
      handle_port(pmu, port);
      return !devices_.end().has_value();
    case KVM_EXIT_MMIO:
      // Nothing is there.
      count(Exit::mmio);
      if (run_->mmio.is_write == 0) std::memset(run_->mmio.data, 0xFF, sizeof run_->mmio.data);
      return true;
    case KVM_EXIT_INTR:
    case KVM_EXIT_IRQ_WINDOW_OPEN:
      count(Exit::interrupted);
      return true;
    case KVM_EXIT_SHUTDOWN:
      crash("triple fault");
      return false;
    case KVM_EXIT_INTERNAL_ERROR:
      crash(fmt::format("KVM cannot execute an instruction of the guest (KVM_EXIT_INTERNAL_ERROR, suberror {})",
                        run_->internal.suberror));
      return false;
    case KVM_EXIT_FAIL_ENTRY:
      crash(fmt::format("VM entry failed, reason {:#x}", run_->fail_entry.hardware_entry_failure_reason));
      return false;
    default:
      crash(fmt::format("unexpected exit, reason {}", run_->exit_reason));
      return false;
  }
}

void Vcpu::handle_port(VirtualPmu& pmu, VcpuPort& port) {
  auto* data = reinterpret_cast<std::uint8_t*>(run_) + run_->io.data_offset;
  for (std::uint32_t n = 0; n < run_->io.count; ++n, data += run_->io.size) {
    std::uint32_t value = 0;
    if (run_->io.direction == KVM_EXIT_IO_OUT) {
      std::memcpy(&value, data, run_->io.size);
      devices_.out(run_->io.port, run_->io.size, value);
    } else {
      value = devices_.in(run_->io.port, run_->io.size);
      std::memcpy(data, &value, run_->io.size);
    }
  }
  ++result_.emulated_instructions;
  pmu.retire(EmulatedEvent::instruction, [&port] { return port.cpl(); });
}

}  // namespace vpmu::kvm
