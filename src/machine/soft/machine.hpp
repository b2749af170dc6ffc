// The soft machine: CPU, memory, local APIC and devices, around a PMU that is plugged in.
#pragma once

#include <array>
#include <atomic>
#include <string>

#include "machine/soft/cpu.hpp"
#include "machine/soft/cpuid.hpp"
#include "machine/soft/devices.hpp"
#include "machine/soft/local_apic.hpp"
#include "machine/soft/multiboot.hpp"
#include "machine/soft/observer.hpp"
#include "machine/soft/pmu_port.hpp"

namespace vpmu::soft {

struct MachineConfig {
  u64 memory_mib = 64;
  bool amd = false;
  /// The guest is the hypervisor: nothing is intercepted, everything retires on the CPU.
  bool physical = false;
  u64 tsc_hz = 2'500'000'000;
  u32 core_ratio = 6, tsc_ratio = 5;  ///< Core clock over TSC.
  /// TSC ticks from the exit of an instruction to the next entry, the PMU's own work apart.
  u64 exit_ticks = 1000;
  u64 instruction_limit = ~u64{0};  ///< Of all that retire, on the CPU or by emulation.
};

enum class StopReason : u8 {
  guest_exit,  ///< Port 0xF4.
  shutdown,    ///< Triple fault.
  halted,      ///< HLT with nothing that could wake it.
  instruction_limit,
  stuck,    ///< Exceptions without end.
  stopped,  ///< The host's stop flag.
};

class Machine final : private Environment {
 public:
  /// All of them outlive the machine. `output` gets what the guest writes to the serial line.
  Machine(const MachineConfig& config, EventSink& sink, PmuPort& pmu, Devices::Output output);

  [[nodiscard]] LoadedImage load(std::span<const u8> image, std::string_view command_line);
  [[nodiscard]] StopReason run();
  void set_stop_flag(const std::atomic<bool>* flag);
  void set_observer(Observer* observer);

  [[nodiscard]] std::optional<u32> exit_value() const { return devices_.exit_value(); }
  [[nodiscard]] Cpu& cpu() { return cpu_; }
  [[nodiscard]] Memory& memory() { return memory_; }
  [[nodiscard]] LocalApic& apic() { return apic_; }
  static constexpr std::size_t exit_reasons = static_cast<std::size_t>(ExitReason::stop) + 1;
  /// How often each exit happened, by ExitReason.
  [[nodiscard]] const std::array<u64, exit_reasons>& exits() const { return exits_; }
  [[nodiscard]] u64 pmis() const { return pmis_; }
  [[nodiscard]] u64 pmu_accesses() const { return pmu_accesses_; }
  /// The last exits, newest first: for a report on a guest that crashed.
  [[nodiscard]] std::vector<Exit> last_exits() const;

 private:
  u64 mmio_read(u64 physical, unsigned bytes) override;
  void mmio_write(u64 physical, unsigned bytes, u64 value) override;
  u32 port_in(u16 port, unsigned bytes) override;
  void port_out(u16 port, unsigned bytes, u32 value) override;
  std::optional<u64> rdmsr(u32 index) override;
  bool wrmsr(u32 index, u64 value) override;
  std::optional<u64> rdpmc(u32 index) override;
  bool passes_msr(u32 index) override { return pmu_.passes_msr(index); }
  bool passes_rdpmc() override { return pmu_.passes_rdpmc(); }
  CpuidLeaf cpuid(u32 leaf, u32 subleaf) override;
  std::optional<u8> pending_vector() override;
  void acknowledge(u8 vector) override;
  u64 task_priority() override;
  void set_task_priority(u64 value) override;
  std::optional<u64> hypercall(u64 rax, u64 rbx) override;

  [[nodiscard]] std::optional<u64> answer_rdmsr(u32 index);
  bool answer_wrmsr(u32 index, u64 value);
  void enter();
  void apic_changed();
  void retired_by_emulation(u8 cpl);
  [[nodiscard]] bool wait_for_interrupt();
  static CpuOptions cpu_options(const MachineConfig& config);

  MachineConfig config_;
  PmuPort& pmu_;
  Memory memory_;
  LocalApic apic_;
  Cpu cpu_;
  Devices devices_;
  const std::atomic<bool>* stop_flag_ = nullptr;
  Observer* observer_ = nullptr;
  bool halted_ = false;
  u64 mtrr_default_ = 0;
  u64 misc_enable_ = 1 | 1u << 11 | 1u << 12;  ///< Fast strings; no BTS, no PEBS. A PMU that has them owns it.
  std::array<u64, exit_reasons> exits_{};
  u64 pmis_ = 0;
  u64 pmu_accesses_ = 0;
  std::array<Exit, 8> recent_{};
  u64 recent_count_ = 0;
};

}  // namespace vpmu::soft
