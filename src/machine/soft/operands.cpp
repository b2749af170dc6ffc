// Operands of the general path: registers of any width, effective addresses, the stack, near branches.
#include "machine/soft/core.hpp"

namespace vpmu::soft {

u64 Core::offset_of(const Insn& i) const {
  const auto* file = reinterpret_cast<const u8*>(gpr.data());
  const u64 base = load_host<u64>(file + i.base);
  const u64 index = load_host<u64>(file + i.index);
  return truncate(i.disp + base + (index << i.scale), i.address_bytes);
}

u64 Core::address_of(const Insn& i, unsigned bytes, bool write) {
  return linear_address(i.seg, offset_of(i), bytes, write);
}

u64 Core::reg(u8 offset, unsigned bytes) const {
  u64 value = 0;
  std::memcpy(&value, reinterpret_cast<const u8*>(gpr.data()) + offset, bytes);
  return value;
}

void Core::set_reg(u8 offset, unsigned bytes, u64 value) {
  if (bytes == 4) {
    value &= 0xffffffff;
    bytes = 8;
  }
  std::memcpy(reinterpret_cast<u8*>(gpr.data()) + offset, &value, bytes);
}

u64 Core::get(const Insn& i, unsigned n) {
  const Operand& o = i.op[n];
  switch (o.kind) {
    case Operand::Kind::reg:
      return reg(o.reg, o.bytes);
    case Operand::Kind::mem:
      return read_seg(i.seg, offset_of(i), o.bytes);
    case Operand::Kind::imm:
      return i.imm;
    case Operand::Kind::seg:
      return seg[o.reg].selector;
    default:
      raise_ud();
  }
}

u64 Core::get_for_write(const Insn& i, unsigned n) {
  const Operand& o = i.op[n];
  if (o.kind != Operand::Kind::mem) return get(i, n);
  return read_for_write(linear_address(i.seg, offset_of(i), o.bytes, true), o.bytes, i.seg);
}

void Core::set(const Insn& i, unsigned n, u64 value) {
  const Operand& o = i.op[n];
  switch (o.kind) {
    case Operand::Kind::reg:
      set_reg(o.reg, o.bytes, value);
      break;
    case Operand::Kind::mem:
      write_seg(i.seg, offset_of(i), o.bytes, truncate(value, o.bytes));
      break;
    default:
      raise_ud();
  }
}

u64 Core::stack_mask() const {
  if (code64()) return ~u64{0};
  return segment(Seg::ss).is_big() ? 0xffffffff : 0xffff;
}

void Core::set_rsp(u64 value) {
  const u64 mask = stack_mask();
  gpr[rsp] = mask == 0xffff ? (gpr[rsp] & ~mask) | (value & mask) : value & mask;
}

void Core::push(u64 value, unsigned bytes) {
  const u64 sp = (gpr[rsp] - bytes) & stack_mask();
  write_seg(Seg::ss, sp, bytes, truncate(value, bytes));
  set_rsp(sp);
}

u64 Core::pop(unsigned bytes) {
  const u64 sp = gpr[rsp] & stack_mask();
  const u64 value = read_seg(Seg::ss, sp, bytes);
  set_rsp(sp + bytes);
  return value;
}

void Core::jump(const Insn& i, u64 target) {
  target = truncate(target, i.operand_bytes);
  if (code64() ? !is_canonical(target) : target > segment(Seg::cs).limit) raise_gp();
  rip = target;
}

u64 Core::rcx_count(const Insn& i) const { return truncate(gpr[rcx], i.address_bytes); }

}  // namespace vpmu::soft
