#include "machine/kvm/machine.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "machine/kvm/boot_state.hpp"
#include "machine/kvm/linux_boot.hpp"
#include "machine/soft/multiboot.hpp"

namespace vpmu::kvm {
namespace {

constexpr int poll_ms = 20;

}  // namespace

Profile profile_on(const Profile& profile, HostKind host) {
  Profile result = profile;
  if (host != HostKind::clock || !profile.is_intel() || !profile.present()) return result;
  // CPUID.0AH:EBX (SDM volume 2): bit 0 core cycles, bit 2 reference cycles. Fixed counters 1 and 2 count the same.
  constexpr std::uint32_t cycles = 1U << 0 | 1U << 2;
  constexpr std::uint8_t fixed_cycles = 1U << 1 | 1U << 2;
  constexpr std::uint8_t version_with_mask = 5;
  result.events_unavailable |= ((std::uint32_t{1} << profile.events_length) - 1) & ~cycles;
  result.fixed_mask = profile.version >= version_with_mask ? profile.fixed_mask & fixed_cycles : 0;
  if (result.fixed_mask == 0) result.fixed_width = 0;
  return result;
}

Machine::Machine(MachineOptions options)
    : options_{std::move(options)},
      memory_{options_.memory_mib},
      devices_{options_.output, [this](bool level) { vm_->set_irq(Devices::serial_irq, level); }} {
  options_.profile = profile_on(options_.profile, options_.host);
}

Machine::~Machine() {
  for (const auto& vcpu : vcpus_) vcpu->stop();
  vcpus_.clear();
}

void Machine::patch(std::span<const std::uint8_t> elf) {
  if (options_.patch_rdpmc == PatchRdpmc::no) return;
  sites_ = patch_rdpmc(find_rdpmc(elf), {memory_.at(0), memory_.bytes()});
}

std::string Machine::load_image(std::span<const std::uint8_t> image,
                                std::function<void(kvm_sregs&, kvm_regs&)>& first_state) {
  if (is_linux(image)) {
    const auto kernel = read_linux(image);
    if (!kernel) return kernel.error();
    const auto loaded = load_linux(
        memory_, *kernel, {.initrd = options_.initrd, .command_line = options_.command_line, .cpus = options_.cpus});
    if (!loaded) return loaded.error();
    patch(kernel->vmlinux);
    first_state = [at = *loaded](kvm_sregs& sregs, kvm_regs& regs) { start_linux(sregs, regs, at); };
    return "";
  }
  if (!options_.initrd.empty()) return "only a Linux kernel takes an initrd";
  const soft::LoadedImage loaded = soft::load_multiboot(memory_, image, options_.command_line);
  if (!loaded.ok()) return loaded.error;
  patch(image);
  first_state = [at = loaded](kvm_sregs& sregs, kvm_regs& regs) { start_multiboot(sregs, regs, at); };
  return "";
}

std::string Machine::load(std::span<const std::uint8_t> image) {
  std::function<void(kvm_sregs&, kvm_regs&)> first_state;
  if (std::string error = load_image(image, first_state); !error.empty()) return error;
  auto vm = Vm::create(memory_, options_.profile.vendor, options_.host);
  if (!vm) return vm.error();
  vm_ = std::move(*vm);
  if (vm_->kvm_pmu() == KvmPmu::may_interfere) {
    warnings_.emplace_back("KVM's own PMU cannot be switched off (Linux 5.18 can): it may answer RDPMC");
  }
  const VcpuOptions options{.profile = options_.profile,
                            .policy = options_.policy,
                            .host = options_.host,
                            .filter = options_.filter,
                            .sites = sites_,
                            .cpus = options_.cpus};
  for (std::uint32_t id = 0; id < options_.cpus; ++id) {
    vcpus_.push_back(std::make_unique<Vcpu>(*vm_, devices_, id));
    if (std::string error = vcpus_.back()->create(options); !error.empty()) return error;
  }
  return vcpus_.front()->set_registers(first_state);
}

/// Moves what was typed to the serial line, as far as that takes it.
void Machine::serve_input(bool& open) {
  std::array<char, 256> buffer;
  if (open && typed_.empty()) {
    pollfd input{.fd = options_.input, .events = POLLIN, .revents = 0};
    if (::poll(&input, 1, poll_ms) > 0) {
      const ssize_t got = ::read(options_.input, buffer.data(), buffer.size());
      if (got <= 0) open = false;
      for (ssize_t n = 0; n < got; ++n) {
        const char character = buffer[static_cast<std::size_t>(n)];
        escaped_ = escaped_ || (escape_ != 0 && character == escape_);
        typed_.push_back(character);
      }
    }
  } else {
    ::poll(nullptr, 0, poll_ms);
  }
  std::size_t taken = 0;
  while (taken < typed_.size() && devices_.receive(typed_[taken])) ++taken;
  typed_.erase(typed_.begin(), typed_.begin() + static_cast<std::ptrdiff_t>(taken));
}

MachineResult Machine::run() {
  std::atomic<std::uint32_t> running{options_.cpus};
  std::atomic<bool> one_ended{false};
  for (const auto& vcpu : vcpus_) {
    vcpu->start([&] {
      one_ended = true;
      --running;
    });
  }
  bool input_open = options_.input >= 0;
  while (!one_ended && !escaped_ && (options_.stop == nullptr || !options_.stop->load(std::memory_order_relaxed))) {
    serve_input(input_open);
    if (options_.idle) options_.idle();
  }
  while (running != 0) {
    for (const auto& vcpu : vcpus_) vcpu->stop();
    ::poll(nullptr, 0, 1);
  }
  MachineResult result;
  for (const auto& vcpu : vcpus_) {
    vcpu->join();
    if (!vcpu->result().crash.empty()) result.ending = MachineResult::Ending::crash;
    result.vcpus.push_back(vcpu->result());
  }
  if (const auto end = devices_.end()) {
    result.ending = MachineResult::Ending::guest;
    result.end = *end;
  }
  return result;
}

}  // namespace vpmu::kvm
