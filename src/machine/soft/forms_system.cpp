// Privileged instructions, and those that the machine may have to complete.
#include <Zydis/Zydis.h>

#include "machine/soft/forms.hpp"

namespace vpmu::soft {

namespace {

void require_umip(const Core& c) {
  if (c.cpl != 0 && (c.cr4 & cr4::umip) != 0) raise_gp();
}

// --- flags ---

void pushf(Core& c, const Insn& i) {
  const unsigned bytes = i.operand_bytes;
  c.push(c.rflags() & ~(flag::rf | flag::vm), bytes);
}

void popf(Core& c, const Insn& i) {
  const unsigned bytes = i.operand_bytes;
  c.set_flags_from_stack(c.pop(bytes), bytes, false);
}

void cli(Core& c, const Insn&) {
  if (c.cpl > ((c.system_flags & flag::iopl) >> 12)) raise_gp();
  c.system_flags &= ~flag::if_;
}

void sti(Core& c, const Insn&) {
  if (c.cpl > ((c.system_flags & flag::iopl) >> 12)) raise_gp();
  if ((c.system_flags & flag::if_) == 0) c.shadow = true;
  c.system_flags |= flag::if_;
  c.attention = true;
}

// --- moves of segment, control and debug registers ---

void mov_to_segment(Core& c, const Insn& i) {
  const Seg which = static_cast<Seg>(i.op[0].reg);
  if (which == Seg::cs || i.op[0].reg >= seg_count) raise_ud();
  c.load_segment(which, static_cast<u16>(c.get(i, 1)));
  if (which == Seg::ss) c.shadow = true;
  c.attention = true;
}

u64 read_cr(Core& c, u8 which) {
  switch (which) {
    case 0:
      return c.cr0;
    case 2:
      return c.cr2;
    case 3:
      return c.cr3;
    case 4:
      return c.cr4;
    case 8:
      return c.env.task_priority();
    default:
      raise_ud();
  }
}

void write_cr(Core& c, u8 which, u64 value) {
  switch (which) {
    case 0:
      c.write_cr0(value);
      break;
    case 2:
      c.cr2 = value;
      break;
    case 3:
      c.write_cr3(value);
      break;
    case 4:
      c.write_cr4(value);
      break;
    case 8:
      if (value > 15) raise_gp();
      c.env.set_task_priority(value);
      break;
    default:
      raise_ud();
  }
  c.attention = true;
}

u8 debug_register(const Core& c, u8 which) {
  if (which == 4 || which == 5) {
    if ((c.cr4 & cr4::de) != 0) raise_ud();
    return static_cast<u8>(which + 2);
  }
  if (which > 7) raise_ud();
  return which;
}

void mov_special(Core& c, const Insn& i) {
  using Kind = Operand::Kind;
  const Operand& a = i.op[0];
  const Operand& b = i.op[1];
  if (a.kind == Kind::seg) {
    mov_to_segment(c, i);
  } else if (b.kind == Kind::seg) {
    // Memory gets two bytes whatever the operand size; registers are zero-extended.
    if (a.kind == Kind::mem) {
      c.write_seg(i.seg, c.offset_of(i), 2, c.seg[b.reg].selector);
    } else {
      c.set_reg(a.reg, a.bytes, c.seg[b.reg].selector);
    }
  } else if (a.kind == Kind::cr) {
    c.require_cpl0();
    write_cr(c, a.reg, c.reg(b.reg, b.bytes));
  } else if (b.kind == Kind::cr) {
    c.require_cpl0();
    c.set_reg(a.reg, a.bytes, read_cr(c, b.reg));
  } else if (a.kind == Kind::dr) {
    c.require_cpl0();
    const u64 value = c.reg(b.reg, b.bytes);
    const u8 which = debug_register(c, a.reg);
    if (which >= 6 && value >> 32 != 0) raise_gp();
    if (which == 6) {
      c.dr[6] = (value & 0xe00f) | 0xffff0ff0;
    } else if (which == 7) {
      c.dr[7] = (value & 0xffff2bff) | 0x400;
    } else {
      c.dr[which] = value;
    }
  } else if (b.kind == Kind::dr) {
    c.require_cpl0();
    c.set_reg(a.reg, a.bytes, c.dr[debug_register(c, b.reg)]);
  } else {
    c.set(i, 0, c.get(i, 1));
  }
}

/// LDS, LES, LFS, LGS, LSS.
template <Seg S>
void load_far_pointer(Core& c, const Insn& i) {
  const u64 at = c.offset_of(i);
  const u64 offset = c.read_seg(i.seg, at, i.operand_bytes);
  const u64 selector = c.read_seg(i.seg, truncate(at + i.operand_bytes, i.address_bytes), 2);
  c.load_segment(S, static_cast<u16>(selector));
  c.set_reg(i.op[0].reg, i.op[0].bytes, offset);
  c.attention = true;
}

// --- descriptor tables ---

template <bool Interrupts>
void load_table(Core& c, const Insn& i) {
  c.require_cpl0();
  const u64 at = c.offset_of(i);
  const u64 limit = c.read_seg(i.seg, at, 2);
  const unsigned bytes = c.code64() ? 8 : 4;
  u64 base = c.read_seg(i.seg, truncate(at + 2, i.address_bytes), bytes);
  if (i.operand_bytes == 2 && !c.code64()) base &= 0xffffff;
  if (!is_canonical(base)) raise_gp();
  (Interrupts ? c.idtr : c.gdtr) = {base, static_cast<u16>(limit)};
}

template <bool Interrupts>
void store_table(Core& c, const Insn& i) {
  require_umip(c);
  const DescriptorTable& table = Interrupts ? c.idtr : c.gdtr;
  const u64 at = c.offset_of(i);
  const unsigned bytes = c.code64() ? 8 : 4;
  // All of it must be writable before any of it is written.
  c.probe(c.linear_address(i.seg, at, 2 + bytes, true), 2 + bytes, Access::write, c.user());
  c.write_seg(i.seg, at, 2, table.limit);
  c.write_seg(i.seg, truncate(at + 2, i.address_bytes), bytes, truncate(table.base, bytes));
}

void lldt(Core& c, const Insn& i) {
  c.require_cpl0();
  const u16 selector = static_cast<u16>(c.get(i, 0));
  if ((selector & ~3) == 0) {
    c.ldtr = Segment{};
    c.ldtr.selector = selector;
    return;
  }
  c.load_system_segment(c.ldtr, selector, 2);
}

void ltr(Core& c, const Insn& i) {
  c.require_cpl0();
  const u16 selector = static_cast<u16>(c.get(i, 0));
  if ((selector & ~3) == 0) raise_gp();
  c.load_system_segment(c.tr, selector, 9);
}

void store_selector(Core& c, const Insn& i, u64 value) {
  if (i.op[0].kind == Operand::Kind::mem) {
    c.write_seg(i.seg, c.offset_of(i), 2, truncate(value, 2));
  } else {
    c.set_reg(i.op[0].reg, i.op[0].bytes, value);
  }
}

void sldt(Core& c, const Insn& i) {
  require_umip(c);
  store_selector(c, i, c.ldtr.selector);
}

void str(Core& c, const Insn& i) {
  require_umip(c);
  store_selector(c, i, c.tr.selector);
}

void smsw(Core& c, const Insn& i) {
  require_umip(c);
  store_selector(c, i, c.cr0);
}

void lmsw(Core& c, const Insn& i) {
  c.require_cpl0();
  const u64 value = c.get(i, 0);
  // It can set PE but not clear it.
  c.write_cr0((c.cr0 & ~u64{0xe}) | (value & 0xf));
  c.attention = true;
}

void clts(Core& c, const Insn&) {
  c.require_cpl0();
  c.cr0 &= ~cr0::ts;
}

void set_zf(Core& c, bool on) { c.fl.set_bits((c.fl.value() & ~flag::zf) | (on ? flag::zf : 0)); }

/// What LAR, LSL, VERR and VERW may look at: a descriptor, if it is visible at this privilege level.
std::optional<Core::Descriptor> visible_descriptor(Core& c, u16 selector) {
  if ((selector & ~3) == 0) return std::nullopt;
  const bool local = (selector & 4) != 0;
  const u64 limit = local ? (c.ldtr.usable ? c.ldtr.limit : 0) : c.gdtr.limit;
  if ((selector | 7u) > limit) return std::nullopt;
  const Core::Descriptor d = c.descriptor(selector);
  const Segment s = d.segment(selector);
  if (!s.conforming() && (s.dpl() < c.cpl || s.dpl() < (selector & 3))) return std::nullopt;
  return d;
}

void lar(Core& c, const Insn& i) {
  const u16 selector = static_cast<u16>(c.get(i, 1));
  const auto d = visible_descriptor(c, selector);
  bool good = d.has_value();
  if (good && (d->type() & 0x10) == 0) {
    // System types with access rights (SDM Vol. 2A, LAR).
    const u32 types = c.long_mode() ? 0x1a04 : 0x1a3e;
    good = ((types >> d->type()) & 1) != 0;
  }
  if (good) c.set(i, 0, (d->low >> 32) & 0xffff00);
  set_zf(c, good);
}

void lsl(Core& c, const Insn& i) {
  const u16 selector = static_cast<u16>(c.get(i, 1));
  const auto d = visible_descriptor(c, selector);
  bool good = d.has_value();
  if (good && (d->type() & 0x10) == 0) {
    const u32 types = c.long_mode() ? 0x0a04 : 0x0a0e;
    good = ((types >> d->type()) & 1) != 0;
  }
  if (good) c.set(i, 0, d->segment(selector).limit);
  set_zf(c, good);
}

template <bool Write>
void verify(Core& c, const Insn& i) {
  const u16 selector = static_cast<u16>(c.get(i, 0));
  const auto d = visible_descriptor(c, selector);
  bool good = d.has_value() && (d->type() & 0x10) != 0;
  if (good) good = Write ? d->segment(selector).writable() : d->segment(selector).readable();
  set_zf(c, good);
}

void arpl(Core& c, const Insn& i) {
  const u64 to = c.get_for_write(i, 0);
  const u64 from = c.get(i, 1);
  const bool raises = (to & 3) < (from & 3);
  c.set(i, 0, raises ? (to & ~u64{3}) | (from & 3) : to);
  set_zf(c, raises);
}

// --- TLB and caches ---

void invlpg(Core& c, const Insn& i) {
  c.require_cpl0();
  const u64 base = c.code64() && i.seg < Seg::fs ? 0 : c.segment(i.seg).base;
  c.flush_page(base + c.offset_of(i));
  c.attention = true;
}

void privileged_nothing(Core& c, const Insn&) { c.require_cpl0(); }

void clflush(Core& c, const Insn& i) {
  const u64 linear = c.address_of(i, 1, false);
  const u64 physical = c.translate(linear, Access::read, c.user());
  if (c.use_cache) c.cache.evict(physical);
}

// --- FS and GS ---

template <Seg S, bool Write>
void segment_base(Core& c, const Insn& i) {
  if (!c.code64() || (c.cr4 & cr4::fsgsbase) == 0) raise_ud();
  Segment& s = c.segment(S);
  if constexpr (Write) {
    const u64 value = c.get(i, 0);
    if (!is_canonical(value)) raise_gp();
    s.base = value;
  } else {
    c.set(i, 0, s.base);
  }
}

void swapgs(Core& c, const Insn&) {
  if (!c.code64()) raise_ud();
  c.require_cpl0();
  std::swap(c.segment(Seg::gs).base, c.kernel_gs_base);
}

// --- what the machine may complete ---

/// Before the environment looks at counts: all but this instruction is handed over. This one is charged to the
/// stretch that begins, so that it is counted by what it sets up (FACTS: it takes effect, then itself retires).
void hand_over(Core& c) {
  if (c.emulating) return;
  const Op* self = c.op;
  c.refund(self);
  c.sync();
  c.extra_instructions += 1;
  c.extra_cycles += self->cycles;
  c.extra_branches += self->branch ? 1 : 0;
  c.attention = true;
}

void cpuid(Core& c, const Insn&) {
  if (c.wants_exit(ExitReason::cpuid, c.options.intercept_cpuid)) return;
  const CpuidLeaf leaf = c.env.cpuid(static_cast<u32>(c.gpr[rax]), static_cast<u32>(c.gpr[rcx]));
  c.gpr[rax] = leaf.eax;
  c.gpr[rbx] = leaf.ebx;
  c.gpr[rcx] = leaf.ecx;
  c.gpr[rdx] = leaf.edx;
}

void rdmsr(Core& c, const Insn&) {
  c.require_cpl0();
  const u32 index = static_cast<u32>(c.gpr[rcx]);
  if (c.wants_exit(ExitReason::rdmsr, c.options.intercept_msrs && !c.env.passes_msr(index), index)) return;
  hand_over(c);
  std::optional<u64> value = c.own_rdmsr(index);
  if (!value) value = c.env.rdmsr(index);
  if (!value) raise_gp();
  c.gpr[rax] = *value & 0xffffffff;
  c.gpr[rdx] = *value >> 32;
}

void wrmsr(Core& c, const Insn&) {
  c.require_cpl0();
  const u32 index = static_cast<u32>(c.gpr[rcx]);
  if (c.wants_exit(ExitReason::wrmsr, c.options.intercept_msrs && !c.env.passes_msr(index), index)) return;
  hand_over(c);
  const u64 value = (c.gpr[rdx] << 32) | (c.gpr[rax] & 0xffffffff);
  const std::optional<bool> own = c.own_wrmsr(index, value);
  const bool accepted = own ? *own : c.env.wrmsr(index, value);
  if (!accepted) raise_gp();
  c.attention = true;
}

void rdpmc(Core& c, const Insn&) {
  const u32 index = static_cast<u32>(c.gpr[rcx]);
  if (c.wants_exit(ExitReason::rdpmc, c.options.intercept_rdpmc && !c.env.passes_rdpmc(), index)) return;
  hand_over(c);
  const std::optional<u64> value = c.env.rdpmc(index);
  if (!value) raise_gp();
  // The index is checked first (FACTS).
  if (c.cpl != 0 && (c.cr4 & cr4::pce) == 0) raise_gp();
  c.gpr[rax] = *value & 0xffffffff;
  c.gpr[rdx] = *value >> 32;
}

void require_tsc(const Core& c) {
  if (c.cpl != 0 && (c.cr4 & cr4::tsd) != 0) raise_gp();
}

void rdtsc(Core& c, const Insn&) {
  require_tsc(c);
  const u64 now = c.now_tsc();
  c.gpr[rax] = now & 0xffffffff;
  c.gpr[rdx] = now >> 32;
}

void rdtscp(Core& c, const Insn& i) {
  rdtsc(c, i);
  c.gpr[rcx] = c.tsc_aux & 0xffffffff;
}

void hlt(Core& c, const Insn&) {
  c.require_cpl0();
  if (c.wants_exit(ExitReason::hlt, c.options.intercept_hlt)) return;
  if (c.emulating) return;
  c.exit = Exit{.reason = ExitReason::hlt, .ring = model::Ring::kernel, .executed = true};
  c.attention = true;
}

void in(Core& c, const Insn& i) {
  const unsigned bytes = i.op[0].bytes;
  const u16 port = static_cast<u16>(i.op[1].kind == Operand::Kind::imm ? i.imm & 0xff : c.gpr[rdx]);
  c.check_io(port, bytes);
  if (c.wants_exit(ExitReason::port, c.options.intercept_ports, port)) return;
  c.set_reg(rax * 8, bytes, c.env.port_in(port, bytes));
  c.attention = true;
}

void out(Core& c, const Insn& i) {
  const unsigned bytes = i.op[1].bytes;
  const u16 port = static_cast<u16>(i.op[0].kind == Operand::Kind::imm ? i.imm & 0xff : c.gpr[rdx]);
  c.check_io(port, bytes);
  if (c.wants_exit(ExitReason::port, c.options.intercept_ports, port)) return;
  c.env.port_out(port, bytes, static_cast<u32>(truncate(c.gpr[rax], bytes)));
  c.attention = true;
}

void vmcall(Core& c, const Insn&) {
  c.require_cpl0();
  hand_over(c);
  const std::optional<u64> answer = c.env.hypercall(c.gpr[rax], c.gpr[rbx]);
  if (!answer) raise_ud();
  c.gpr[rax] = *answer;
}

// --- the x87 that start-up code touches: its control word ---

void require_fpu(const Core& c) {
  if ((c.cr0 & (cr0::em | cr0::ts)) != 0) raise(vector::nm);
}

void fninit(Core& c, const Insn&) {
  require_fpu(c);
  c.fcw = 0x37f;
}

void fnstcw(Core& c, const Insn& i) {
  require_fpu(c);
  c.write_seg(i.seg, c.offset_of(i), 2, c.fcw);
}

void fldcw(Core& c, const Insn& i) {
  require_fpu(c);
  c.fcw = static_cast<u16>(c.read_seg(i.seg, c.offset_of(i), 2));
}

void fnstsw(Core& c, const Insn& i) {
  require_fpu(c);
  if (i.op[0].kind == Operand::Kind::mem) {
    c.write_seg(i.seg, c.offset_of(i), 2, 0);
  } else {
    c.set_reg(rax * 8, 2, 0);
  }
}

void fpu_nothing(Core& c, const Insn&) { require_fpu(c); }

}  // namespace

void add_system_forms(FormTable& t) {
  for (int m : {ZYDIS_MNEMONIC_PUSHF, ZYDIS_MNEMONIC_PUSHFD, ZYDIS_MNEMONIC_PUSHFQ}) t.add(m, {pushf, 3});
  for (int m : {ZYDIS_MNEMONIC_POPF, ZYDIS_MNEMONIC_POPFD, ZYDIS_MNEMONIC_POPFQ}) t.add(m, {popf, 12, true});
  t.add(ZYDIS_MNEMONIC_CLI, {cli, 4, true});
  t.add(ZYDIS_MNEMONIC_STI, {sti, 4, true});
  // Moves to control and segment registers end the block too: see decode.cpp.
  t.add(ZYDIS_MNEMONIC_MOV, {mov_special});
  t.add(ZYDIS_MNEMONIC_LDS, {load_far_pointer<Seg::ds>, 4, true});
  t.add(ZYDIS_MNEMONIC_LES, {load_far_pointer<Seg::es>, 4, true});
  t.add(ZYDIS_MNEMONIC_LFS, {load_far_pointer<Seg::fs>, 4, true});
  t.add(ZYDIS_MNEMONIC_LGS, {load_far_pointer<Seg::gs>, 4, true});
  t.add(ZYDIS_MNEMONIC_LSS, {load_far_pointer<Seg::ss>, 4, true});
  t.add(ZYDIS_MNEMONIC_LGDT, {load_table<false>, 20});
  t.add(ZYDIS_MNEMONIC_LIDT, {load_table<true>, 20});
  t.add(ZYDIS_MNEMONIC_SGDT, {store_table<false>, 5});
  t.add(ZYDIS_MNEMONIC_SIDT, {store_table<true>, 5});
  t.add(ZYDIS_MNEMONIC_LLDT, {lldt, 20});
  t.add(ZYDIS_MNEMONIC_LTR, {ltr, 20});
  t.add(ZYDIS_MNEMONIC_SLDT, {sldt, 5});
  t.add(ZYDIS_MNEMONIC_STR, {str, 5});
  t.add(ZYDIS_MNEMONIC_SMSW, {smsw, 5});
  t.add(ZYDIS_MNEMONIC_LMSW, {lmsw, 20, true});
  t.add(ZYDIS_MNEMONIC_CLTS, {clts, 10});
  t.add(ZYDIS_MNEMONIC_LAR, {lar, 10});
  t.add(ZYDIS_MNEMONIC_LSL, {lsl, 10});
  t.add(ZYDIS_MNEMONIC_VERR, {verify<false>, 10});
  t.add(ZYDIS_MNEMONIC_VERW, {verify<true>, 10});
  t.add(ZYDIS_MNEMONIC_ARPL, {arpl, 3});
  t.add(ZYDIS_MNEMONIC_INVLPG, {invlpg, 100, true});
  t.add(ZYDIS_MNEMONIC_WBINVD, {privileged_nothing, 500});
  t.add(ZYDIS_MNEMONIC_INVD, {privileged_nothing, 500});
  t.add(ZYDIS_MNEMONIC_CLFLUSH, {clflush, 10});
  t.add(ZYDIS_MNEMONIC_CLFLUSHOPT, {clflush, 5});
  t.add(ZYDIS_MNEMONIC_CLWB, {no_operation, 5});
  for (int m : {ZYDIS_MNEMONIC_LFENCE, ZYDIS_MNEMONIC_SFENCE}) t.add(m, {no_operation, 4});
  t.add(ZYDIS_MNEMONIC_MFENCE, {no_operation, 30});
  for (int m :
       {ZYDIS_MNEMONIC_PREFETCH, ZYDIS_MNEMONIC_PREFETCHNTA, ZYDIS_MNEMONIC_PREFETCHT0, ZYDIS_MNEMONIC_PREFETCHT1,
        ZYDIS_MNEMONIC_PREFETCHT2, ZYDIS_MNEMONIC_PREFETCHW, ZYDIS_MNEMONIC_PREFETCHWT1}) {
    t.add(m, {no_operation});
  }
  t.add(ZYDIS_MNEMONIC_RDFSBASE, {segment_base<Seg::fs, false>, 4});
  t.add(ZYDIS_MNEMONIC_RDGSBASE, {segment_base<Seg::gs, false>, 4});
  t.add(ZYDIS_MNEMONIC_WRFSBASE, {segment_base<Seg::fs, true>, 4});
  t.add(ZYDIS_MNEMONIC_WRGSBASE, {segment_base<Seg::gs, true>, 4});
  t.add(ZYDIS_MNEMONIC_SWAPGS, {swapgs, 2});
  t.add(ZYDIS_MNEMONIC_CPUID, {cpuid, 100, true});
  t.add(ZYDIS_MNEMONIC_RDMSR, {rdmsr, 60, true});
  t.add(ZYDIS_MNEMONIC_WRMSR, {wrmsr, 100, true});
  t.add(ZYDIS_MNEMONIC_RDPMC, {rdpmc, 20, true});
  t.add(ZYDIS_MNEMONIC_RDTSC, {rdtsc, 20, true});
  t.add(ZYDIS_MNEMONIC_RDTSCP, {rdtscp, 25, true});
  t.add(ZYDIS_MNEMONIC_HLT, {hlt, 2, true});
  t.add(ZYDIS_MNEMONIC_IN, {in, 50, true});
  t.add(ZYDIS_MNEMONIC_OUT, {out, 50, true});
  t.add(ZYDIS_MNEMONIC_VMCALL, {vmcall, 60, true});
  t.add(ZYDIS_MNEMONIC_VMMCALL, {vmcall, 60, true});
  t.add(ZYDIS_MNEMONIC_FNINIT, {fninit, 20});
  t.add(ZYDIS_MNEMONIC_FNSTCW, {fnstcw, 2});
  t.add(ZYDIS_MNEMONIC_FLDCW, {fldcw, 3});
  t.add(ZYDIS_MNEMONIC_FNSTSW, {fnstsw, 2});
  t.add(ZYDIS_MNEMONIC_FNCLEX, {fpu_nothing, 4});
  t.add(ZYDIS_MNEMONIC_FWAIT, {fpu_nothing, 1});
}

}  // namespace vpmu::soft
