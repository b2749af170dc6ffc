#include "machine/soft/cpu.hpp"

#include "machine/soft/core.hpp"

namespace vpmu::soft {

Cpu::Cpu(Memory& memory, EventSink& sink, Environment& environment, const CpuOptions& options)
    : core_(std::make_unique<Core>(memory, sink, environment, options)) {}
Cpu::~Cpu() = default;

Exit Cpu::run() { return core_->run(); }
bool Cpu::emulate() { return core_->emulate(); }
CpuState& Cpu::state() { return *core_; }
const CpuState& Cpu::state() const { return *core_; }

void Cpu::state_changed() {
  core_->flush_tlb();
  core_->set_mode();
  core_->ring = core_->cpl == 0 ? model::Ring::kernel : model::Ring::user;
  core_->budget_set = false;
}

void Cpu::memory_changed() {
  core_->drop_all_blocks();
  core_->flush_tlb();
}

void Cpu::request_nmi() { core_->nmi_requested = true; }
bool Cpu::nmi_pending() const { return core_->nmi_requested; }

void Cpu::set_mmio_page(std::optional<u64> physical) {
  core_->mmio_page = physical;
  core_->flush_tlb();
}

u64 Cpu::tsc() const { return core_->now_tsc(); }

void Cpu::set_tsc(u64 value) {
  core_->tsc_base += value - core_->now_tsc();
  core_->budget_set = false;
}

void Cpu::advance_host_time(u64 tsc_ticks) {
  core_->tsc_base += tsc_ticks;
  core_->budget_set = false;
}

void Cpu::set_deadline(u64 tsc) {
  core_->deadline = tsc;
  core_->budget_set = false;
}

void Cpu::set_instruction_limit(u64 instructions) {
  core_->instruction_limit = instructions;
  core_->budget_set = false;
}

void Cpu::set_stop_flag(const std::atomic<bool>* flag) { core_->stop_flag = flag; }
void Cpu::set_observer(Observer* observer) { core_->observer = observer; }
void Cpu::stop() {
  core_->exit = Exit{.reason = ExitReason::stop};
  core_->attention = true;
}
const CpuTotals& Cpu::totals() const { return core_->totals; }
std::optional<u8> Cpu::last_vector() const { return core_->last_vector; }
const std::vector<UnknownInstruction>& Cpu::unknown() const { return core_->unknown; }
void Cpu::flush_predictor() { core_->predictor.reset(); }

}  // namespace vpmu::soft
