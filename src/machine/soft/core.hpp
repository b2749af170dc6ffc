// The CPU from the inside: what decode, dispatch, memory access and the forms of the general path share.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "machine/soft/cpu.hpp"
#include "machine/soft/event_models.hpp"

namespace vpmu::soft {

/// An exception of the guest, thrown by whatever finds it and caught by the run loop.
struct Fault {
  u8 vector;
  std::optional<u32> error;
};

/// Thrown by an access to the APIC page: the instruction has to be completed by the machine.
struct MmioExit {};

[[noreturn]] void raise(u8 vector);
[[noreturn]] void raise(u8 vector, u32 error);
[[noreturn]] inline void raise_gp(u32 error = 0) { raise(vector::gp, error); }
[[noreturn]] inline void raise_ud() { raise(vector::ud); }

enum class Access : u8 { read, write, exec };

/// Recent translations. `tag` is the page's linear address; `addend` leads from linear to host addresses.
struct TlbEntry {
  u64 tag = 1;
  u64 addend = 0;
};
inline constexpr std::size_t tlb_entries = 512;
struct Tlb {
  std::array<TlbEntry, tlb_entries> read;
  std::array<TlbEntry, tlb_entries> write;
};
inline std::size_t tlb_index(u64 linear) { return (linear / page_bytes) % tlb_entries; }

/// Where an indirect branch last led.
struct JumpEntry {
  u64 rip = 0;
  u64 key = 0;
  Block* block = nullptr;
};
inline constexpr std::size_t jump_entries = 2048;
inline std::size_t jump_index(u64 rip) { return (rip ^ (rip >> 11)) % jump_entries; }

/// Modelled cycles of what is not in an instruction's class: SDM and APM give no numbers, these are realistic.
namespace cost {
inline constexpr u64 exception = 60, interrupt = 60, page_walk = 0;
}

struct Core;

/// Runs from a block on; returns at the first instruction boundary where the run loop is needed, `rip` set.
/// Without a core it returns the handlers' addresses, by Form.
const void* const* dispatch(Core* core, Block* blk);

struct Core : CpuState {
  Core(Memory& memory, EventSink& event_sink, Environment& environment, const CpuOptions& cpu_options);

  Memory& mem;
  EventSink& sink;
  Environment& env;
  const CpuOptions options;

  // --- dispatch ---
  Tlb* tlb = nullptr;      ///< Of the current privilege level; an empty one while each access must be seen.
  u64 rem = 0;             ///< Budget left, a Weight.
  Block* block = nullptr;  ///< Being executed.
  const Op* op = nullptr;  ///< That may fault; null while fetching.
  u64 chain_key = 1;       ///< Changes with each flush and with the mode: links made under another are stale.
  bool attention = false;  ///< A general form wants the run loop to look.
  bool restart = false;    ///< A general form has iterations left: it did not retire.
  std::array<JumpEntry, jump_entries> jumps{};

  // --- blocks (blocks.cpp, decode.cpp) ---
  u64 epoch = 1;
  u32 mode = 0;
  std::vector<Block*> buckets;
  std::unordered_map<u64, std::vector<Block*>> blocks_of_page;
  std::vector<std::unique_ptr<u8[]>> arena;
  std::size_t arena_used = 0;
  std::array<Op, Block::max_instructions + 1> scratch_ops{};
  Block scratch;

  /// The block at `rip`, decoded if need be. Faults of the fetch are thrown.
  Block* find_block();
  Block* decode_block(u64 physical);
  void* allocate(std::size_t bytes);
  void drop_all_blocks();
  /// Guest memory that may hold code changed. True if blocks were dropped.
  bool code_written(u64 physical, u64 length);
  void purge_write_tlb(u64 physical_page);
  void set_mode();
  void new_epoch();

  // --- memory (mmu.cpp, access.cpp) ---
  std::array<Tlb, 2> tlbs;  ///< Supervisor, user.
  Tlb no_tlb;
  std::optional<u64> mmio_page;
  bool emulating = false;

