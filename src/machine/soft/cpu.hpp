// The soft machine's CPU: runs guest code until something needs the machine.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "machine/soft/cpu_state.hpp"
#include "machine/soft/environment.hpp"
#include "machine/soft/event_sink.hpp"
#include "machine/soft/memory.hpp"

namespace vpmu::soft {

enum class ExitReason : u8 {
  cpuid,
  port,
  rdmsr,
  wrmsr,
  rdpmc,
  hlt,
  mmio,
  overflow,           ///< A counter of the event sink overflowed: after exactly that instruction.
  deadline,           ///< The TSC reached the deadline.
  instruction_limit,  ///< As many instructions retired as allowed.
  shutdown,           ///< Triple fault.
  stuck,              ///< Exceptions without end: over 100,000 in a row and nothing retired.
  stop,               ///< The host asked for it.
};

/// Why run() came back. The first seven are instructions which have not executed yet: emulate() does that.
struct Exit {
  ExitReason reason = ExitReason::stop;
  model::Ring ring = model::Ring::kernel;  ///< Of the guest at the exit.
  u32 index = 0;                           ///< MSR, counter or port.
  bool executed = false;                   ///< HLT that was not intercepted: nothing to emulate.
  bool overflowed = false;                 ///< A counter overflowed in the last stretch as well.
};

struct CpuOptions {
  /// Which instructions exit, and so are the machine's to count. With none the CPU is the hypervisor's own.
  bool intercept_cpuid = true, intercept_ports = true, intercept_msrs = true, intercept_rdpmc = true;
  bool intercept_hlt = true, intercept_mmio = true;
  /// AMD counts exceptions and interrupts as retired branches (PPR, PMCx0C2).
  bool exceptions_are_branches = false;
  /// No handlers of their own for common forms: for tests, which compare both ways.
  bool general_path_only = false;
  /// SYSRET and SYSCALL in compatibility mode, and null selectors, differ.
  bool amd = false;
  /// Core clock over TSC (and reference) clock.
  u32 core_ratio = 6;
  u32 tsc_ratio = 5;
};

/// An instruction that the interpreter does not know.
struct UnknownInstruction {
  std::string text;  ///< Mnemonic and bytes.
  u64 rip = 0;
  u64 times = 0;
};

/// What CpuOptions cannot say because it is counted.
struct CpuTotals {
  u64 instructions = 0;  ///< Retired without an exit.
  u64 cycles = 0;
  u64 branches = 0;
  u64 exceptions = 0;
  u64 interrupts = 0;
  u64 nmis = 0;
};

struct Core;
class Observer;

class Cpu {
 public:
  Cpu(Memory& memory, EventSink& sink, Environment& environment, const CpuOptions& options);
  ~Cpu();
  Cpu(const Cpu&) = delete;
  Cpu& operator=(const Cpu&) = delete;

  /// Runs until an exit. Everything counted until then has reached the sink when it returns.
  [[nodiscard]] Exit run();
  /// Executes the instruction that exited, through the environment. True if it retired; false if it faulted (the
  /// exception is then delivered) or has iterations left (REP INS, OUTS).
  bool emulate();

  [[nodiscard]] CpuState& state();
  [[nodiscard]] const CpuState& state() const;
  /// After changing state() from outside: segments, control registers, RIP.
  void state_changed();
  /// After changing memory from outside.
  void memory_changed();

  void request_nmi();
  [[nodiscard]] bool nmi_pending() const;
  /// The physical page whose accesses are MMIO; none to have no such page.
  void set_mmio_page(std::optional<u64> physical);

  /// Guest time. The TSC runs with the guest's cycles, and on while the host works or the guest halts.
  [[nodiscard]] u64 tsc() const;
  void set_tsc(u64 value);
  void advance_host_time(u64 tsc_ticks);
  void set_deadline(u64 tsc);  ///< ~0 for none.
  void set_instruction_limit(u64 instructions);
  void set_stop_flag(const std::atomic<bool>* flag);
  /// Hears of interrupts and IRETs; none to have no such observer.
  void set_observer(Observer* observer);
  /// From the environment: run() returns after this instruction, as if the stop flag were set.
  void stop();

  [[nodiscard]] const CpuTotals& totals() const;
  /// Of the exception or interrupt that was last delivered, or could not be.
  [[nodiscard]] std::optional<u8> last_vector() const;
  [[nodiscard]] const std::vector<UnknownInstruction>& unknown() const;
  /// What MSR 0x49 bit 0 does.
  void flush_predictor();

 private:
  std::unique_ptr<Core> core_;
};

}  // namespace vpmu::soft
