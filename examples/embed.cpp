// A VMM with host events of its own: what a VMM author writes, in one file. See docs/embedding.md.
//
// The guest is a list of instructions, the "hardware" below runs a loop until something needs the VMM, and counts what
// happened. The guest counts its instructions, samples them with PMIs, and is migrated in the middle.
#include <array>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

#include "vpmu/emulated_backing.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace {

using vpmu::HostError;
using vpmu::HostEvent;
using vpmu::Msr;

// --- The host's counters ---

/// Counts instructions, for as many guest counters as there are. A real one asks its kernel.
class MyHost final : public vpmu::HostEvents {
 public:
  vpmu::Result<HostEvent, HostError> open(const vpmu::HostEventSpec& spec, std::uint64_t period) override {
    constexpr std::uint64_t instructions = 0xC0;
    const bool known = spec.counter.is_fixed() ? spec.counter.number() == 0 : spec.select == instructions;
    if (!known) return HostError::unsupported;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].open) continue;
      events_[i] = {.open = true, .enabled = false, .spec = spec, .count = 0, .period = period, .left = period};
      return static_cast<HostEvent>(i);
    }
    return HostError::no_counter;
  }
  void close(HostEvent event) override { at(event).open = false; }
  vpmu::Status<HostError> set_period(HostEvent event, std::uint64_t period) override {
    at(event).period = at(event).left = period;
    return {};
  }
  vpmu::Status<HostError> enable(HostEvent event) override {
    at(event).enabled = true;
    return {};
  }
  vpmu::Status<HostError> disable(HostEvent event) override {
    at(event).enabled = false;
    return {};
  }
  vpmu::Result<std::uint64_t, HostError> read(HostEvent event) override { return at(event).count; }
  vpmu::Result<std::uint64_t, HostError> peek(HostEvent event) override { return at(event).count; }

  /// The guest executes an instruction. True if an event has passed its period: the VMM has to look.
  bool count_instruction(bool user) {
    bool due = false;
    for (Event& event : events_) {
      if (!event.open || !event.enabled || !(user ? event.spec.user : event.spec.kernel)) continue;
      ++event.count;
      if (--event.left != 0) continue;
      event.left = event.period;
      hint(event.spec.counter.mask());
      due = true;
    }
    return due;
  }

 private:
  struct Event {
    bool open = false;
    bool enabled = false;
    vpmu::HostEventSpec spec;
    std::uint64_t count = 0;   // since open(); never goes back
    std::uint64_t period = 0;  // events from one hint to the next
    std::uint64_t left = 0;
  };
  Event& at(HostEvent event) { return events_[static_cast<std::size_t>(event)]; }
  std::array<Event, 11> events_{};
};

// --- The guest ---

struct Instruction {
  enum class Kind : std::uint8_t { wrmsr, rdpmc, cpuid, loop } kind;
  std::uint64_t operand = 0;  // wrmsr: the value; rdpmc: ECX; loop: how many instructions
  Msr msr{};
};

constexpr std::uint64_t period = 10'000;
constexpr std::uint64_t all_ones = (1ULL << 48) - 1;