  /// Physical address of a linear one, or a page fault.
  u64 translate(u64 linear, Access access, bool user);
  void flush_tlb();
  void flush_page(u64 linear);
  [[nodiscard]] bool user() const { return cpl == 3; }
  u64 read_slow(u64 linear, unsigned bytes, Seg which);
  /// True if code changed, so that the block that executes may be stale.
  bool write_slow(u64 linear, unsigned bytes, u64 value, Seg which);
  /// Checks that a later write cannot fault, and reads what is there.
  u64 read_for_write(u64 linear, unsigned bytes, Seg which);
  void check_linear(u64 linear, unsigned bytes, Seg which);
  u64 read_linear(u64 linear, unsigned bytes, bool as_user);
  void write_linear(u64 linear, unsigned bytes, u64 value, bool as_user);
  u64 read_physical(u64 physical, unsigned bytes);
  void write_physical(u64 physical, unsigned bytes, u64 value);
  void probe(u64 linear, unsigned bytes, Access access, bool as_user);

  /// Linear address of a segment's offset, with the checks that segmentation makes.
  u64 linear_address(Seg which, u64 offset, unsigned bytes, bool write);
  u64 read_seg(Seg which, u64 offset, unsigned bytes);
  void write_seg(Seg which, u64 offset, unsigned bytes, u64 value);

  // --- general path (operands.cpp) ---
  [[nodiscard]] u64 offset_of(const Insn& i) const;
  [[nodiscard]] u64 address_of(const Insn& i, unsigned bytes, bool write);
  u64 reg(u8 offset, unsigned bytes) const;
  void set_reg(u8 offset, unsigned bytes, u64 value);
  u64 get(const Insn& i, unsigned n);
  u64 get_for_write(const Insn& i, unsigned n);
  void set(const Insn& i, unsigned n, u64 value);
  void push(u64 value, unsigned bytes);
  u64 pop(unsigned bytes);
  [[nodiscard]] u64 stack_mask() const;
  void set_rsp(u64 value);
  void jump(const Insn& i, u64 target);
  [[nodiscard]] u64 rcx_count(const Insn& i) const;

  // --- control (segments.cpp, interrupts.cpp, far.cpp, system.cpp) ---
  struct Descriptor {
    u64 low = 0, high = 0;
    u64 address = 0;
    [[nodiscard]] Segment segment(u16 selector) const;
    [[nodiscard]] u8 type() const { return (low >> 40) & 0x1f; }
    [[nodiscard]] u8 dpl() const { return (low >> 45) & 3; }
    [[nodiscard]] bool present() const { return ((low >> 47) & 1) != 0; }
    [[nodiscard]] u16 gate_selector() const { return static_cast<u16>(low >> 16); }
    [[nodiscard]] u64 gate_offset(bool wide) const;
  };
  /// Reads a descriptor; `external` goes into error codes as EXT.
  Descriptor descriptor(u16 selector, u8 vector_if_absent = vector::gp, u32 external = 0);
  [[nodiscard]] u64 descriptor_high(const Descriptor& d);  ///< The second half of a system descriptor in long mode.
  void load_segment(Seg which, u16 selector);
  void load_system_segment(Segment& into, u16 selector, u8 type);
  void load_cs(u16 selector, const Descriptor& d, u8 new_cpl);
  /// Checks that a stack segment fits a privilege level, and loads it.
  void load_ss(u16 selector, u8 new_cpl, u8 vector_if_bad, u32 external = 0);
  void load_null_ss(u8 new_cpl);
  /// A flat segment that needs no descriptor, as SYSCALL and its kin load.
  void load_flat(Seg which, u16 selector, u8 dpl, bool code, bool wide);
  void mark_accessed(const Descriptor& d);
  void drop_inaccessible_segments();
  enum class Cause : u8 { fault, trap, software, external };
  /// Delivers an exception or interrupt, and the exceptions met on the way.
  void deliver(u8 which, std::optional<u32> error, Cause cause);
  void enter_vector(u8 which, std::optional<u32> error, Cause cause);
  void enter_vector64(u8 which, std::optional<u32> error, Cause cause);
  void enter_vector32(u8 which, std::optional<u32> error, Cause cause);
  void software_interrupt(u8 which, Cause cause);
  [[nodiscard]] u64 pushed_flags(Cause cause) const;
  void far_transfer(const Insn& i, u16 selector, u64 offset, bool call);
  void far_return(const Insn& i, u64 release);
  void interrupt_return(const Insn& i);
  void return_outward(u16 cs_selector, const Descriptor& cs, u64 to, u64 stack, u16 ss_selector);
  Descriptor return_segment(u16 selector);
  void write_cr0(u64 value);
  void write_cr3(u64 value);
  void write_cr4(u64 value);
  bool write_efer(u64 value);
  std::optional<u64> own_rdmsr(u32 index);
  std::optional<bool> own_wrmsr(u32 index, u64 value);  ///< None: not an MSR of the CPU; false: #GP.
  void set_flags_from_stack(u64 value, unsigned bytes, bool from_iret);
  void check_io(u16 port, unsigned bytes);
  void require_cpl0() const {
    if (cpl != 0) raise_gp();
  }
  /// For an intercepted instruction: true if it has to exit instead of executing.
  bool wants_exit(ExitReason reason, bool intercepted, u32 index = 0);
  void record_unknown(const Insn& i);

