#include "lab/guest_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "host/model/hardware.hpp"
#include "host/model/perf.hpp"
#include "vpmu/emulated_backing.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {
namespace {

using soft::CpuidLeaf;
using soft::EventSink;

constexpr std::uint64_t mega = 1'000'000;
/// A host's time slice: 4 ms, that of a 250 Hz host.
constexpr std::uint64_t slices_a_second = 250;

EventSink::Headroom headroom_of(const model::Headroom& room) {
  return {.instructions = room.instructions,
          .cycles = room.cycles,
          .ref_cycles = room.ref_cycles,
          .branches = room.branches,
          .other = room.other};
}

soft::MachineConfig machine_config(const GuestOptions& options) {
  soft::MachineConfig config;
  config.memory_mib = options.memory_mib;
  config.amd = !options.profile.is_intel();
  config.physical = options.pmu == GuestOptions::Pmu::physical;
  const auto tsc_mhz = static_cast<std::uint64_t>(options.platform.tsc_mhz.value);
  const auto core_mhz = static_cast<std::uint64_t>(options.platform.core_mhz.value);
  config.tsc_hz = tsc_mhz * mega;
  config.core_ratio = static_cast<std::uint32_t>(core_mhz);
  config.tsc_ratio = static_cast<std::uint32_t>(tsc_mhz);
  config.exit_ticks = static_cast<std::uint64_t>(options.platform.exit_cycles.value) * tsc_mhz / core_mhz;
  config.instruction_limit = options.max_instructions;
  return config;
}

std::string counter_name(CounterId counter) {
  return fmt::format("{} {}", counter.is_fixed() ? "fixed" : "gp", counter.number());
}

std::string register_line(const soft::CpuState& cpu, std::initializer_list<std::pair<const char*, soft::Gpr>> list) {
  std::string line;
  for (const auto& [name, index] : list)
    line += fmt::format("{}{} {:016x}", line.empty() ? "" : "  ", name, cpu.gpr[index]);
  return line;
}

std::vector<std::string> post_mortem(soft::Machine& machine) {
  const soft::CpuState& cpu = machine.cpu().state();
  std::vector<std::string> lines{
      fmt::format("rip {:016x}  cpl {}", cpu.rip, cpu.cpl),
      register_line(cpu, {{"rax", soft::rax}, {"rbx", soft::rbx}, {"rcx", soft::rcx}, {"rdx", soft::rdx}}),
      register_line(cpu, {{"rsi", soft::rsi}, {"rdi", soft::rdi}, {"rbp", soft::rbp}, {"rsp", soft::rsp}}),
      register_line(cpu, {{"r8 ", soft::r8}, {"r9 ", soft::r9}, {"r10", soft::r10}, {"r11", soft::r11}}),
      register_line(cpu, {{"r12", soft::r12}, {"r13", soft::r13}, {"r14", soft::r14}, {"r15", soft::r15}}),
  };
  std::string exits = "last exits, newest first:";
  for (const soft::Exit& exit : machine.last_exits()) {
    exits += fmt::format(" {}", exit_name(exit.reason));
    if (exit.index != 0) exits += fmt::format(" {:#x}", exit.index);
    exits += ',';
  }
  exits.back() = exits.back() == ',' ? '.' : exits.back();
  lines.push_back(exits);
  return lines;
}

}  // namespace

const char* exit_name(soft::ExitReason reason) {
  switch (reason) {
    case soft::ExitReason::cpuid:
      return "cpuid";
    case soft::ExitReason::port:
      return "port";
    case soft::ExitReason::rdmsr:
      return "rdmsr";
    case soft::ExitReason::wrmsr:
      return "wrmsr";
    case soft::ExitReason::rdpmc:
      return "rdpmc";
    case soft::ExitReason::hlt:
      return "hlt";
    case soft::ExitReason::mmio:
      return "mmio";
    case soft::ExitReason::overflow:
      return "overflow";
    case soft::ExitReason::deadline:
      return "timer";
    case soft::ExitReason::instruction_limit:
      return "limit";
    case soft::ExitReason::shutdown:
      return "shutdown";
    case soft::ExitReason::stop:
      return "stop";
    case soft::ExitReason::stuck:
      return "stuck";
  }
  return "?";
}

namespace {

/// The virtual PMU between the machine and the modelled host; also the CPU's view of the physical PMU below.
class VirtualPort final : public soft::PmuPort, public EventSink {
 public:
  explicit VirtualPort(const GuestOptions& options)
      : options_{options},
        hardware_{model::host_for(options.profile)},
        host_{hardware_, {.free_reads = options.free_reads, .taken = 0}, options.platform},
        backing_{host_},
        pmu_{options.profile, backing_, options.policy} {
    pmu_.set_filter(options.filter);
  }