/// Counter 0: instructions in ring 0, with an interrupt after `period` of them.
const std::vector<Instruction> program{
    {Instruction::Kind::wrmsr, all_ones + 1 - period, vpmu::ia32_a_pmc[0]},
    {Instruction::Kind::wrmsr, 0xC0 | vpmu::evtsel::kernel | vpmu::evtsel::interrupt | vpmu::evtsel::enable,
     vpmu::ia32_perfevtsel[0]},
    {Instruction::Kind::wrmsr, 1, Msr::ia32_perf_global_ctrl},
    {Instruction::Kind::loop, 25'000},
    {Instruction::Kind::cpuid},
    {Instruction::Kind::loop, 25'000},
    {Instruction::Kind::rdpmc, 0},
};
/// What a kernel's PMI handler does: acknowledge, and start the next period.
const std::vector<Instruction> pmi_handler{
    {Instruction::Kind::wrmsr, 1, Msr::ia32_perf_global_ovf_ctrl},
    {Instruction::Kind::wrmsr, all_ones + 1 - period, vpmu::ia32_a_pmc[0]},
};

// --- The VMM ---

class Vmm {
 public:
  /// VM entry. The guest's handler runs if a PMI is due: a real VMM signals LVTPC of the vCPU's local APIC.
  void enter() {
    while (pmu_.enter() == vpmu::EntryAction::inject_pmi) {
      ++samples_;
      for (const Instruction& instruction : pmi_handler) exit_for(instruction);
    }
  }

  void execute(const Instruction& instruction) {
    enter();
    if (instruction.kind != Instruction::Kind::loop) return exit_for(instruction);
    for (std::uint64_t i = 0; i < instruction.operand; ++i) {
      // Ring 0. When an event is due the VMM interrupts the guest, looks, and lets it go on.
      if (!host_.count_instruction(false)) continue;
      pmu_.leave();
      enter();
    }
    pmu_.leave();
  }

  [[nodiscard]] vpmu::VirtualPmu& pmu() { return pmu_; }
  [[nodiscard]] std::uint64_t last_read() const { return last_read_; }
  [[nodiscard]] std::uint64_t samples() const { return samples_; }
  void take_over(std::uint64_t samples) { samples_ = samples; }

 private:
  /// VM exit: the VMM completes the instruction for the guest, and says that it retired.
  void exit_for(const Instruction& instruction) {
    pmu_.leave();
    bool fault = false;
    switch (instruction.kind) {
      case Instruction::Kind::wrmsr:
        fault = !pmu_.write_msr(instruction.msr, instruction.operand).ok();
        break;
      case Instruction::Kind::rdpmc: {
        const auto value = pmu_.read_pmc(static_cast<std::uint32_t>(instruction.operand));
        fault = !value.ok();
        last_read_ = value.value_or(0);
        break;
      }
      case Instruction::Kind::cpuid:  // pmu_cpuid() fills in the PMU's leaves
      case Instruction::Kind::loop:
        break;
    }
    if (fault) {
      std::puts("#GP(0)");  // a real VMM injects it, and nothing retired
      return;
    }
    pmu_.retire(vpmu::EmulatedEvent::instruction, [] { return 0; });  // at CPL 0
  }

  MyHost host_;
  vpmu::EmulatedBacking backing_{host_};
  vpmu::VirtualPmu pmu_{vpmu::find_profile("intel-v4")->profile, backing_};
  std::uint64_t last_read_ = 0;
  std::uint64_t samples_ = 0;
};

}  // namespace

int main() {
  auto vmm = std::make_unique<Vmm>();
  for (std::size_t i = 0; i < program.size(); ++i) {
    if (i == 5) {
      // Migration: the state as bytes, into a new PMU on another host.
      auto next = std::make_unique<Vmm>();
      if (const auto restored = next->pmu().restore(vmm->pmu().save()); !restored.ok()) {
        std::printf("not restored: %s\n", vpmu::describe(restored.error().kind));
        return 1;
      }
      next->take_over(vmm->samples());
      vmm = std::move(next);
    }
    vmm->execute(program[i]);
  }
  const auto why = vmm->pmu().explain(vpmu::CounterId::gp(1));
  std::printf("samples: %llu, one each %llu instructions\n", static_cast<unsigned long long>(vmm->samples()),
              static_cast<unsigned long long>(period));
  std::printf("the counter reads %#llx\n", static_cast<unsigned long long>(vmm->last_read()));
  std::printf("counter 1 stands still: %s\n", why.sentence);
  // Counted: the WRMSR that starts the counter, 25,000, CPUID, 25,000. A handler's last WRMSR sets the counter, and
  // then counts in it. So the first period takes 10,000 of these 50,002, four more take 9,999 each, and 6 are left.
  const bool right = vmm->samples() == 5 && vmm->last_read() == all_ones + 1 - period + 1 + 6 && !why.counts;
  std::puts(right ? "as expected" : "NOT as expected");
  return right ? 0 : 1;
}
