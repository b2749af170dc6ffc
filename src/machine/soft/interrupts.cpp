// Exceptions and interrupts: through the IDT, with their error codes and stacks (SDM Vol. 3A ch. 6).
#include "machine/soft/core.hpp"

namespace vpmu::soft {

namespace {

bool is_contributory(u8 which) { return which == vector::de || (which >= vector::ts && which <= vector::gp); }

/// Whether a second exception, met while the first was delivered, makes a double fault (SDM table 6-5).
bool makes_double_fault(u8 first, u8 second) {
  if (is_contributory(first)) return is_contributory(second);
  if (first == vector::pf) return is_contributory(second) || second == vector::pf;
  return false;
}

}  // namespace

void raise(u8 vector) { throw Fault{vector, std::nullopt}; }
void raise(u8 vector, u32 error) { throw Fault{vector, error}; }

u64 Core::pushed_flags(Cause cause) const {
  // Faults resume their instruction, which must not hit its own breakpoint again (SDM Vol. 3B 17.3.1.1).
  return cause == Cause::fault ? rflags() | flag::rf : rflags();
}

void Core::deliver(u8 which, std::optional<u32> error, Cause cause) {
  last_vector = which;
  bool is_exception = cause != Cause::external;
  if (which == vector::nmi && cause == Cause::external) {
    ++totals.nmis;
  } else {
    ++(is_exception ? totals.exceptions : totals.interrupts);
  }
  for (;;) {
    const CpuState before = *this;
    const auto restore = [&] {
      const u64 address = cr2;
      static_cast<CpuState&>(*this) = before;
      cr2 = address;
      set_mode();
    };
    try {
      enter_vector(which, error, cause);
      shadow = false;
      return;
    } catch (const Fault& next) {
      restore();
      if (is_exception && which == vector::df) {
        is_shutdown = true;
        return;
      }
      if (is_exception && makes_double_fault(which, next.vector)) {
        which = vector::df;
        error = 0;
      } else {
        which = next.vector;
        error = next.error;
      }
      cause = Cause::fault;
      is_exception = true;
    } catch (const MmioExit&) {
      // A stack or table in the APIC's page.
      restore();
      is_shutdown = true;
      return;
    }
  }
}

void Core::enter_vector(u8 which, std::optional<u32> error, Cause cause) {
  if (long_mode()) {
    enter_vector64(which, error, cause);
  } else {
    enter_vector32(which, error, cause);
  }
  if (which == vector::nmi && cause == Cause::external) nmi_blocked = true;
}

void Core::software_interrupt(u8 which, Cause cause) {
  const CpuState before = *this;
  try {
    enter_vector(which, std::nullopt, cause);
  } catch (...) {
    const u64 address = cr2;
    static_cast<CpuState&>(*this) = before;
    cr2 = address;
    set_mode();
    throw;
  }
  attention = true;
  suppress_trap = true;
}

void Core::enter_vector64(u8 which, std::optional<u32> error, Cause cause) {
  const u32 external = cause == Cause::software ? 0 : 1;
  const u32 gate_code = (u32{which} << 3) | 2 | external;
  const u64 offset = u64{which} * 16;
  if (offset + 15 > idtr.limit) raise_gp(gate_code);
  Descriptor gate;
  gate.low = read_linear(idtr.base + offset, 8, false);
  gate.high = read_linear(idtr.base + offset + 8, 8, false) & 0xffffffff;
  if (gate.type() != 0xe && gate.type() != 0xf) raise_gp(gate_code);
  if (cause == Cause::software && gate.dpl() < cpl) raise_gp(gate_code);
  if (!gate.present()) raise(vector::np, gate_code);

  const u16 selector = gate.gate_selector();
  if ((selector & ~3) == 0) raise_gp(external);
  const Descriptor code = descriptor(selector, vector::gp, external);
  const Segment target = code.segment(selector);
  const u32 selector_code = (selector & ~3u) | external;
  if (!target.is_code() || target.dpl() > cpl) raise_gp(selector_code);
  if (!target.present()) raise(vector::np, selector_code);
  if (!target.is_long() || target.is_big()) raise_gp(selector_code);
  const u8 new_cpl = target.conforming() ? cpl : target.dpl();

  const unsigned ist = (gate.low >> 32) & 7;
  u64 stack = gpr[rsp];
  if (ist != 0 || new_cpl != cpl) {
    const u64 slot = ist != 0 ? 36 + u64{ist - 1} * 8 : 4 + u64{new_cpl} * 8;
    if (!tr.usable || slot + 7 > tr.limit) raise(vector::ts, (tr.selector & ~3u) | external);
    stack = read_linear(tr.base + slot, 8, false);
    if (!is_canonical(stack)) raise(vector::ss, external);
  }
  const u64 handler = gate.gate_offset(true);
  if (!is_canonical(handler)) raise_gp(external);

  const u64 flags = pushed_flags(cause);
  const std::array<u64, 5> frame{rip, segment(Seg::cs).selector, flags, gpr[rsp], segment(Seg::ss).selector};
  stack &= ~u64{15};
  for (unsigned n = 0; n < frame.size(); ++n) {
    stack -= 8;
    if (!is_canonical(stack)) raise(vector::ss, external);
    write_linear(stack, 8, frame[frame.size() - 1 - n], new_cpl == 3);
  }
  if (error) {
    stack -= 8;
    write_linear(stack, 8, *error, new_cpl == 3);
  }
  if (new_cpl != cpl) load_null_ss(new_cpl);
  load_cs(selector, code, new_cpl);
  gpr[rsp] = stack;
  rip = handler;
  system_flags &= ~(flag::tf | flag::nt | flag::rf | flag::vm);
  if (gate.type() == 0xe) system_flags &= ~flag::if_;
}

void Core::enter_vector32(u8 which, std::optional<u32> error, Cause cause) {
  const u32 external = cause == Cause::software ? 0 : 1;
  const u32 gate_code = (u32{which} << 3) | 2 | external;
  const u64 offset = u64{which} * 8;
  if (offset + 7 > idtr.limit) raise_gp(gate_code);
  Descriptor gate;
  gate.low = read_linear((idtr.base + offset) & 0xffffffff, 8, false);
  const u8 type = gate.type();
  // Task gates are not supported: as if the gate were of no valid type.
  if (type != 0xe && type != 0xf && type != 6 && type != 7) raise_gp(gate_code);
  if (cause == Cause::software && gate.dpl() < cpl) raise_gp(gate_code);
  if (!gate.present()) raise(vector::np, gate_code);
  const unsigned bytes = (type & 8) != 0 ? 4 : 2;

  const u16 selector = gate.gate_selector();
  if ((selector & ~3) == 0) raise_gp(external);
  const Descriptor code = descriptor(selector, vector::gp, external);
  const Segment target = code.segment(selector);
  const u32 selector_code = (selector & ~3u) | external;
  if (!target.is_code() || target.dpl() > cpl) raise_gp(selector_code);
  if (!target.present()) raise(vector::np, selector_code);
  const u8 new_cpl = target.conforming() ? cpl : target.dpl();

  const u64 flags = pushed_flags(cause);
  const u16 old_cs = segment(Seg::cs).selector;
  const u16 old_ss = segment(Seg::ss).selector;
  const u64 old_rsp = gpr[rsp];
  const u64 old_rip = rip;
  if (new_cpl != cpl) {
    const u64 slot = 4 + u64{new_cpl} * 8;
    if (!tr.usable || slot + 5 > tr.limit) raise(vector::ts, (tr.selector & ~3u) | external);
    const u64 stack = read_linear((tr.base + slot) & 0xffffffff, 4, false);
    const u16 stack_selector = static_cast<u16>(read_linear((tr.base + slot + 4) & 0xffffffff, 2, false));
    load_ss(stack_selector, new_cpl, vector::ts, external);
    load_cs(selector, code, new_cpl);
    set_rsp(stack);
    push(old_ss, bytes);
    push(old_rsp, bytes);
  } else {
    load_cs(selector, code, new_cpl);
  }
  push(flags, bytes);
  push(old_cs, bytes);
  push(old_rip, bytes);
  if (error) push(*error, bytes);
  rip = truncate(gate.gate_offset(false), bytes);
  if (rip > segment(Seg::cs).limit) raise_gp(external);
  system_flags &= ~(flag::tf | flag::nt | flag::rf | flag::vm);
  if ((type & 1) == 0) system_flags &= ~flag::if_;
}

}  // namespace vpmu::soft
