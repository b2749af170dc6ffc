// Branches, software interrupts, system calls: what may change RIP.
#include <Zydis/Zydis.h>

#include "machine/soft/forms.hpp"

namespace vpmu::soft {

namespace {

void jmp(Core& c, const Insn& i) {
  switch (i.op[0].kind) {
    case Operand::Kind::far:
      c.far_transfer(i, static_cast<u16>(i.imm2), i.imm, false);
      break;
    case Operand::Kind::mem:
      if (i.opcode == 0xff && i.modrm_reg == 5) {
        const u64 at = c.offset_of(i);
        const u64 to = c.read_seg(i.seg, at, i.operand_bytes);
        const u64 selector = c.read_seg(i.seg, truncate(at + i.operand_bytes, i.address_bytes), 2);
        c.far_transfer(i, static_cast<u16>(selector), to, false);
        break;
      }
      [[fallthrough]];
    default:
      c.jump(i, c.get(i, 0));
  }
}

void call(Core& c, const Insn& i) {
  if (i.op[0].kind == Operand::Kind::far) {
    c.far_transfer(i, static_cast<u16>(i.imm2), i.imm, true);
    return;
  }
  if (i.op[0].kind == Operand::Kind::mem && i.opcode == 0xff && i.modrm_reg == 3) {
    const u64 at = c.offset_of(i);
    const u64 to = c.read_seg(i.seg, at, i.operand_bytes);
    const u64 selector = c.read_seg(i.seg, truncate(at + i.operand_bytes, i.address_bytes), 2);
    c.far_transfer(i, static_cast<u16>(selector), to, true);
    return;
  }
  const u64 target = c.get(i, 0);
  c.jump(i, target);  // Its checks come before the push.
  const u64 to = c.rip;
  c.rip = i.next;
  c.push(i.next, i.operand_bytes);
  c.rip = to;
}

void ret(Core& c, const Insn& i) {
  const u64 release = i.op[0].kind == Operand::Kind::imm ? i.imm & 0xffff : 0;
  if (i.opcode == 0xca || i.opcode == 0xcb) {
    c.far_return(i, release);
    return;
  }
  const u64 sp = c.gpr[rsp] & c.stack_mask();
  c.jump(i, c.read_seg(Seg::ss, sp, i.operand_bytes));
  c.set_rsp(sp + i.operand_bytes + release);
}

void jcc(Core& c, const Insn& i) {
  if (c.fl.test(static_cast<Cond>(i.opcode & 0xf))) c.jump(i, i.imm);
}

void jcxz(Core& c, const Insn& i) {
  if (c.rcx_count(i) == 0) c.jump(i, i.imm);
}

void loop(Core& c, const Insn& i) {
  const u64 count = truncate(c.gpr[rcx] - 1, i.address_bytes);
  bool taken = count != 0;
  if (i.opcode == 0xe0) taken = taken && !c.fl.zf();
  if (i.opcode == 0xe1) taken = taken && c.fl.zf();
  if (taken) c.jump(i, i.imm);
  c.set_reg(rcx * 8, i.address_bytes, count);
}

void int_n(Core& c, const Insn& i) { c.software_interrupt(static_cast<u8>(i.imm), Core::Cause::software); }
void int3(Core& c, const Insn&) { c.software_interrupt(vector::bp, Core::Cause::software); }
void int1(Core& c, const Insn&) { c.software_interrupt(vector::db, Core::Cause::trap); }

void into(Core& c, const Insn&) {
  if (c.fl.of()) c.software_interrupt(vector::of, Core::Cause::software);
}

void iret(Core& c, const Insn& i) { c.interrupt_return(i); }

/// The flags that SYSRET restores from R11 (SDM Vol. 2B).
constexpr u64 sysret_flags = 0x3c7fd7;

void syscall(Core& c, const Insn& i) {
  if (!c.long_mode() || (c.efer & efer::sce) == 0) raise_ud();
  const bool wide = c.code64();
  if (!wide && !c.options.amd) raise_ud();
  c.gpr[rcx] = i.next;
  c.gpr[r11] = c.rflags() & ~flag::rf;
  c.rip = wide ? c.lstar : c.cstar;
  c.set_rflags(c.rflags() & ~(c.fmask | flag::rf));
  const u16 selector = static_cast<u16>(c.star >> 32) & 0xfffc;
  c.cpl = 0;
  c.load_flat(Seg::cs, selector, 0, true, true);
  c.load_flat(Seg::ss, static_cast<u16>(selector + 8), 0, false, false);
  c.attention = true;
  c.set_mode();
}

void sysret(Core& c, const Insn& i) {
  if (!c.code64() || (c.efer & efer::sce) == 0) raise_ud();
  c.require_cpl0();
  const bool wide = i.operand_bytes == 8;
  if (wide && !c.options.amd && !is_canonical(c.gpr[rcx])) raise_gp();
  c.rip = wide ? c.gpr[rcx] : c.gpr[rcx] & 0xffffffff;
  c.set_rflags(c.gpr[r11] & sysret_flags);
  const u16 base = static_cast<u16>(c.star >> 48);
  c.cpl = 3;
  c.load_flat(Seg::cs, static_cast<u16>((base + (wide ? 16 : 0)) | 3), 3, true, wide);
  c.load_flat(Seg::ss, static_cast<u16>((base + 8) | 3), 3, false, false);
  c.attention = true;
  c.set_mode();
}

void sysenter(Core& c, const Insn&) {
  if (c.options.amd && c.long_mode()) raise_ud();
  if ((c.sysenter_cs & 0xfffc) == 0) raise_gp();
  const bool wide = c.long_mode();
  c.system_flags &= ~(flag::if_ | flag::vm | flag::rf);
  c.gpr[rsp] = wide ? c.sysenter_esp : c.sysenter_esp & 0xffffffff;
  c.rip = wide ? c.sysenter_eip : c.sysenter_eip & 0xffffffff;
  const u16 selector = static_cast<u16>(c.sysenter_cs & 0xfffc);
  c.cpl = 0;
  c.load_flat(Seg::cs, selector, 0, true, wide);
  c.load_flat(Seg::ss, static_cast<u16>(selector + 8), 0, false, false);
  c.attention = true;
  c.set_mode();
}

void sysexit(Core& c, const Insn& i) {
  if (c.options.amd && c.long_mode()) raise_ud();
  if ((c.sysenter_cs & 0xfffc) == 0) raise_gp();
  c.require_cpl0();
  const bool wide = i.operand_bytes == 8;
  if (wide && (!is_canonical(c.gpr[rcx]) || !is_canonical(c.gpr[rdx]))) raise_gp();
  c.gpr[rsp] = wide ? c.gpr[rcx] : c.gpr[rcx] & 0xffffffff;
  c.rip = wide ? c.gpr[rdx] : c.gpr[rdx] & 0xffffffff;
  const u16 base = static_cast<u16>(c.sysenter_cs);
  c.cpl = 3;
  c.load_flat(Seg::cs, static_cast<u16>((base + (wide ? 32 : 16)) | 3), 3, true, wide);
  c.load_flat(Seg::ss, static_cast<u16>((base + (wide ? 40 : 24)) | 3), 3, false, false);
  c.attention = true;
  c.set_mode();
}

void ud(Core&, const Insn&) { raise_ud(); }

}  // namespace

void undefined_form(Core&, const Insn&) { raise_ud(); }
void too_long_form(Core&, const Insn&) { raise_gp(); }

void unknown_form(Core& c, const Insn& i) {
  c.record_unknown(i);
  raise_ud();
}

void add_control_forms(FormTable& t) {
  t.add(ZYDIS_MNEMONIC_JMP, {jmp, 1, true, true});
  t.add(ZYDIS_MNEMONIC_CALL, {call, 1, true, true});
  t.add(ZYDIS_MNEMONIC_RET, {ret, 1, true, true});
  for (int m : {ZYDIS_MNEMONIC_JO, ZYDIS_MNEMONIC_JNO, ZYDIS_MNEMONIC_JB, ZYDIS_MNEMONIC_JNB, ZYDIS_MNEMONIC_JZ,
                ZYDIS_MNEMONIC_JNZ, ZYDIS_MNEMONIC_JBE, ZYDIS_MNEMONIC_JNBE, ZYDIS_MNEMONIC_JS, ZYDIS_MNEMONIC_JNS,
                ZYDIS_MNEMONIC_JP, ZYDIS_MNEMONIC_JNP, ZYDIS_MNEMONIC_JL, ZYDIS_MNEMONIC_JNL, ZYDIS_MNEMONIC_JLE,
                ZYDIS_MNEMONIC_JNLE}) {
    t.add(m, {jcc, 1, true, true});
  }
  for (int m : {ZYDIS_MNEMONIC_JCXZ, ZYDIS_MNEMONIC_JECXZ, ZYDIS_MNEMONIC_JRCXZ}) t.add(m, {jcxz, 2, true, true});
  for (int m : {ZYDIS_MNEMONIC_LOOP, ZYDIS_MNEMONIC_LOOPE, ZYDIS_MNEMONIC_LOOPNE}) t.add(m, {loop, 2, true, true});
  t.add(ZYDIS_MNEMONIC_INT, {int_n, 60, true, true});
  t.add(ZYDIS_MNEMONIC_INT3, {int3, 60, true, true});
  t.add(ZYDIS_MNEMONIC_INT1, {int1, 60, true, true});
  t.add(ZYDIS_MNEMONIC_INTO, {into, 4, true, true});
  for (int m : {ZYDIS_MNEMONIC_IRET, ZYDIS_MNEMONIC_IRETD, ZYDIS_MNEMONIC_IRETQ}) t.add(m, {iret, 40, true, true});
  t.add(ZYDIS_MNEMONIC_SYSCALL, {syscall, 40, true, true});
  t.add(ZYDIS_MNEMONIC_SYSRET, {sysret, 35, true, true});
  t.add(ZYDIS_MNEMONIC_SYSENTER, {sysenter, 40, true, true});
  t.add(ZYDIS_MNEMONIC_SYSEXIT, {sysexit, 35, true, true});
  for (int m : {ZYDIS_MNEMONIC_UD0, ZYDIS_MNEMONIC_UD1, ZYDIS_MNEMONIC_UD2}) t.add(m, {ud, 1, true});
}

}  // namespace vpmu::soft