  void attach(soft::Machine& machine) { machine_ = &machine; }
  void report(GuestResult& result) const {
    result.host_calls = host_.calls();
    constexpr std::uint64_t picoseconds = 1000;
    result.host_ns = host_.cost_picoseconds() / picoseconds;
    result.emulated_instructions = retired_;
    for (std::uint32_t slot = 0; slot < max_counters; ++slot) {
      if (failed_[slot] != Health::idle) {
        result.unhealthy.emplace_back(counter_name(CounterId::from_slot(slot)), failed_[slot]);
      }
    }
  }

  // The PMU that the guest sees.
  bool owns(soft::u32 index) override { return pmu_.owns(static_cast<Msr>(index)); }
  std::optional<soft::u64> read_msr(soft::u32 index) override { return answer(pmu_.read_msr(static_cast<Msr>(index))); }
  bool write_msr(soft::u32 index, soft::u64 value) override {
    return pmu_.write_msr(static_cast<Msr>(index), value).ok();
  }
  std::optional<soft::u64> read_pmc(soft::u32 ecx) override { return answer(pmu_.read_pmc(ecx)); }
  CpuidLeaf cpuid(soft::u32 leaf, soft::u32 subleaf, const CpuidLeaf& base) override {
    const CpuidResult r = pmu_cpuid(options_.profile, leaf, subleaf,
                                    {.eax = base.eax, .ebx = base.ebx, .ecx = base.ecx, .edx = base.edx});
    return {.eax = r.eax, .ebx = r.ebx, .ecx = r.ecx, .edx = r.edx};
  }
  void leave() override {
    skid_left_ = 0;
    pmu_.leave();
  }
  bool enter() override {
    const std::uint64_t now = machine_->cpu().tsc();
    const std::uint64_t slice = static_cast<std::uint64_t>(options_.platform.tsc_mhz.value) * mega / slices_a_second;
    if (now - slice_began_ >= slice) {
      slice_began_ = now;
      pmu_.sched_out();
    }
    const bool pmi = pmu_.enter() == EntryAction::inject_pmi;
    for_each_counter(pmu_.registers().active(), [this](CounterId counter) {
      const Health health = pmu_.health(counter);
      if (health != Health::counting) failed_[counter.slot()] = health;
    });
    return pmi;
  }
  void retire(bool branch, soft::u8 cpl) override {
    ++retired_;
    const auto source = [cpl] { return cpl; };
    pmu_.retire(EmulatedEvent::instruction, source);
    if (branch) pmu_.retire(EmulatedEvent::branch, source);
  }
  soft::u64 take_host_ticks() override {
    const std::uint64_t cost = host_.cost_picoseconds();
    const std::uint64_t ticks = host_.prices().tsc_ticks(cost - paid_);
    if (ticks != 0) paid_ = cost;
    return ticks;
  }

  // The physical PMU that counts for it.
  bool advance(const model::Activity& activity, model::Ring ring) override {
    const bool hinted = host_.advance(activity, ring) != 0;
    if (skid_left_ != 0) {
      const std::uint64_t ran = activity[model::Event::instructions];
      skid_left_ -= std::min(skid_left_, ran);
      return skid_left_ == 0;
    }
    if (!hinted) return false;
    skid_left_ = options_.skid;
    return skid_left_ == 0;
  }
  Headroom headroom(model::Ring ring) override {
    Headroom room = headroom_of(host_.headroom(ring));
    if (skid_left_ != 0) room.instructions = std::min(room.instructions, skid_left_ - 1);
    return room;
  }
  bool uses(model::Event event) override { return host_.uses(event); }
  bool uses_edges() override { return host_.uses_edges(); }

 private:
  static std::optional<soft::u64> answer(Result<std::uint64_t, Fault> result) {
    if (!result) return std::nullopt;
    return *result;
  }

  const GuestOptions& options_;
  model::HardwarePmu hardware_;
  model::PerfModel host_;
  EmulatedBacking backing_;
  VirtualPmu pmu_;
  soft::Machine* machine_ = nullptr;
  std::uint64_t slice_began_ = 0;
  std::uint64_t skid_left_ = 0;  // instructions to the exit of an overflow that happened
  std::uint64_t paid_ = 0;       // picoseconds of host work that the guest's clock has seen
  std::uint64_t retired_ = 0;
  std::array<Health, max_counters> failed_{};
};

/// The CPU's own PMU, in the hands of a guest that is a hypervisor.
class PhysicalPort final : public soft::PmuPort, public EventSink {
 public:
  explicit PhysicalPort(const GuestOptions& options) : profile_{model::svm_host(options.profile)}, hardware_{profile_} {
    // A hypervisor on AMD runs with EFER.SVME set; GuestOnly and HostOnly depend on it.
    hardware_.set_svme(!profile_.is_intel());
  }

