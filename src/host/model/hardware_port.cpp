#include "host/model/hardware_port.hpp"

namespace vpmu::model {

using Kind = HardwareAccess::Kind;

// --- The CPU ---

CounterSet HardwareCpu::run(const Activity& activity, Ring ring, Mode mode) {
  const CounterSet overflowed = pmu_.advance(activity, ring, mode);
  if (pmu_.take_pmi() && !on_its_way_) {
    on_its_way_ = true;
    accesses_left_ = latency_;
    if (accesses_left_ == 0) deliver();
  }
  return overflowed;
}

void HardwareCpu::settle() {
  if (on_its_way_) deliver();
}

void HardwareCpu::before() {
  if (on_its_way_ && (accesses_left_ == 0 || --accesses_left_ == 0)) deliver();
  if (observer_ != nullptr) observer_->before_access(*this);
}

void HardwareCpu::note(Kind kind, std::uint32_t index, std::uint64_t value) {
  if (observer_ != nullptr) observer_->access({kind, index, value});
}

void HardwareCpu::deliver() {
  on_its_way_ = false;
  if (lvtpc_masked_) {
    ++dropped_pmis_;
    return;
  }
  // Intel masks LVTPC as it accepts a PMI (SDM volume 3, "Handling Local Interrupts"). The host's handler takes that
  // back; the guest's vector is the switch's to unmask.
  if (lvtpc_ == LvtpcOwner::host) {
    ++host_pmis_;
    return;
  }
  lvtpc_masked_ = pmu_.profile().is_intel();
  guest_vector_ = true;
}

// --- The port ---

std::uint64_t HardwarePort::rdmsr(Msr msr) {
  cpu_->before();
  const auto value = cpu_->pmu_.read_msr(msr);
  if (!value.ok()) ++faults_;
  cpu_->note(Kind::rdmsr, index_of(msr), value.value_or(0));
  return value.value_or(0);
}

void HardwarePort::wrmsr(Msr msr, std::uint64_t value) {
  cpu_->before();
  if (!cpu_->pmu_.write_msr(msr, value).ok()) ++faults_;
  cpu_->note(Kind::wrmsr, index_of(msr), value);
}

std::uint64_t HardwarePort::rdpmc(std::uint32_t ecx) {
  cpu_->before();
  const auto value = cpu_->pmu_.read_pmc(ecx);
  if (!value.ok()) ++faults_;
  cpu_->note(Kind::rdpmc, ecx, value.value_or(0));
  return value.value_or(0);
}

std::uint64_t HardwarePort::entry_global_ctrl() {
  return intel() ? entry_global_ctrl_ : rdmsr(Msr::amd_perf_cntr_global_ctl);
}

void HardwarePort::set_entry_global_ctrl(std::uint64_t value) {
  if (!intel()) return wrmsr(Msr::amd_perf_cntr_global_ctl, value);
  cpu_->before();
  ++counts_.entry_fields;
  entry_global_ctrl_ = value;
  cpu_->note(Kind::set_entry_field, index_of(Msr::ia32_perf_global_ctrl), value);
}

void HardwarePort::set_lvtpc(LvtpcOwner owner) {
  cpu_->before();
  ++counts_.lvtpc_writes;
  cpu_->lvtpc_ = owner;
  cpu_->lvtpc_masked_ = false;
  cpu_->note(owner == LvtpcOwner::guest ? Kind::set_lvtpc_guest : Kind::set_lvtpc_host);
}

bool HardwarePort::take_guest_pmi() {
  const bool came = cpu_->guest_vector_;
  cpu_->guest_vector_ = false;
  return came;
}

void HardwarePort::leave_host_perf() {
  cpu_->before();
  ++counts_.host_perf_calls;
  if (cpu_->observer_ != nullptr) cpu_->observer_->host_perf_leaves(*cpu_);
  cpu_->host_perf_ = false;
  ++cpu_->epoch_;
  cpu_->note(Kind::leave_host_perf);
}

void HardwarePort::return_host_perf() {
  cpu_->before();
  ++counts_.host_perf_calls;
  cpu_->host_perf_ = true;
  ++cpu_->epoch_;
  if (cpu_->observer_ != nullptr) cpu_->observer_->host_perf_returns(*cpu_);
  cpu_->note(Kind::return_host_perf);
}

void HardwarePort::set_intercepts(const PassThrough& pass) {
  ++counts_.intercept_changes;
  pass_ = pass;
}

// --- The hypervisor ---

void HardwarePort::migrate(HardwareCpu& cpu, std::uint32_t number) {
  cpu_ = &cpu;
  number_ = number;
}

void HardwarePort::vm_entry() {
  if (!intel()) return;
  host_global_ctrl_ = cpu_->pmu_.global_ctrl();
  if (!cpu_->pmu_.load_global_ctrl(entry_global_ctrl_).ok()) ++faults_;
}

void HardwarePort::vm_exit() {
  if (!intel()) return;
  entry_global_ctrl_ = cpu_->pmu_.global_ctrl();
  if (!cpu_->pmu_.load_global_ctrl(cpu_->host_perf_ ? host_global_ctrl_ : 0).ok()) ++faults_;
}

}  // namespace vpmu::model
