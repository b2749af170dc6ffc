// Far jumps, calls and returns, and IRET.
#include "machine/soft/core.hpp"
#include "machine/soft/observer.hpp"

namespace vpmu::soft {

namespace {

/// Undoes a transfer that faults half-way; CR2 keeps the fault's address.
template <class F>
void all_or_nothing(Core& c, F transfer) {
  const CpuState before = c;
  try {
    transfer();
  } catch (...) {
    const u64 address = c.cr2;
    static_cast<CpuState&>(c) = before;
    c.cr2 = address;
    c.set_mode();
    throw;
  }
}

}  // namespace

void Core::far_transfer(const Insn& i, u16 selector, u64 offset, bool call) {
  all_or_nothing(*this, [&] {
    if ((selector & ~3) == 0) raise_gp();
    const u32 code = selector & ~3u;
    Descriptor d = descriptor(selector);
    Segment target = d.segment(selector);
    u8 new_cpl = cpl;
    unsigned bytes = i.operand_bytes;
    u16 to = selector;
    if (!target.is_code()) {
      // A call gate, to the same or (for calls) an inner level without parameters.
      const u8 type = d.type();
      const bool wide = long_mode();
      if (type != 0xc && (wide || type != 4)) raise_gp(code);
      if (d.dpl() < cpl || d.dpl() < (selector & 3)) raise_gp(code);
      if (!d.present()) raise(vector::np, code);
      if (wide) d.high = descriptor_high(d);
      offset = d.gate_offset(wide);
      to = d.gate_selector();
      bytes = wide ? 8 : (type == 0xc ? 4 : 2);
      if ((to & ~3) == 0) raise_gp();
      d = descriptor(to);
      target = d.segment(to);
      if (!target.is_code() || target.dpl() > cpl) raise_gp(to & ~3u);
      if (wide && (!target.is_long() || target.is_big())) raise_gp(to & ~3u);
      if (call && !target.conforming()) {
        new_cpl = target.dpl();
      } else if (!target.conforming() && target.dpl() != cpl) {
        raise_gp(to & ~3u);
      }
    } else if (target.conforming() ? target.dpl() > cpl : ((selector & 3) > cpl || target.dpl() != cpl)) {
      raise_gp(code);
    }
    if (!target.present()) raise(vector::np, to & ~3u);
    if (long_mode() && target.is_long() && target.is_big()) raise_gp(to & ~3u);
    const u16 old_cs = segment(Seg::cs).selector;
    const u64 return_to = i.next;
    if (new_cpl != cpl) {
      const u16 old_ss = segment(Seg::ss).selector;
      const u64 old_rsp = gpr[rsp];
      if (long_mode()) {
        const u64 slot = 4 + u64{new_cpl} * 8;
        if (!tr.usable || slot + 7 > tr.limit) raise(vector::ts, tr.selector & ~3u);
        const u64 stack = read_linear(tr.base + slot, 8, false);
        load_null_ss(new_cpl);
        load_cs(to, d, new_cpl);
        gpr[rsp] = stack;
      } else {
        const u64 slot = 4 + u64{new_cpl} * 8;
        if (!tr.usable || slot + 5 > tr.limit) raise(vector::ts, tr.selector & ~3u);
        const u64 stack = read_linear((tr.base + slot) & 0xffffffff, 4, false);
        const u16 ss = static_cast<u16>(read_linear((tr.base + slot + 4) & 0xffffffff, 2, false));
        load_ss(ss, new_cpl, vector::ts);
        load_cs(to, d, new_cpl);
        set_rsp(stack);
      }
      push(old_ss, bytes);
      push(old_rsp, bytes);
      push(old_cs, bytes);
      push(return_to, bytes);
    } else {
      if (call) {
        push(old_cs, bytes);
        push(return_to, bytes);
      }
      load_cs(to, d, new_cpl);
    }
    if (code64() ? !is_canonical(offset) : offset > segment(Seg::cs).limit) raise_gp();
    rip = offset;
  });
}

Core::Descriptor Core::return_segment(u16 selector) {
  if ((selector & ~3) == 0) raise_gp();
  const u32 code = selector & ~3u;
  const u8 rpl = selector & 3;
  const Descriptor d = descriptor(selector);
  const Segment s = d.segment(selector);
  if (!s.is_code() || rpl < cpl) raise_gp(code);
  if (s.conforming() ? s.dpl() > rpl : s.dpl() != rpl) raise_gp(code);
  if (long_mode() && s.is_long() && s.is_big()) raise_gp(code);
  if (!s.present()) raise(vector::np, code);
  return d;
}

void Core::return_outward(u16 cs_selector, const Descriptor& cs, u64 to, u64 stack, u16 ss_selector) {
  const u8 new_cpl = cs_selector & 3;
  const bool outward = new_cpl != cpl;
  const bool to_long = long_mode() && cs.segment(cs_selector).is_long();
  if ((ss_selector & ~3) == 0 && to_long && new_cpl != 3) {
    if ((ss_selector & 3) != new_cpl) raise_gp(ss_selector & ~3u);
    load_null_ss(new_cpl);
    segment(Seg::ss).selector = ss_selector;
  } else {
    load_ss(ss_selector, new_cpl, vector::gp);
  }
  if (to_long ? !is_canonical(to) : to > cs.segment(cs_selector).limit) raise_gp();
  load_cs(cs_selector, cs, new_cpl);
  rip = to;
  set_rsp(stack);
  if (outward) drop_inaccessible_segments();
}

void Core::far_return(const Insn& i, u64 release) {
  all_or_nothing(*this, [&] {
    const unsigned bytes = i.operand_bytes;
    const u64 to = pop(bytes);
    const u16 selector = static_cast<u16>(pop(bytes));
    const Descriptor cs = return_segment(selector);
    set_rsp(gpr[rsp] + release);
    if ((selector & 3) != cpl) {
      const u64 stack = pop(bytes);
      const u16 ss = static_cast<u16>(pop(bytes));
      return_outward(selector, cs, to, stack + release, ss);
    } else {
      const bool to_long = long_mode() && cs.segment(selector).is_long();
      if (to_long ? !is_canonical(to) : to > cs.segment(selector).limit) raise_gp();
      load_cs(selector, cs, cpl);
      rip = to;
    }
  });
}

void Core::interrupt_return(const Insn& i) {
  // Even one that faults unblocks NMIs (SDM Vol. 3A 6.7.1).
  nmi_blocked = false;
  attention = true;
  const u64 frame = gpr[rsp];
  all_or_nothing(*this, [&] {
    if ((system_flags & flag::nt) != 0) raise_gp();  // In long mode; elsewhere it would be a task switch.
    const bool was64 = code64();
    const unsigned bytes = i.operand_bytes;
    const u64 to = pop(bytes);
    const u16 selector = static_cast<u16>(pop(bytes));
    const u64 flags = pop(bytes);
    const Descriptor cs = return_segment(selector);
    const u8 old_cpl = cpl;
    if (was64 || (selector & 3) != cpl) {
      const u64 stack = pop(bytes);
      const u16 ss = static_cast<u16>(pop(bytes));
      return_outward(selector, cs, to, stack, ss);
    } else {
      const bool to_long = long_mode() && cs.segment(selector).is_long();
      if (to_long ? !is_canonical(to) : to > cs.segment(selector).limit) raise_gp();
      load_cs(selector, cs, cpl);
      rip = to;
    }
    const u8 new_cpl = cpl;
    cpl = old_cpl;  // Whose privilege decides about IF and IOPL.
    set_flags_from_stack(flags, bytes, true);
    cpl = new_cpl;
  });
  if (observer != nullptr) observer->interrupt_returns(frame);
}

}  // namespace vpmu::soft