  bool owns(soft::u32 index) override {
    const arch::Register reg = arch::find_register(static_cast<Msr>(index));
    return reg && reg.vendor() == profile_.vendor;
  }
  std::optional<soft::u64> read_msr(soft::u32 index) override {
    const auto result = hardware_.read_msr(static_cast<Msr>(index));
    if (!result) return std::nullopt;
    return *result;
  }
  bool write_msr(soft::u32 index, soft::u64 value) override {
    return hardware_.write_msr(static_cast<Msr>(index), value).ok();
  }
  std::optional<soft::u64> read_pmc(soft::u32 ecx) override {
    const auto result = hardware_.read_pmc(ecx);
    if (!result) return std::nullopt;
    return *result;
  }
  CpuidLeaf cpuid(soft::u32 leaf, soft::u32 subleaf, const CpuidLeaf& base) override {
    const CpuidResult r =
        pmu_cpuid(profile_, leaf, subleaf, {.eax = base.eax, .ebx = base.ebx, .ecx = base.ecx, .edx = base.edx});
    return {.eax = r.eax, .ebx = r.ebx, .ecx = r.ecx, .edx = r.edx};
  }
  void leave() override {}
  bool enter() override { return hardware_.take_pmi(); }
  void retire(bool, soft::u8) override {}
  /// World switch, RAX = 1: enter guest mode with GLOBAL_CTRL = RBX; 2: leave it with GLOBAL_CTRL = RBX. Gives the
  /// GLOBAL_CTRL that was, as a VM exit saves it. It stands for VM entry and exit (VMCS fields) and for VMRUN.
  std::optional<soft::u64> hypercall(soft::u64 rax, soft::u64 rbx) override {
    constexpr soft::u64 enter_guest = 1;
    constexpr soft::u64 leave_guest = 2;
    if (rax != enter_guest && rax != leave_guest) return std::nullopt;
    const std::uint64_t before = hardware_.global_ctrl();
    if (profile_.is_intel() && !hardware_.load_global_ctrl(rbx).ok()) return std::nullopt;
    mode_ = rax == enter_guest ? model::Mode::guest : model::Mode::host;
    return before;
  }

  bool advance(const model::Activity& activity, model::Ring ring) override {
    return hardware_.advance(activity, ring, mode_) != 0;
  }
  Headroom headroom(model::Ring ring) override { return headroom_of(hardware_.headroom(ring, mode_)); }
  bool uses(model::Event event) override { return hardware_.uses(event, mode_); }
  bool uses_edges() override { return hardware_.uses_edges(mode_); }

 private:
  Profile profile_;
  model::HardwarePmu hardware_;
  model::Mode mode_ = model::Mode::host;
};

}  // namespace

struct GuestRun::Parts {
  explicit Parts(const GuestOptions& given) : options{given} {
    const soft::MachineConfig config = machine_config(options);
    if (options.pmu == GuestOptions::Pmu::physical) {
      physical = std::make_unique<PhysicalPort>(options);
      machine = std::make_unique<soft::Machine>(config, *physical, *physical, options.output);
    } else {
      port = std::make_unique<VirtualPort>(options);
      machine = std::make_unique<soft::Machine>(config, *port, *port, options.output);
      port->attach(*machine);
    }
    machine->set_stop_flag(options.stop);
  }

  GuestOptions options;
  std::unique_ptr<VirtualPort> port;       // Pmu::emulated
  std::unique_ptr<PhysicalPort> physical;  // Pmu::physical
  std::unique_ptr<soft::Machine> machine;
};

GuestRun::GuestRun(const GuestOptions& options) : parts_{std::make_unique<Parts>(options)} {}
GuestRun::~GuestRun() = default;

std::string GuestRun::load(std::span<const std::uint8_t> image) {
  return parts_->machine->load(image, parts_->options.append).error;
}

GuestResult GuestRun::run() {
  soft::Machine& machine = *parts_->machine;
  GuestResult result;
  result.stopped = machine.run();
  result.exit_value = machine.exit_value().value_or(0);
  if (parts_->port) parts_->port->report(result);
  const soft::CpuTotals& totals = machine.cpu().totals();
  result.instructions = totals.instructions + result.emulated_instructions;
  result.branches = totals.branches;
  result.cycles = totals.cycles;
  result.tsc = machine.cpu().tsc();
  result.tsc_hz = static_cast<std::uint64_t>(parts_->options.platform.tsc_mhz.value) * mega;
  result.exits = machine.exits();
  result.pmu_accesses = machine.pmu_accesses();
  result.pmis = machine.pmis();
  result.unknown = machine.cpu().unknown();
  if (result.stopped == soft::StopReason::shutdown || result.stopped == soft::StopReason::halted ||
      result.stopped == soft::StopReason::stuck) {
    result.post_mortem = post_mortem(machine);
  }
  return result;
}

}  // namespace vpmu::lab
