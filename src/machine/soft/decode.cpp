// From bytes to an Insn and an Op: Zydis decodes, this picks handlers.
#include <Zydis/Zydis.h>

#include <algorithm>

#include "machine/soft/forms.hpp"

namespace vpmu::soft {

namespace {

ZydisDecoder make_decoder(ZydisMachineMode machine, ZydisStackWidth stack) {
  ZydisDecoder decoder;
  ZydisDecoderInit(&decoder, machine, stack);
  // Without MPX its opcodes are NOPs with a ModRM byte.
  ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
  ZydisDecoderEnableMode(&decoder, ZYDIS_DECODER_MODE_CLDEMOTE, ZYAN_FALSE);
  return decoder;
}

const ZydisDecoder& decoder_for(u32 mode) {
  static const ZydisDecoder long64 = make_decoder(ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  static const ZydisDecoder code32 = make_decoder(ZYDIS_MACHINE_MODE_LONG_COMPAT_32, ZYDIS_STACK_WIDTH_32);
  static const ZydisDecoder code16 = make_decoder(ZYDIS_MACHINE_MODE_LONG_COMPAT_16, ZYDIS_STACK_WIDTH_16);
  switch (mode & mode_bits::code_mask) {
    case mode_bits::code64:
      return long64;
    case mode_bits::code32:
      return code32;
    default:
      return code16;
  }
}

u8 gpr_offset(ZydisRegister reg) {
  const auto from = [reg](ZydisRegister first) { return static_cast<unsigned>(reg - first); };
  if (reg >= ZYDIS_REGISTER_AL && reg <= ZYDIS_REGISTER_BL) return static_cast<u8>(from(ZYDIS_REGISTER_AL) * 8);
  if (reg >= ZYDIS_REGISTER_AH && reg <= ZYDIS_REGISTER_BH) return static_cast<u8>(from(ZYDIS_REGISTER_AH) * 8 + 1);
  if (reg >= ZYDIS_REGISTER_SPL && reg <= ZYDIS_REGISTER_R15B) {
    return static_cast<u8>((from(ZYDIS_REGISTER_SPL) + 4) * 8);
  }
  if (reg >= ZYDIS_REGISTER_AX && reg <= ZYDIS_REGISTER_R15W) return static_cast<u8>(from(ZYDIS_REGISTER_AX) * 8);
  if (reg >= ZYDIS_REGISTER_EAX && reg <= ZYDIS_REGISTER_R15D) return static_cast<u8>(from(ZYDIS_REGISTER_EAX) * 8);
  if (reg >= ZYDIS_REGISTER_RAX && reg <= ZYDIS_REGISTER_R15) return static_cast<u8>(from(ZYDIS_REGISTER_RAX) * 8);
  return zero_register;
}

Seg segment_of(ZydisRegister reg) {
  switch (reg) {
    case ZYDIS_REGISTER_ES:
      return Seg::es;
    case ZYDIS_REGISTER_CS:
      return Seg::cs;
    case ZYDIS_REGISTER_SS:
      return Seg::ss;
    case ZYDIS_REGISTER_FS:
      return Seg::fs;
    case ZYDIS_REGISTER_GS:
      return Seg::gs;
    default:
      return Seg::ds;
  }
}

Operand register_operand(ZydisRegister reg, u8 bytes) {
  using Kind = Operand::Kind;
  switch (ZydisRegisterGetClass(reg)) {
    case ZYDIS_REGCLASS_GPR8:
    case ZYDIS_REGCLASS_GPR16:
    case ZYDIS_REGCLASS_GPR32:
    case ZYDIS_REGCLASS_GPR64:
      return {Kind::reg, bytes, gpr_offset(reg)};
    case ZYDIS_REGCLASS_XMM:
      if (reg > ZYDIS_REGISTER_XMM15) return {Kind::unsupported, bytes, 0};
      return {Kind::xmm, bytes, static_cast<u8>(reg - ZYDIS_REGISTER_XMM0)};
    case ZYDIS_REGCLASS_SEGMENT:
      return {Kind::seg, bytes, static_cast<u8>(segment_of(reg))};
    case ZYDIS_REGCLASS_CONTROL:
      return {Kind::cr, bytes, static_cast<u8>(reg - ZYDIS_REGISTER_CR0)};
    case ZYDIS_REGCLASS_DEBUG:
      return {Kind::dr, bytes, static_cast<u8>(reg - ZYDIS_REGISTER_DR0)};
    default:
      return {Kind::unsupported, bytes, 0};
  }
}

void memory_operand(const ZydisDecodedOperandMem& mem, Insn& i) {
  i.seg = segment_of(mem.segment);
  i.disp = static_cast<u64>(mem.disp.value);
  if (mem.base == ZYDIS_REGISTER_RIP || mem.base == ZYDIS_REGISTER_EIP) {
    i.disp += i.next;
  } else if (mem.base != ZYDIS_REGISTER_NONE) {
    i.base = gpr_offset(mem.base);
  }
  if (mem.index != ZYDIS_REGISTER_NONE) i.index = gpr_offset(mem.index);
  while ((1u << i.scale) < mem.scale) ++i.scale;
}

u64 width_mask(unsigned bytes) { return truncate(~u64{0}, bytes); }

bool is_string_operation(u8 opcode) {
  return (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf) || (opcode >= 0x6c && opcode <= 0x6f);
}

void translate_operands(const ZydisDecodedInstruction& z, const ZydisDecodedOperand* operands, Insn& i) {
  unsigned immediates = 0;
  const unsigned count = std::min<unsigned>(z.operand_count_visible, static_cast<unsigned>(i.op.size()));
  for (unsigned n = 0; n < count; ++n) {
    const ZydisDecodedOperand& from = operands[n];
    Operand& to = i.op[n];
    to.bytes = static_cast<u8>(std::min(from.size / 8, 255));
    switch (from.type) {
      case ZYDIS_OPERAND_TYPE_REGISTER:
        to = register_operand(from.reg.value, to.bytes);
        break;
      case ZYDIS_OPERAND_TYPE_MEMORY:
        to.kind = Operand::Kind::mem;
        memory_operand(from.mem, i);
        break;
      case ZYDIS_OPERAND_TYPE_IMMEDIATE: {
        to.kind = Operand::Kind::imm;
        u64 value = from.imm.value.u;
        if (from.imm.is_relative != 0) {
          value += i.next;
          if (z.machine_mode != ZYDIS_MACHINE_MODE_LONG_64) value &= width_mask(i.operand_bytes);
        }
        if (immediates++ == 0) {
          i.imm = value;
        } else {
          i.imm2 = static_cast<u32>(value);
        }
        break;
      }
      case ZYDIS_OPERAND_TYPE_POINTER:
        to.kind = Operand::Kind::far;
        i.imm = from.ptr.offset;
        i.imm2 = from.ptr.segment;
        break;
      default:
        to.kind = Operand::Kind::unsupported;
    }
  }
}

constexpr Form plus(Form base, unsigned n) { return static_cast<Form>(static_cast<unsigned>(base) + n); }

/// Which of the sizes u8, u16, u32, u64.
unsigned size_index(unsigned bytes) {
  switch (bytes) {
    case 1:
      return 0;
    case 2:
      return 1;
    case 4:
      return 2;
    default:
      return 3;
  }
}

/// Positions of the conditions for which comparisons have fused handlers.
constexpr int fused_index(Cond cond) {
  switch (cond) {
    case Cond::b:
      return 0;
    case Cond::nb:
      return 1;
    case Cond::z:
      return 2;
    case Cond::nz:
      return 3;
    case Cond::be:
      return 4;
    case Cond::nbe:
      return 5;
    case Cond::l:
      return 6;
    case Cond::nl:
      return 7;
    case Cond::le:
      return 8;
    case Cond::nle:
      return 9;
    default:
      return -1;
  }
}

/// Picks the form with a handler of its own, if there is one for this mnemonic and these operands.
class Selector {
 public:
  Selector(const Insn& insn, Op& op, u32 mode, bool map0, u8 opcode)
      : i_(insn), op_(op), wide_((mode & mode_bits::code_mask) == mode_bits::code64), map0_(map0), opcode_(opcode) {
    // Flat addresses only. FS and GS have bases; so has everything in segmented code.
    segmented_ = (mode & (mode_bits::segmented | mode_bits::small_stack)) != 0 ||
                 (mode & mode_bits::code_mask) == mode_bits::code16;
    plain_memory_ = !segmented_ && i_.seg < Seg::fs && i_.address_bytes >= 4;
    // Flat 32-bit segments are checked for what DS, ES and SS allow; a store through CS is not.
    if (!wide_ && i_.seg == Seg::cs) plain_memory_ = false;
  }

  void select() {
    using Kind = Operand::Kind;
    const Operand& a = i_.op[0];
    const Operand& b = i_.op[1];
    const bool has_memory = a.kind == Kind::mem || b.kind == Kind::mem;
    if (has_memory && !plain_memory_ && i_.mnemonic != ZYDIS_MNEMONIC_LEA) return;
    op_.disp = i_.disp;
    op_.base = i_.base;
    op_.index = i_.index;
    op_.scale = i_.scale;
    op_.seg = i_.seg;
    op_.mask = width_mask(i_.address_bytes);
    op_.imm = i_.imm;
    if (a.kind == Kind::reg) op_.dst = a.reg;
    if (b.kind == Kind::reg) op_.src = b.reg;
    pick(a, b);
  }

 private:
  [[nodiscard]] int shape() const {
    using Kind = Operand::Kind;
    const Kind a = i_.op[0].kind;
    const Kind b = i_.op[1].kind;
    if (a == Kind::reg && b == Kind::reg) return 0;
    if (a == Kind::reg && b == Kind::imm) return 1;
    if (a == Kind::reg && b == Kind::mem) return 2;
    if (a == Kind::mem && b == Kind::reg) return 3;
    if (a == Kind::mem && b == Kind::imm) return 4;
    return -1;
  }

  void use(Form form) { op_.form = form; }

  void shaped(Form base) {
    if (const int s = shape(); s >= 0) use(plus(base, static_cast<unsigned>(s) * 4 + size_index(i_.op[0].bytes)));
  }

  void unary(Form registers, Form memory, bool has_memory_form) {
    if (i_.op[0].kind == Operand::Kind::reg) {
      use(plus(registers, size_index(i_.op[0].bytes)));
    } else if (has_memory_form) {
      use(plus(memory, size_index(i_.op[0].bytes)));
    }
  }

  void shift(Form base) {
    if (i_.op[0].kind != Operand::Kind::reg) return;
    const unsigned bytes = i_.op[0].bytes;
    if (i_.op[1].kind == Operand::Kind::imm) {
      op_.imm = i_.imm & (bytes == 8 ? 63 : 31);
      use(plus(base, size_index(bytes)));
    } else {
      use(plus(base, 4 + size_index(bytes)));
    }
  }

  void extend(Form narrow, Form wide) {
    const unsigned to = i_.op[0].bytes;
    const unsigned from = i_.op[1].bytes;
    const bool memory = i_.op[1].kind == Operand::Kind::mem;
    if (to == 4 && from <= 2) use(plus(narrow, (memory ? 2 : 0) + size_index(from)));
    if (to == 8) use(plus(wide, (memory ? 3 : 0) + size_index(from)));
  }

  /// 0 for a 32-bit stack, 1 for a 64-bit one, -1 if only the general path will do.
  [[nodiscard]] int stack() const {
    if (segmented_) return -1;
    if (wide_) return i_.operand_bytes != 2 ? 1 : -1;
    return i_.operand_bytes == 4 ? 0 : -1;
  }

  void stacked(Form u32_form) {
    const int s = stack();
    if (s < 0) return;
    op_.mask = wide_ ? ~u64{0} : 0xffffffff;
    use(plus(u32_form, static_cast<unsigned>(s)));
  }

  void condition(Form base) { use(plus(base, op_.condition)); }

  void pick(const Operand& a, const Operand& b) {
    using Kind = Operand::Kind;
    switch (i_.mnemonic) {
      case ZYDIS_MNEMONIC_ADD:
        shaped(Form::add_rr_u8);
        break;
      case ZYDIS_MNEMONIC_OR:
        shaped(Form::or__rr_u8);
        break;
      case ZYDIS_MNEMONIC_ADC:
        shaped(Form::adc_rr_u8);
        break;
      case ZYDIS_MNEMONIC_SBB:
        shaped(Form::sbb_rr_u8);
        break;
      case ZYDIS_MNEMONIC_AND:
        shaped(Form::and__rr_u8);
        break;
      case ZYDIS_MNEMONIC_SUB:
        shaped(Form::sub_rr_u8);
        break;
      case ZYDIS_MNEMONIC_XOR:
        shaped(Form::xor__rr_u8);
        break;
      case ZYDIS_MNEMONIC_CMP:
        shaped(Form::cmp_rr_u8);
        break;
      case ZYDIS_MNEMONIC_TEST:
        shaped(Form::test_rr_u8);
        break;
      case ZYDIS_MNEMONIC_MOV:
        shaped(Form::mov_rr_u8);
        break;
      case ZYDIS_MNEMONIC_MOVZX:
        // A 64-bit destination gets the same bytes as a 32-bit one.
        if (a.bytes >= 4) use(plus(Form::movzx_rr_u8, (b.kind == Kind::mem ? 2 : 0) + size_index(b.bytes)));
        break;
      case ZYDIS_MNEMONIC_MOVSX:
      case ZYDIS_MNEMONIC_MOVSXD:
        extend(Form::movsx32_rr_u8, Form::movsx64_rr_u8);
        break;
      case ZYDIS_MNEMONIC_LEA:
        if (a.bytes >= 4) use(a.bytes == 8 ? Form::lea_u64 : Form::lea_u32);
        break;
      case ZYDIS_MNEMONIC_INC:
        unary(Form::inc_r_u8, Form::inc_m_u8, true);
        break;
      case ZYDIS_MNEMONIC_DEC:
        unary(Form::dec_r_u8, Form::dec_m_u8, true);
        break;
      case ZYDIS_MNEMONIC_NEG:
        unary(Form::neg_r_u8, Form::general, false);
        break;
      case ZYDIS_MNEMONIC_NOT:
        unary(Form::not_r_u8, Form::general, false);
        break;
      case ZYDIS_MNEMONIC_SHL:
        shift(Form::shl_ri_u8);
        break;
      case ZYDIS_MNEMONIC_SHR:
        shift(Form::shr_ri_u8);
        break;
      case ZYDIS_MNEMONIC_SAR:
        shift(Form::sar_ri_u8);
        break;
      case ZYDIS_MNEMONIC_IMUL:
        multiply(a, b);
        break;
      case ZYDIS_MNEMONIC_PUSH:
        if (a.kind == Kind::reg) {
          op_.src = a.reg;
          stacked(Form::push_r_u32);
        } else if (a.kind == Kind::imm) {
          stacked(Form::push_i_u32);
        }
        break;
      case ZYDIS_MNEMONIC_POP:
        if (a.kind == Kind::reg) stacked(Form::pop_r_u32);
        break;
      case ZYDIS_MNEMONIC_LEAVE:
        stacked(Form::leave_u32);
        break;
      case ZYDIS_MNEMONIC_CALL:
        if (a.kind == Kind::imm) {
          if (i_.operand_bytes != 2) stacked(Form::call_u32);
        } else if (a.kind == Kind::reg) {
          op_.src = a.reg;
          stacked(Form::call_r_u32);
        }
        break;
      case ZYDIS_MNEMONIC_RET:
        if (map0_ && opcode_ == 0xc3) stacked(Form::ret_u32);
        break;
      case ZYDIS_MNEMONIC_JMP:
        if (segmented_ || (!wide_ && i_.operand_bytes != 4)) break;
        if (a.kind == Kind::imm) use(Form::jmp);
        if (a.kind == Kind::reg) {
          op_.src = a.reg;
          op_.mask = width_mask(a.bytes);
          use(Form::jmp_r);
        }
        break;
      case ZYDIS_MNEMONIC_CDQ:
        use(Form::cdq);
        break;
      case ZYDIS_MNEMONIC_CQO:
        use(Form::cqo);
        break;
      case ZYDIS_MNEMONIC_CWDE:
        use(Form::cwde);
        break;
      case ZYDIS_MNEMONIC_CDQE:
        use(Form::cdqe);
        break;
      case ZYDIS_MNEMONIC_XCHG:
        if (a.kind == Kind::reg && b.kind == Kind::reg && a.bytes >= 4) {
          use(a.bytes == 8 ? Form::xchg_rr_u64 : Form::xchg_rr_u32);
        }
        break;
      case ZYDIS_MNEMONIC_NOP:
      case ZYDIS_MNEMONIC_PAUSE:
      case ZYDIS_MNEMONIC_ENDBR32:
      case ZYDIS_MNEMONIC_ENDBR64:
        use(Form::nop);
        break;
      default:
        conditional(a, b);
    }
  }

  void multiply(const Operand& a, const Operand& b) {
    using Kind = Operand::Kind;
    if (b.kind == Kind::none || a.bytes < 4) return;
    const unsigned wide = a.bytes == 8 ? 1 : 0;
    if (i_.op[2].kind == Kind::imm) {
      if (b.kind == Kind::reg) use(plus(Form::imul_rri_u32, wide));
    } else if (b.kind == Kind::reg) {
      use(plus(Form::imul_rr_u32, wide));
    } else if (b.kind == Kind::mem) {
      use(plus(Form::imul_rm_u32, wide));
    }
  }

  void conditional(const Operand& a, const Operand& b) {
    using Kind = Operand::Kind;
    if (map0_ && opcode_ >= 0x70 && opcode_ <= 0x7f && a.kind == Kind::imm) jcc();
    if (map0_) return;
    if (opcode_ >= 0x80 && opcode_ <= 0x8f && a.kind == Kind::imm) jcc();
    if (opcode_ >= 0x90 && opcode_ <= 0x9f && a.kind == Kind::reg && a.bytes == 1) condition(Form::set_o);
    if (opcode_ >= 0x40 && opcode_ <= 0x4f && a.kind == Kind::reg && b.kind == Kind::reg && a.bytes >= 4) {
      use(a.bytes == 8 ? Form::cmov_rr_u64 : Form::cmov_rr_u32);
    }
  }

  void jcc() {
    if (segmented_ || (!wide_ && i_.operand_bytes != 4)) return;
    condition(Form::j_o);
  }

  const Insn& i_;
  Op& op_;
  bool wide_;
  bool map0_;
  u8 opcode_;
  bool segmented_;
  bool plain_memory_;
};

}  // namespace

DecodeResult decode(const u8* bytes, std::size_t length, u64 rip, u32 mode, Insn& i, Op& op, bool& ends) {
  ZydisDecodedInstruction z;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  const ZyanStatus status = ZydisDecoderDecodeFull(&decoder_for(mode), bytes, length, &z, operands);
  if (status == ZYDIS_STATUS_NO_MORE_DATA && length < 15) return DecodeResult::needs_more;
  i = Insn{};
  op = Op{};
  op.insn = &i;
  if (!ZYAN_SUCCESS(status)) {
    const bool too_long = status == ZYDIS_STATUS_INSTRUCTION_TOO_LONG || status == ZYDIS_STATUS_NO_MORE_DATA;
    i.form = too_long ? too_long_form : undefined_form;
    i.length = op.length = 1;
    i.next = op.next = rip + 1;
    op.form = op.plain = Form::general_end;
    ends = true;
    return DecodeResult::ok;
  }
  const bool wide = (mode & mode_bits::code_mask) == mode_bits::code64;
  i.length = op.length = z.length;
  i.next = op.next = wide ? rip + z.length : (rip + z.length) & 0xffffffff;
  i.mnemonic = static_cast<u16>(z.mnemonic);
  i.operand_bytes = static_cast<u8>(z.operand_width / 8);
  i.address_bytes = static_cast<u8>(z.address_width / 8);
  i.stack_bytes = static_cast<u8>(z.stack_width / 8);
  i.lock = (z.attributes & ZYDIS_ATTRIB_HAS_LOCK) != 0;
  i.opcode = z.opcode;
  i.modrm_reg = z.raw.modrm.reg;
  i.register_form = z.raw.modrm.mod == 3;
  std::copy_n(bytes, z.length, i.bytes.begin());
  const bool map0 = z.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT;
  if (map0 && is_string_operation(z.opcode)) {
    for (unsigned n = 0; n < z.raw.prefix_count; ++n) {
      if (z.raw.prefixes[n].value == 0xf3) i.rep = Rep::repe;
      if (z.raw.prefixes[n].value == 0xf2) i.rep = Rep::repne;
    }
  }
  if ((z.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_ES) != 0) i.seg = Seg::es;
  if ((z.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_CS) != 0) i.seg = Seg::cs;
  if ((z.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_SS) != 0) i.seg = Seg::ss;
  if ((z.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_FS) != 0) i.seg = Seg::fs;
  if ((z.attributes & ZYDIS_ATTRIB_HAS_SEGMENT_GS) != 0) i.seg = Seg::gs;
  const Seg override_or_default = i.seg;
  translate_operands(z, operands, i);
  if (map0 && is_string_operation(z.opcode)) i.seg = override_or_default;

  // PAUSE with REX.B is no PAUSE: 90 then exchanges R8 with RAX.
  if (z.mnemonic == ZYDIS_MNEMONIC_PAUSE && z.raw.rex.B != 0) {
    i.mnemonic = ZYDIS_MNEMONIC_XCHG;
    i.op[0] = {Operand::Kind::reg, i.operand_bytes, 8 * r8};
    i.op[1] = {Operand::Kind::reg, i.operand_bytes, 8 * rax};
  }

  const FormInfo& info = FormTable::get().find(i.mnemonic, !map0);
  const bool legacy = z.encoding == ZYDIS_INSTRUCTION_ENCODING_LEGACY;
  const bool simple_vex =
      z.encoding == ZYDIS_INSTRUCTION_ENCODING_VEX && std::all_of(i.op.begin(), i.op.end(), [](const Operand& o) {
        return o.kind == Operand::Kind::none || o.kind == Operand::Kind::reg || o.kind == Operand::Kind::mem ||
               o.kind == Operand::Kind::imm;
      });
  i.form = (legacy || simple_vex) && info.form != nullptr ? info.form : unknown_form;
  for (const Operand& each : i.op) {
    if (each.kind == Operand::Kind::unsupported) i.form = info.form == no_operation ? no_operation : unknown_form;
  }
  op.cycles = info.cycles;
  op.branch = info.branch;
  // Moves to segment, control and debug registers, and what loads a segment, change how code is read.
  const Operand::Kind to = i.op[0].kind;
  const bool loads_state = (i.mnemonic == ZYDIS_MNEMONIC_MOV || i.mnemonic == ZYDIS_MNEMONIC_POP) &&
                           (to == Operand::Kind::seg || to == Operand::Kind::cr || to == Operand::Kind::dr);
  if (loads_state) op.cycles = to == Operand::Kind::seg ? 4 : 30;
  ends = info.ends || loads_state || i.form == unknown_form;
  op.form = Form::general;
  op.condition = static_cast<u16>(z.opcode & 0xf);
  if (i.lock) op.cycles = 18;
  if (info.cycles == divide_cycles && i.op[0].bytes == 8) op.cycles = wide_divide_cycles;
  const bool may_select = legacy && i.form != unknown_form && (mode & mode_bits::general_only) == 0;
  if (may_select) Selector(i, op, mode, map0, z.opcode).select();
  if (op.form == Form::general && ends) op.form = Form::general_end;
  op.plain = op.form;
  return DecodeResult::ok;
}

void fuse(Op& first, const Op& second) {
  if (second.form < Form::j_o || second.form > Form::j_nle) return;
  const auto cond = static_cast<Cond>(static_cast<unsigned>(second.form) - static_cast<unsigned>(Form::j_o));
  const bool zero = cond == Cond::z;
  const bool not_zero = cond == Cond::nz;
  const int n = fused_index(cond);
  switch (first.plain) {
    case Form::dec_r_u32:
      if (not_zero) first.form = Form::dec_jnz_u32;
      break;
    case Form::dec_r_u64:
      if (not_zero) first.form = Form::dec_jnz_u64;
      break;
    case Form::sub_ri_u32:
      if (not_zero) first.form = Form::sub_ri_jnz_u32;
      break;
    case Form::sub_ri_u64:
      if (not_zero) first.form = Form::sub_ri_jnz_u64;
      break;
    case Form::add_ri_u32:
      if (not_zero) first.form = Form::add_ri_jnz_u32;
      break;
    case Form::add_ri_u64:
      if (not_zero) first.form = Form::add_ri_jnz_u64;
      break;
    case Form::test_rr_u32:
      if (zero) first.form = Form::test_rr_jz_u32;
      if (not_zero) first.form = Form::test_rr_jnz_u32;
      break;
    case Form::test_rr_u64:
      if (zero) first.form = Form::test_rr_jz_u64;
      if (not_zero) first.form = Form::test_rr_jnz_u64;
      break;
    case Form::cmp_rr_u32:
      if (n >= 0) first.form = plus(Form::cmp_rr_j_u32_b, static_cast<unsigned>(n));
      break;
    case Form::cmp_rr_u64:
      if (n >= 0) first.form = plus(Form::cmp_rr_j_u64_b, static_cast<unsigned>(n));
      break;
    case Form::cmp_ri_u32:
      if (n >= 0) first.form = plus(Form::cmp_ri_j_u32_b, static_cast<unsigned>(n));
      break;
    case Form::cmp_ri_u64:
      if (n >= 0) first.form = plus(Form::cmp_ri_j_u64_b, static_cast<unsigned>(n));
      break;
    default:
      break;
  }
}

}  // namespace vpmu::soft
