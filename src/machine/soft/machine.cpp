#include "machine/soft/machine.hpp"

#include <utility>

namespace vpmu::soft {

namespace {

constexpr u64 crystal_hz = 25'000'000;
constexpr u32 misc_enable_msr = 0x1a0, pred_cmd_msr = 0x49, mtrr_cap_msr = 0xfe, mtrr_default_msr = 0x2ff;
constexpr u32 microcode_msr = 0x8b;
/// Timer ticks after which a halted CPU that takes none of them is taken for dead.
constexpr unsigned fruitless_ticks = 1000;

}  // namespace

CpuOptions Machine::cpu_options(const MachineConfig& config) {
  CpuOptions o;
  const bool intercept = !config.physical;
  o.intercept_cpuid = o.intercept_ports = o.intercept_msrs = o.intercept_rdpmc = intercept;
  o.intercept_hlt = o.intercept_mmio = intercept;
  o.exceptions_are_branches = config.amd;
  o.amd = config.amd;
  o.core_ratio = config.core_ratio;
  o.tsc_ratio = config.tsc_ratio;
  return o;
}

Machine::Machine(const MachineConfig& config, EventSink& sink, PmuPort& pmu, Devices::Output output)
    : config_(config),
      pmu_(pmu),
      memory_(config.memory_mib),
      apic_({.masks_on_pmi = !config.amd, .timer_ratio = config.tsc_hz / crystal_hz}),
      cpu_(memory_, sink, *this, cpu_options(config)),
      devices_(std::move(output), memory_.bytes(), config.tsc_hz, [this] { return cpu_.tsc(); }) {
  cpu_.set_instruction_limit(config.instruction_limit);
  cpu_.set_mmio_page(apic_.page());
}

LoadedImage Machine::load(std::span<const u8> image, std::string_view command_line) {
  LoadedImage loaded = load_multiboot(memory_, image, command_line);
  if (loaded.ok()) {
    start_multiboot(cpu_.state(), loaded);
    cpu_.state_changed();
    cpu_.memory_changed();
  }
  return loaded;
}

void Machine::set_stop_flag(const std::atomic<bool>* flag) {
  stop_flag_ = flag;
  cpu_.set_stop_flag(flag);
}

void Machine::set_observer(Observer* observer) {
  observer_ = observer;
  cpu_.set_observer(observer);
}

std::vector<Exit> Machine::last_exits() const {
  std::vector<Exit> list;
  for (u64 n = 0; n < std::min<u64>(recent_count_, recent_.size()); ++n) {
    list.push_back(recent_[(recent_count_ - 1 - n) % recent_.size()]);
  }
  return list;
}

void Machine::apic_changed() {
  if (apic_.take_nmi()) cpu_.request_nmi();
  cpu_.set_deadline(apic_.next_deadline());
}

void Machine::enter() {
  apic_.tick(cpu_.tsc());
  if (pmu_.enter()) {
    ++pmis_;
    if (observer_ != nullptr) observer_->pmi(apic_.read(LocalApic::lvt_performance, cpu_.tsc()));
    apic_.deliver_pmi();
  }
  if (const u64 ticks = pmu_.take_host_ticks(); ticks != 0) cpu_.advance_host_time(ticks);
  apic_changed();
}

bool Machine::wait_for_interrupt() {
  const bool interruptible = (cpu_.state().system_flags & flag::if_) != 0;
  for (unsigned n = 0; n < fruitless_ticks; ++n) {
    if (cpu_.nmi_pending()) return true;
    if (!interruptible) return false;
    if (apic_.pending_vector()) return true;
    const u64 deadline = apic_.next_deadline();
    if (deadline == LocalApic::no_deadline) return false;
    const u64 now = cpu_.tsc();
    if (deadline > now) cpu_.advance_host_time(deadline - now);
    apic_.tick(cpu_.tsc());
    apic_changed();
  }
  return false;
}

void Machine::retired_by_emulation(u8 cpl) {
  pmu_.retire(false, cpl);
  // The CPU knows only of those that it retires itself.
  if (config_.instruction_limit != ~u64{0}) cpu_.set_instruction_limit(--config_.instruction_limit);
}

StopReason Machine::run() {
  for (;;) {
    enter();
    if (halted_) {
      if (!wait_for_interrupt()) return StopReason::halted;
      halted_ = false;
    }
    if (observer_ != nullptr) observer_->entering();
    const Exit exit = cpu_.run();
    pmu_.leave();
    if (observer_ != nullptr) observer_->exited(exit);
    ++exits_[static_cast<std::size_t>(exit.reason)];
    recent_[recent_count_++ % recent_.size()] = exit;
    switch (exit.reason) {
      case ExitReason::cpuid:
      case ExitReason::port:
      case ExitReason::rdmsr:
      case ExitReason::wrmsr:
      case ExitReason::rdpmc:
      case ExitReason::mmio:
      case ExitReason::hlt: {
        const u8 cpl = cpu_.state().cpl;
        if (!exit.executed) {
          cpu_.advance_host_time(config_.exit_ticks);
          if (cpu_.emulate()) retired_by_emulation(cpl);
        }
        if (exit.reason == ExitReason::hlt) halted_ = true;
        break;
      }
      case ExitReason::overflow:
      case ExitReason::deadline:
        if (!config_.physical) cpu_.advance_host_time(config_.exit_ticks);
        break;
      case ExitReason::instruction_limit:
        return StopReason::instruction_limit;
      case ExitReason::shutdown:
        return StopReason::shutdown;
      case ExitReason::stuck:
        return StopReason::stuck;
      case ExitReason::stop:
        // A guest that owns the CPU ends by port 0xF4 without an exit: see port_out().
        return devices_.exit_value() ? StopReason::guest_exit : StopReason::stopped;
    }
    if (devices_.exit_value()) return StopReason::guest_exit;
  }
}

u64 Machine::mmio_read(u64 physical, unsigned bytes) {
  const u32 offset = static_cast<u32>(physical % page_bytes);
  const u64 value = apic_.read(offset & ~15u, cpu_.tsc());
  // Registers are the first four bytes of sixteen; narrow reads take part of one (not defined by the SDM).
  return offset % 16 < 4 ? truncate(value >> (offset % 4 * 8), bytes) : 0;
}

void Machine::mmio_write(u64 physical, unsigned bytes, u64 value) {
  const u32 offset = static_cast<u32>(physical % page_bytes);
  if (offset % 16 != 0 || bytes < 4) return;
  apic_.write(offset, static_cast<u32>(value), cpu_.tsc());
  apic_changed();
}

u32 Machine::port_in(u16 port, unsigned bytes) { return devices_.in(port, bytes); }
void Machine::port_out(u16 port, unsigned bytes, u32 value) {
  devices_.out(port, bytes, value);
  // A guest that owns the CPU does not exit on ports: stop it here.
  if (devices_.exit_value()) cpu_.stop();
}

std::optional<u64> Machine::rdmsr(u32 index) {
  const std::optional<u64> value = answer_rdmsr(index);
  if (observer_ != nullptr) observer_->read_msr(index, value);
  return value;
}

std::optional<u64> Machine::answer_rdmsr(u32 index) {
  if (pmu_.owns(index)) {
    ++pmu_accesses_;
    return pmu_.read_msr(index);
  }
  if (index == LocalApic::base_msr || index == LocalApic::deadline_msr ||
      (index >= LocalApic::first_x2apic_msr && index <= LocalApic::last_x2apic_msr)) {
    return apic_.read_msr(index, cpu_.tsc());
  }
  switch (index) {
    case misc_enable_msr:
      if (config_.amd) return std::nullopt;
      return misc_enable_;
    case mtrr_cap_msr:
      return 0;
    case mtrr_default_msr:
      return mtrr_default_;
    case microcode_msr:
      return 0;
    default:
      return std::nullopt;
  }
}

bool Machine::wrmsr(u32 index, u64 value) {
  const bool accepted = answer_wrmsr(index, value);
  if (observer_ != nullptr) observer_->wrote_msr(index, value, accepted);
  return accepted;
}

bool Machine::answer_wrmsr(u32 index, u64 value) {
  if (pmu_.owns(index)) {
    ++pmu_accesses_;
    const bool accepted = pmu_.write_msr(index, value);
    if (config_.physical) enter();
    return accepted;
  }
  if (index == LocalApic::base_msr || index == LocalApic::deadline_msr ||
      (index >= LocalApic::first_x2apic_msr && index <= LocalApic::last_x2apic_msr)) {
    const bool accepted = apic_.write_msr(index, value, cpu_.tsc());
    if (accepted && index == LocalApic::base_msr) cpu_.set_mmio_page(apic_.page());
    apic_changed();
    return accepted;
  }
  switch (index) {
    case misc_enable_msr:
      if (config_.amd) return false;
      misc_enable_ = value;
      return true;
    case pred_cmd_msr:
      if ((value & ~u64{1}) != 0) return false;
      if (value != 0) cpu_.flush_predictor();
      return true;
    case mtrr_default_msr:
      if ((value & ~u64{0xcff}) != 0) return false;
      mtrr_default_ = value;
      return true;
    case microcode_msr:
      return !config_.amd;
    default:
      return false;
  }
}

std::optional<u64> Machine::rdpmc(u32 index) {
  ++pmu_accesses_;
  const std::optional<u64> value = pmu_.read_pmc(index);
  if (observer_ != nullptr) observer_->read_pmc(index, value);
  return value;
}

CpuidLeaf Machine::cpuid(u32 leaf, u32 subleaf) {
  const CpuidConfig config{
      .amd = config_.amd, .hypervisor = !config_.physical, .tsc_hz = config_.tsc_hz, .crystal_hz = crystal_hz};
  const bool apic_enabled = (apic_.base() & (1u << 11)) != 0;
  return pmu_.cpuid(leaf, subleaf, machine_cpuid(config, cpu_.state(), apic_enabled, leaf, subleaf));
}

std::optional<u8> Machine::pending_vector() { return apic_.pending_vector(); }
void Machine::acknowledge(u8 vector) { apic_.acknowledge(vector); }
u64 Machine::task_priority() { return apic_.task_priority(); }
void Machine::set_task_priority(u64 value) { apic_.set_task_priority(value); }
std::optional<u64> Machine::hypercall(u64 rax, u64 rbx) { return pmu_.hypercall(rax, rbx); }

}  // namespace vpmu::soft