  // --- accounting (run.cpp) ---
  u64 start = 0;                                                     ///< What `rem` was when the budget was set.
  s64 extra_instructions = 0, extra_cycles = 0, extra_branches = 0;  ///< On top of start - rem.
  model::Ring ring = model::Ring::kernel;                            ///< To which the current stretch belongs.
  bool budget_set = false;
  bool overflowed = false;
  CpuTotals totals;
  u64 tsc_base = 0;
  u64 deadline = ~u64{0};
  u64 instruction_limit = ~u64{0};
  const std::atomic<bool>* stop_flag = nullptr;
  Observer* observer = nullptr;
  std::optional<Exit> exit;
  std::optional<Fault> fault;
  bool nmi_requested = false;
  bool trap_pending = false;   ///< #DB of a single step.
  bool suppress_trap = false;  ///< INT n cleared TF itself: no #DB after it.
  bool is_shutdown = false;
  std::optional<u8> last_vector;  ///< Handed to deliver().
  std::vector<UnknownInstruction> unknown;

  // Models: run only while a counter needs them, from cold.
  bool slow = false;  ///< One instruction at a time.
  bool use_cache = false, use_predictor = false;
  CacheModel cache;
  PredictorModel predictor;
  model::Activity pending;  ///< Of the events that only the slow loop sees.
  bool last_cycle_had_instruction = false, last_cycle_had_branch = false, last_cycle_had_reference = false;
  bool last_cycle_had_miss = false, last_cycle_had_branch_miss = false;

  Exit run();
  bool emulate();
  void sync();
  bool set_budget();  ///< False if an exit is due instead.
  void set_slow_mode();
  void update_tlb_choice();
  /// Looked at between stretches, and at new code, of which a stretch can take long.
  [[nodiscard]] bool stop_wanted() const { return stop_flag != nullptr && stop_flag->load(std::memory_order_relaxed); }
  [[nodiscard]] u64 stretch_instructions() const;
  [[nodiscard]] u64 stretch_cycles() const;
  [[nodiscard]] u64 stretch_branches() const;
  [[nodiscard]] u64 cycles_to_ref(u64 cycles) const;
  [[nodiscard]] u64 now_tsc() const;
  void add_cycles(u64 cycles);
  /// Takes back what was charged for `from` and what follows it in the current block.
  void refund(const Op* from);
  void run_guarded(Block* first);
  void run_exact(Block* first, bool one);
  void step_models(Block* first);
  u64 fruitless = 0;        ///< Exceptions and REP portions since an instruction last retired.
  u64 fruitless_since = 0;  ///< How many had retired then.
  void note_fruitless(u64 weight);
  void settle();  ///< Delivers the fault, if there is one.
  void sync_if_ring_changed();
};

// --- the inlined hit paths of memory access, on flat linear addresses ---

template <class T>
inline u8* tlb_hit(std::array<TlbEntry, tlb_entries>& entries, u64 linear) {
  const TlbEntry& e = entries[tlb_index(linear)];
  if (__builtin_expect(e.tag == ((linear + sizeof(T) - 1) & page_mask), 1)) {
    return reinterpret_cast<u8*>(linear + e.addend);
  }
  return nullptr;
}

template <class T>
inline T load_host(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <class T>
inline void store_host(void* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

}  // namespace vpmu::soft
