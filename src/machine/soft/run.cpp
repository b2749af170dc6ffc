// The run loop: budgets, exact ends, interrupts, exits, and the accounts of what happened.
#include <Zydis/Zydis.h>

#include <algorithm>

#include "machine/soft/forms.hpp"
#include "machine/soft/observer.hpp"

namespace vpmu::soft {

namespace {

__extension__ using u128 = unsigned __int128;

/// ExitReason::stuck.
/// A REP portion counts one, an exception more: no RAM needs that many portions of 4096 elements to be filled.
constexpr u64 too_fruitless = u64{1} << 20;
constexpr u64 exception_weight = 8;

model::Ring ring_of(u8 cpl) { return cpl == 0 ? model::Ring::kernel : model::Ring::user; }

u64 saturate(u64 headroom, u64 used) { return std::min(headroom - used, Weight::field); }

std::optional<PredictorModel::Kind> branch_kind(const Op& op) {
  using Kind = PredictorModel::Kind;
  if (!op.branch) return std::nullopt;
  if (op.plain >= Form::j_o && op.plain <= Form::j_nle) return Kind::conditional;
  switch (op.plain) {
    case Form::call_u32:
    case Form::call_u64:
      return Kind::call;
    case Form::call_r_u32:
    case Form::call_r_u64:
      return Kind::indirect_call;
    case Form::ret_u32:
    case Form::ret_u64:
      return Kind::ret;
    case Form::jmp:
      return Kind::direct;
    case Form::jmp_r:
      return Kind::indirect;
    default:
      break;
  }
  if (op.insn == nullptr) return Kind::direct;
  const bool indirect = op.insn->op[0].kind == Operand::Kind::mem || op.insn->op[0].kind == Operand::Kind::reg;
  switch (op.insn->mnemonic) {
    case ZYDIS_MNEMONIC_JMP:
      return indirect ? Kind::indirect : Kind::direct;
    case ZYDIS_MNEMONIC_CALL:
      return indirect ? Kind::indirect_call : Kind::call;
    case ZYDIS_MNEMONIC_RET:
      return Kind::ret;
    case ZYDIS_MNEMONIC_LOOP:
    case ZYDIS_MNEMONIC_LOOPE:
    case ZYDIS_MNEMONIC_LOOPNE:
    case ZYDIS_MNEMONIC_JCXZ:
    case ZYDIS_MNEMONIC_JECXZ:
    case ZYDIS_MNEMONIC_JRCXZ:
      return Kind::conditional;
    default:
      return Kind::direct;
  }
}

}  // namespace

Core::Core(Memory& memory, EventSink& event_sink, Environment& environment, const CpuOptions& cpu_options)
    : mem(memory), sink(event_sink), env(environment), options(cpu_options) {
  buckets.resize(std::size_t{1} << 14);
  scratch.ops = scratch_ops.data();
  set_mode();
}

u64 Core::stretch_instructions() const {
  return Weight::instructions(start) - Weight::instructions(rem) + static_cast<u64>(extra_instructions);
}
u64 Core::stretch_cycles() const {
  return Weight::cycles(start) - Weight::cycles(rem) + static_cast<u64>(extra_cycles);
}
u64 Core::stretch_branches() const {
  return Weight::branches(start) - Weight::branches(rem) + static_cast<u64>(extra_branches);
}

u64 Core::cycles_to_ref(u64 cycles) const {
  return static_cast<u64>(static_cast<u128>(cycles) * options.tsc_ratio / options.core_ratio);
}

u64 Core::now_tsc() const { return tsc_base + cycles_to_ref(totals.cycles + stretch_cycles()); }

void Core::add_cycles(u64 cycles) {
  if ((rem & Weight::guard) == 0 && cycles <= Weight::cycles(rem)) {
    rem -= cycles << Weight::cycles_shift;
    return;
  }
  extra_cycles += static_cast<s64>(cycles);
  budget_set = false;
  attention = true;
}

void Core::refund(const Op* from) {
  for (const Op* end = block->ops + block->count; from < end; ++from) {
    extra_instructions -= 1;
    extra_cycles -= from->cycles;
    extra_branches -= from->branch ? 1 : 0;
  }
}

void Core::sync() {
  const u64 instructions = stretch_instructions();
  const u64 cycles = stretch_cycles();
  const u64 branches = stretch_branches();
  start = rem = 0;
  extra_instructions = extra_cycles = extra_branches = 0;
  budget_set = false;
  if ((instructions | cycles | branches) == 0) return;
  model::Activity activity = pending;
  pending = {};
  activity[model::Event::instructions] = instructions;
  activity[model::Event::cycles] = cycles;
  activity[model::Event::branches] = branches;
  const u64 ref_before = cycles_to_ref(totals.cycles);
  totals.instructions += instructions;
  totals.cycles += cycles;
  totals.branches += branches;
  activity[model::Event::ref_cycles] = cycles_to_ref(totals.cycles) - ref_before;
  if (sink.advance(activity, ring)) overflowed = true;
}

void Core::sync_if_ring_changed() {
  if (ring == ring_of(cpl)) return;
  sync();
  ring = ring_of(cpl);
}

void Core::update_tlb_choice() {
  const bool checks_alignment = cpl == 3 && (system_flags & flag::ac) != 0 && (cr0 & cr0::am) != 0;
  tlb = use_cache || checks_alignment ? &no_tlb : &tlbs[user() ? 1 : 0];
}

void Core::set_slow_mode() {
  const bool wants_cache = sink.uses(model::Event::llc_references) || sink.uses(model::Event::llc_misses);
  const bool wants_predictor = sink.uses(model::Event::branch_misses);
  if (wants_cache && !use_cache) cache.reset();
  if (wants_predictor && !use_predictor) predictor.reset();
  use_cache = wants_cache;
  use_predictor = wants_predictor;
  slow = wants_cache || wants_predictor || sink.uses_edges();
  update_tlb_choice();
}

bool Core::set_budget() {
  // Everything so far in this stretch becomes `extra`, and the budget starts from there.
  extra_instructions = static_cast<s64>(stretch_instructions());
  extra_cycles = static_cast<s64>(stretch_cycles());
  extra_branches = static_cast<s64>(stretch_branches());
  start = rem = 0;
  set_slow_mode();
  const EventSink::Headroom h = sink.headroom(ring);

  u64 cycles_allowed = h.cycles;
  const u64 ref_now = cycles_to_ref(totals.cycles);
  // The cycles with which the reference clock first reaches a count.
  const auto first_cycle = [&](u64 ref) {
    const u128 product = static_cast<u128>(ref) * options.core_ratio;
    const u128 cycle = (product + options.tsc_ratio - 1) / options.tsc_ratio;
    return cycle > EventSink::Headroom::unlimited ? EventSink::Headroom::unlimited : static_cast<u64>(cycle);
  };
  if (h.ref_cycles < EventSink::Headroom::unlimited - ref_now - 1) {
    cycles_allowed = std::min(cycles_allowed, first_cycle(ref_now + h.ref_cycles + 1) - 1 - totals.cycles);
  }
  bool must_sync =
      stretch_instructions() > h.instructions || stretch_cycles() > cycles_allowed || stretch_branches() > h.branches;
  for (const u64 each : pending.count) must_sync = must_sync || each > h.other;
  for (const u64 each : pending.edges) must_sync = must_sync || each > h.other;
  if (must_sync) {
    sync();
    return false;
  }

  u64 instructions_allowed = h.instructions;
  const u64 retired = totals.instructions + stretch_instructions();
  if (retired >= instruction_limit) {
    exit = Exit{.reason = ExitReason::instruction_limit};
    return false;
  }
  if (instruction_limit != ~u64{0}) {
    instructions_allowed = std::min(instructions_allowed, instruction_limit - 1 - totals.instructions);
  }
  if (deadline != ~u64{0}) {
    if (now_tsc() >= deadline) {
      exit = Exit{.reason = ExitReason::deadline};
      return false;
    }
    cycles_allowed = std::min(cycles_allowed, first_cycle(deadline - tsc_base) - 1 - totals.cycles);
  }
  start = rem = Weight::pack(saturate(instructions_allowed, stretch_instructions()),
                             saturate(cycles_allowed, stretch_cycles()), saturate(h.branches, stretch_branches()));
  budget_set = true;
  return true;
}

void Core::run_guarded(Block* first) {
  attention = false;
  restart = false;
  op = nullptr;
  try {
    dispatch(this, first);
  } catch (const Fault& f) {
    fault = f;
    restart = false;
    if (op != nullptr) {
      refund(op);
      rip = op->next - op->length;
      if (!code64()) rip &= 0xffffffff;
    }
  } catch (const MmioExit&) {
    restart = false;
    refund(op);
    rip = op->next - op->length;
    if (!code64()) rip &= 0xffffffff;
    exit = Exit{.reason = ExitReason::mmio, .ring = ring_of(cpl)};
  }
  if (restart) {
    extra_instructions -= 1;
    rip = op->next - op->length;
    if (!code64()) rip &= 0xffffffff;
  }
  attention = false;
}

void Core::run_exact(Block* first, bool one) {
  const u64 instructions = Weight::instructions(rem);
  const u64 cycles = Weight::cycles(rem);
  const u64 branches = Weight::branches(rem);
  u64 n = 0;
  u64 c = 0;
  u64 b = 0;
  do {
    const Op& each = first->ops[n];
    scratch_ops[n] = each;
    c += each.cycles;
    b += each.branch ? 1 : 0;
    ++n;
  } while (n < first->count && !one && n <= instructions && c <= cycles && b <= branches);
  const void* const* table = dispatch(nullptr, nullptr);
  Op& last = scratch_ops[n - 1];
  last.form = last.plain;
  last.go = table[static_cast<std::size_t>(last.plain)];
  Op& stop = scratch_ops[n];
  stop = Op{};
  stop.form = stop.plain = Form::stop;
  stop.go = table[static_cast<std::size_t>(Form::stop)];
  stop.next = last.next;
  stop.cycles = 0;
  scratch.rip = first->rip;
  scratch.count = static_cast<u16>(n);
  scratch.link_key = {0, 0};

  extra_instructions = static_cast<s64>(stretch_instructions() + n);
  extra_cycles = static_cast<s64>(stretch_cycles() + c);
  extra_branches = static_cast<s64>(stretch_branches() + b);
  start = rem = Weight::exhausted;
  budget_set = false;
  block = &scratch;
  run_guarded(&scratch);
}

void Core::step_models(Block* first) {
  const u64 instructions = stretch_instructions();
  const u64 cycles = stretch_cycles();
  const u64 synced = totals.instructions;
  const auto references = pending[model::Event::llc_references];
  const auto misses = pending[model::Event::llc_misses];
  run_exact(first, true);
  const Op& done = scratch_ops[0];
  const bool handed_over = totals.instructions != synced || stretch_instructions() < instructions;
  const bool retired = handed_over ? stretch_instructions() != 0 : stretch_instructions() != instructions;
  const u64 took = handed_over ? stretch_cycles() : stretch_cycles() - cycles;
  if (!retired) {
    last_cycle_had_instruction = last_cycle_had_branch = last_cycle_had_branch_miss = false;
    last_cycle_had_reference = last_cycle_had_miss = false;
    return;
  }
  bool branch_missed = false;
  if (use_predictor) {
    if (const auto kind = branch_kind(done)) {
      branch_missed = predictor.branch(*kind, done.next - done.length, done.next, rip, rip != done.next);
      pending[model::Event::branch_misses] += branch_missed ? 1 : 0;
    }
  }
  // An event happens in an instruction's last cycle; the one before had it only if the instruction took just one.
  const auto edge = [&](model::Event event, bool happened, bool& last) {
    if (happened && !(took == 1 && last)) ++pending.edges[model::index_of(event)];
    last = happened;
  };
  edge(model::Event::instructions, true, last_cycle_had_instruction);
  edge(model::Event::branches, done.branch, last_cycle_had_branch);
  edge(model::Event::branch_misses, branch_missed, last_cycle_had_branch_miss);
  edge(model::Event::llc_references, pending[model::Event::llc_references] != references, last_cycle_had_reference);
  edge(model::Event::llc_misses, pending[model::Event::llc_misses] != misses, last_cycle_had_miss);
}

void Core::note_fruitless(u64 weight) {
  const u64 retired = totals.instructions + stretch_instructions();
  if (retired != fruitless_since) {
    fruitless_since = retired;
    fruitless = 0;
  }
  fruitless += weight;
  if (fruitless >= too_fruitless) exit = Exit{.reason = ExitReason::stuck};
}

void Core::settle() {
  if (restart) {
    restart = false;
    note_fruitless(1);
  }
  if (!fault) return;
  note_fruitless(exception_weight);
  const Fault f = *fault;
  fault.reset();
  deliver(f.vector, f.error, Cause::fault);
  if (options.exceptions_are_branches) extra_branches += 1;
  sync_if_ring_changed();
  extra_cycles += cost::exception;
  budget_set = false;
}

bool Core::wants_exit(ExitReason reason, bool intercepted, u32 index) {
  if (!intercepted || emulating) return false;
  refund(op);
  rip = op->next - op->length;
  if (!code64()) rip &= 0xffffffff;
  exit = Exit{.reason = reason, .ring = ring_of(cpl), .index = index};
  attention = true;
  return true;
}

Exit Core::run() {
  exit.reset();
  if (fruitless >= too_fruitless) exit = Exit{.reason = ExitReason::stuck};  // Found out by emulate().
  const auto finish = [this](Exit e) {
    sync();
    e.ring = ring_of(cpl);
    e.overflowed = overflowed;
    overflowed = false;
    exit.reset();
    return e;
  };
  const auto interrupt = [this](u8 which, Cause cause) {
    deliver(which, std::nullopt, cause);
    if (observer != nullptr && cause == Cause::external) observer->interrupt_taken(which, gpr[rsp]);
    if (options.exceptions_are_branches) extra_branches += 1;
    sync_if_ring_changed();
    extra_cycles += cost::interrupt;
    budget_set = false;
  };
  for (;;) {
    if (is_shutdown) return finish(Exit{.reason = ExitReason::shutdown});
    if (exit) return finish(*exit);
    if (stop_wanted()) return finish(Exit{.reason = ExitReason::stop});
    sync_if_ring_changed();
    if (!budget_set && !set_budget()) {
      if (overflowed) return finish(Exit{.reason = ExitReason::overflow});
      continue;
    }
    if (overflowed) return finish(Exit{.reason = ExitReason::overflow});

    if (!shadow) {
      if (trap_pending) {
        trap_pending = false;
        interrupt(vector::db, Cause::trap);
        continue;
      }
      if (nmi_requested && !nmi_blocked) {
        nmi_requested = false;
        interrupt(vector::nmi, Cause::external);
        continue;
      }
      if ((system_flags & flag::if_) != 0) {
        if (const auto which = env.pending_vector()) {
          env.acknowledge(*which);
          interrupt(*which, Cause::external);
          continue;
        }
      }
    }

    op = nullptr;
    Block* next = nullptr;
    try {
      next = find_block();
    } catch (const Fault& f) {
      fault = f;
      settle();
      continue;
    }
    const bool one = shadow || (system_flags & (flag::tf | flag::rf)) != 0;
    if (one || slow) {
      const bool traps = (system_flags & flag::tf) != 0;
      shadow = false;
      system_flags &= ~flag::rf;
      suppress_trap = false;
      if (slow) {
        step_models(next);
      } else {
        run_exact(next, true);
      }
      if (traps && !fault && !exit && !restart && !suppress_trap && !shadow) {
        trap_pending = true;
        dr[6] |= 0x4000;
      }
    } else if (const u64 left = rem - next->weight; (left & Weight::guard) == 0) {
      rem = left;
      block = next;
      run_guarded(next);
    } else if (rem != start) {
      // Not for this budget; perhaps for a new one.
      budget_set = false;
      continue;
    } else {
      run_exact(next, false);
    }
    settle();
  }
}

bool Core::emulate() {
  sync();
  ring = ring_of(cpl);
  overflowed = false;
  exit.reset();
  op = nullptr;
  const bool traps = (system_flags & flag::tf) != 0;
  shadow = false;
  system_flags &= ~flag::rf;
  emulating = true;
  try {
    Block* next = find_block();
    run_exact(next, true);
  } catch (const Fault& f) {
    fault = f;
  }
  emulating = false;
  // The machine counts it, not the CPU.
  start = rem = 0;
  extra_instructions = extra_cycles = extra_branches = 0;
  budget_set = false;
  pending = {};
  exit.reset();
  const bool retired = !fault && !restart;
  if (retired) fruitless = 0;
  if (retired && traps) {
    trap_pending = true;
    dr[6] |= 0x4000;
  }
  settle();
  return retired;
}

void Core::record_unknown(const Insn& i) {
  const u64 at = i.next - i.length;
  for (UnknownInstruction& each : unknown) {
    if (each.rip == at) {
      ++each.times;
      return;
    }
  }
  // Enough to act on; a hostile guest could fill memory with more.
  if (unknown.size() >= 64) return;
  const char* mnemonic = ZydisMnemonicGetString(static_cast<ZydisMnemonic>(i.mnemonic));
  std::string text = mnemonic != nullptr ? mnemonic : "invalid";
  text += " (";
  constexpr char digits[] = "0123456789abcdef";
  for (unsigned n = 0; n < i.length; ++n) {
    if (n > 0) text += ' ';
    text += digits[i.bytes[n] >> 4];
    text += digits[i.bytes[n] & 15];
  }
  text += ")";
  unknown.push_back({std::move(text), at, 1});
}

}  // namespace vpmu::soft
