// Moves, arithmetic, logic, bits and conversions, for the operands that have no handler of their own.
#include <Zydis/Zydis.h>

#include <bit>

#include "machine/soft/forms.hpp"

namespace vpmu::soft {

namespace {

/// Calls `f` with a value of the unsigned type of that many bytes.
template <class F>
auto by_size(unsigned bytes, F f) {
  switch (bytes) {
    case 1:
      return f(u8{});
    case 2:
      return f(u16{});
    case 4:
      return f(u32{});
    default:
      return f(u64{});
  }
}

unsigned width(const Insn& i, unsigned n = 0) { return i.op[n].bytes; }

template <Alu K>
void alu_form(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    constexpr bool stores = K < Alu::cmp;
    const T b = static_cast<T>(c.get(i, 1));
    const T a = static_cast<T>(stores ? c.get_for_write(i, 0) : c.get(i, 0));
    const T r = alu<K, T>(c.fl, a, b);
    if constexpr (stores) c.set(i, 0, r);
  });
}

void inc(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    c.set(i, 0, increment<T>(c.fl, static_cast<T>(c.get_for_write(i, 0))));
  });
}

void dec(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    c.set(i, 0, decrement<T>(c.fl, static_cast<T>(c.get_for_write(i, 0))));
  });
}

void neg(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    c.set(i, 0, negate<T>(c.fl, static_cast<T>(c.get_for_write(i, 0))));
  });
}

void not_(Core& c, const Insn& i) { c.set(i, 0, ~c.get_for_write(i, 0)); }

void mov(Core& c, const Insn& i) { c.set(i, 0, c.get(i, 1)); }

void movzx(Core& c, const Insn& i) { c.set(i, 0, c.get(i, 1)); }

void movsx(Core& c, const Insn& i) { c.set(i, 0, sign_extend(c.get(i, 1), width(i, 1))); }

void lea(Core& c, const Insn& i) { c.set(i, 0, c.offset_of(i)); }

void xchg(Core& c, const Insn& i) {
  const u64 a = c.get_for_write(i, 0);
  const u64 b = c.get_for_write(i, 1);
  // At most one of them is memory, and its write cannot fault any more.
  c.set(i, 0, b);
  c.set(i, 1, a);
}

void xadd(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    const T a = static_cast<T>(c.get_for_write(i, 0));
    const T b = static_cast<T>(c.get(i, 1));
    const T sum = alu<Alu::add, T>(c.fl, a, b);
    // Memory first: the register may be part of its address. Of one register with itself the sum stays.
    if (i.op[0].kind == Operand::Kind::mem) c.set(i, 0, sum);
    c.set(i, 1, a);
    if (i.op[0].kind != Operand::Kind::mem) c.set(i, 0, sum);
  });
}

void cmpxchg(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    const T old = static_cast<T>(c.get_for_write(i, 0));
    const T expected = static_cast<T>(c.gpr[rax]);
    (void)alu<Alu::cmp, T>(c.fl, expected, old);
    if (expected == old) {
      c.set(i, 0, c.get(i, 1));
    } else {
      // The destination is written either way, with what it holds (SDM); registers need no such write.
      if (i.op[0].kind == Operand::Kind::mem) c.set(i, 0, old);
      c.set_reg(rax * 8, width(i), old);
    }
  });
}

void set_zf(Core& c, bool zero) { c.fl.set_bits((c.fl.value() & ~flag::zf) | (zero ? flag::zf : 0)); }

void cmpxchg8b(Core& c, const Insn& i) {
  const u64 linear = c.address_of(i, 8, true);
  const u64 old = c.read_for_write(linear, 8, i.seg);
  const u64 expected = (c.gpr[rdx] << 32) | (c.gpr[rax] & 0xffffffff);
  const bool same = old == expected;
  c.write_slow(linear, 8, same ? (c.gpr[rcx] << 32) | (c.gpr[rbx] & 0xffffffff) : old, i.seg);
  if (!same) {
    c.gpr[rax] = old & 0xffffffff;
    c.gpr[rdx] = old >> 32;
  }
  set_zf(c, same);
}

void cmpxchg16b(Core& c, const Insn& i) {
  const u64 linear = c.address_of(i, 16, true);
  if (linear % 16 != 0) raise_gp();
  const u64 low = c.read_for_write(linear, 8, i.seg);
  const u64 high = c.read_for_write(linear + 8, 8, i.seg);
  const bool same = low == c.gpr[rax] && high == c.gpr[rdx];
  c.write_slow(linear, 8, same ? c.gpr[rbx] : low, i.seg);
  c.write_slow(linear + 8, 8, same ? c.gpr[rcx] : high, i.seg);
  if (!same) {
    c.gpr[rax] = low;
    c.gpr[rdx] = high;
  }
  set_zf(c, same);
}

void mul(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    __extension__ using Wide = unsigned __int128;
    constexpr unsigned bits = sizeof(T) * 8;
    const T source = static_cast<T>(c.get(i, 0));
    const Wide product = static_cast<Wide>(static_cast<T>(c.gpr[rax])) * source;
    const T low = static_cast<T>(product);
    const T high = static_cast<T>(product >> bits);
    if constexpr (sizeof(T) == 1) {
      c.set_reg(rax * 8, 2, static_cast<u64>(product));
    } else {
      c.set_reg(rax * 8, sizeof(T), low);
      c.set_reg(rdx * 8, sizeof(T), high);
    }
    c.fl.set_partial(sign_extend(low), high != 0 ? flag::cf | flag::of : 0);
  });
}

void imul(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    using S = std::make_signed_t<T>;
    __extension__ using Wide = __int128;
    constexpr unsigned bits = sizeof(T) * 8;
    const bool one_operand = i.op[1].kind == Operand::Kind::none;
    Wide product;
    if (one_operand) {
      product =
          static_cast<Wide>(static_cast<S>(static_cast<T>(c.gpr[rax]))) * static_cast<S>(static_cast<T>(c.get(i, 0)));
    } else if (i.op[2].kind == Operand::Kind::imm) {
      product = static_cast<Wide>(static_cast<S>(static_cast<T>(c.get(i, 1)))) * static_cast<S>(static_cast<T>(i.imm));
    } else {
      product =
          static_cast<Wide>(static_cast<S>(static_cast<T>(c.get(i, 0)))) * static_cast<S>(static_cast<T>(c.get(i, 1)));
    }
    const T low = static_cast<T>(product);
    const bool lost = product != static_cast<Wide>(static_cast<S>(low));
    if (!one_operand) {
      c.set(i, 0, low);
    } else if constexpr (sizeof(T) == 1) {
      c.set_reg(rax * 8, 2, static_cast<u64>(product));
    } else {
      c.set_reg(rax * 8, sizeof(T), low);
      c.set_reg(rdx * 8, sizeof(T), static_cast<T>(product >> bits));
    }
    c.fl.set_partial(sign_extend(low), lost ? flag::cf | flag::of : 0);
  });
}

/// DIV and IDIV: flags are undefined, and left as they are.
template <bool Signed>
void divide(Core& c, const Insn& i) {
  by_size(width(i), [&](auto type) {
    using T = decltype(type);
    using S = std::make_signed_t<T>;
    __extension__ using Wide = std::conditional_t<Signed, __int128, unsigned __int128>;
    __extension__ using UnsignedWide = unsigned __int128;
    constexpr unsigned bits = sizeof(T) * 8;
    const T raw = static_cast<T>(c.get(i, 0));
    if (raw == 0) raise(vector::de);
    UnsignedWide joined;
    if constexpr (sizeof(T) == 1) {
      joined = c.gpr[rax] & 0xffff;
    } else {
      joined = (static_cast<UnsignedWide>(static_cast<T>(c.gpr[rdx])) << bits) | static_cast<T>(c.gpr[rax]);
    }
    Wide dividend;
    Wide divisor;
    if constexpr (Signed) {
      const unsigned spare = 128 - 2 * bits;
      dividend = static_cast<Wide>(joined << spare) >> spare;
      divisor = static_cast<S>(raw);
      // The one quotient that overflows the wide type itself.
      if (divisor == -1 && sizeof(T) == 8 && dividend == static_cast<Wide>(UnsignedWide{1} << 127)) {
        raise(vector::de);
      }
    } else {
      dividend = joined;
      divisor = raw;
    }
    const Wide quotient = dividend / divisor;
    const Wide remainder = dividend % divisor;
    if constexpr (Signed) {
      if (quotient != static_cast<Wide>(static_cast<S>(quotient))) raise(vector::de);
    } else {
      if (quotient != static_cast<Wide>(static_cast<T>(quotient))) raise(vector::de);
    }
    if constexpr (sizeof(T) == 1) {
      c.set_reg(rax * 8, 1, static_cast<u64>(quotient));
      c.set_reg(rax * 8 + 1, 1, static_cast<u64>(remainder));
    } else {
      c.set_reg(rax * 8, sizeof(T), static_cast<u64>(quotient));
      c.set_reg(rdx * 8, sizeof(T), static_cast<u64>(remainder));
    }
  });
}

void bit_scan(Core& c, const Insn& i, bool reverse) {
  const u64 value = c.get(i, 1);
  if (value != 0) {
    const int at = reverse ? 63 - std::countl_zero(value) : std::countr_zero(value);
    c.set(i, 0, static_cast<u64>(at));
  }
  set_zf(c, value == 0);
}

void bsf(Core& c, const Insn& i) { bit_scan(c, i, false); }
void bsr(Core& c, const Insn& i) { bit_scan(c, i, true); }

void popcnt(Core& c, const Insn& i) {
  const u64 value = c.get(i, 1);
  c.set(i, 0, static_cast<u64>(std::popcount(value)));
  c.fl.set_bits(value == 0 ? flag::zf : 0);
}

void count_zeros(Core& c, const Insn& i, bool leading) {
  const u64 value = c.get(i, 1);
  const unsigned bits = width(i, 1) * 8;
  u64 count = bits;
  if (value != 0) {
    count =
        leading ? static_cast<u64>(std::countl_zero(value)) - (64 - bits) : static_cast<u64>(std::countr_zero(value));
  }
  c.set(i, 0, count);
  c.fl.set_bits((c.fl.value() & ~(flag::cf | flag::zf)) | (value == 0 ? flag::cf : 0) | (count == 0 ? flag::zf : 0));
}

void lzcnt(Core& c, const Insn& i) { count_zeros(c, i, true); }
void tzcnt(Core& c, const Insn& i) { count_zeros(c, i, false); }

enum class BitOp : u8 { test, set, reset, complement };

template <BitOp K>
void bit_test(Core& c, const Insn& i) {
  const unsigned bytes = width(i);
  const unsigned bits = bytes * 8;
  u64 position = c.get(i, 1);
  u64 value = 0;
  u64 linear = 0;
  const bool memory = i.op[0].kind == Operand::Kind::mem;
  if (memory) {
    u64 offset = c.offset_of(i);
    if (i.op[1].kind == Operand::Kind::reg) {
      // A register reaches bits beyond the operand, in both directions.
      const s64 signed_position = static_cast<s64>(sign_extend(position, bytes));
      offset =
          truncate(offset + static_cast<u64>((signed_position >> std::countr_zero(bits)) * bytes), i.address_bytes);
    }
    linear = c.linear_address(i.seg, offset, bytes, K != BitOp::test);
    value = K == BitOp::test ? c.read_slow(linear, bytes, i.seg) : c.read_for_write(linear, bytes, i.seg);
  } else {
    value = c.reg(i.op[0].reg, bytes);
  }
  position &= bits - 1;
  const u64 bit = u64{1} << position;
  const bool was_set = (value & bit) != 0;
  if constexpr (K != BitOp::test) {
    if constexpr (K == BitOp::set) value |= bit;
    if constexpr (K == BitOp::reset) value &= ~bit;
    if constexpr (K == BitOp::complement) value ^= bit;
    if (memory) {
      c.write_slow(linear, bytes, value, i.seg);
    } else {
      c.set_reg(i.op[0].reg, bytes, value);
    }
  }
  c.fl.set_bits((c.fl.value() & ~flag::cf) | (was_set ? flag::cf : 0));
}

void bswap(Core& c, const Insn& i) {
  const u64 value = c.get(i, 0);
  if (width(i) == 8) {
    c.set(i, 0, __builtin_bswap64(value));
  } else if (width(i) == 4) {
    c.set(i, 0, __builtin_bswap32(static_cast<u32>(value)));
  } else {
    // Undefined for 16 bits (SDM); processors give zero.
    c.set(i, 0, 0);
  }
}

void movbe(Core& c, const Insn& i) {
  const u64 value = c.get(i, 1);
  c.set(i, 0, __builtin_bswap64(value) >> (64 - width(i) * 8));
}

void setcc(Core& c, const Insn& i) { c.set(i, 0, c.fl.test(static_cast<Cond>(i.opcode & 0xf)) ? 1 : 0); }

void cmovcc(Core& c, const Insn& i) {
  const u64 value = c.get(i, 1);
  const bool moves = c.fl.test(static_cast<Cond>(i.opcode & 0xf));
  c.set(i, 0, moves ? value : c.get(i, 0));
}

void cbw(Core& c, const Insn&) { c.set_reg(rax * 8, 2, sign_extend(c.gpr[rax], 1)); }
void cwde(Core& c, const Insn&) { c.set_reg(rax * 8, 4, sign_extend(c.gpr[rax], 2)); }
void cdqe(Core& c, const Insn&) { c.set_reg(rax * 8, 8, sign_extend(c.gpr[rax], 4)); }
void cwd(Core& c, const Insn&) { c.set_reg(rdx * 8, 2, (c.gpr[rax] & 0x8000) != 0 ? 0xffff : 0); }
void cdq(Core& c, const Insn&) { c.set_reg(rdx * 8, 4, (c.gpr[rax] & 0x80000000) != 0 ? 0xffffffff : 0); }
void cqo(Core& c, const Insn&) { c.set_reg(rdx * 8, 8, static_cast<s64>(c.gpr[rax]) < 0 ? ~u64{0} : 0); }

void lahf(Core& c, const Insn&) {
  constexpr u64 kept = flag::sf | flag::zf | flag::af | flag::pf | flag::cf;
  c.set_reg(rax * 8 + 1, 1, (c.fl.value() & kept) | flag::fixed_one);
}

void sahf(Core& c, const Insn&) {
  constexpr u64 given = flag::sf | flag::zf | flag::af | flag::pf | flag::cf;
  c.fl.set_bits((c.fl.value() & flag::of) | (c.reg(rax * 8 + 1, 1) & given));
}

void clc(Core& c, const Insn&) { c.fl.set_bits(c.fl.value() & ~flag::cf); }
void stc(Core& c, const Insn&) { c.fl.set_bits(c.fl.value() | flag::cf); }
void cmc(Core& c, const Insn&) { c.fl.set_bits(c.fl.value() ^ flag::cf); }
void cld(Core& c, const Insn&) { c.system_flags &= ~flag::df; }
void std_(Core& c, const Insn&) { c.system_flags |= flag::df; }

void push(Core& c, const Insn& i) {
  const unsigned bytes = c.code64() && i.operand_bytes == 4 ? 8 : i.operand_bytes;
  if (i.op[0].kind == Operand::Kind::seg && bytes == 4) {
    c.push(c.get(i, 0), 4);
    return;
  }
  c.push(c.get(i, 0), bytes);
}

void pop(Core& c, const Insn& i) {
  const unsigned bytes = i.operand_bytes;
  const u64 old_rsp = c.gpr[rsp];
  const u64 value = c.pop(bytes);
  if (i.op[0].kind == Operand::Kind::seg) {
    try {
      c.load_segment(static_cast<Seg>(i.op[0].reg), static_cast<u16>(value));
    } catch (const Fault&) {
      c.gpr[rsp] = old_rsp;
      throw;
    }
    if (static_cast<Seg>(i.op[0].reg) == Seg::ss) c.shadow = true;
    c.attention = true;
    return;
  }
  // An address that uses RSP sees it after the pop (SDM Vol. 2B).
  try {
    c.set(i, 0, value);
  } catch (...) {
    c.gpr[rsp] = old_rsp;
    throw;
  }
}

void pusha(Core& c, const Insn& i) {
  const unsigned bytes = i.operand_bytes;
  const u64 old_rsp = c.gpr[rsp];
  try {
    for (const u8 each : {rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi}) {
      c.push(each == rsp ? old_rsp : c.gpr[each], bytes);
    }
  } catch (...) {
    c.gpr[rsp] = old_rsp;
    throw;
  }
}

void popa(Core& c, const Insn& i) {
  const unsigned bytes = i.operand_bytes;
  const u64 sp = c.gpr[rsp];
  std::array<u64, 8> values{};
  for (u64 n = 0; n < 8; ++n) values[n] = c.read_seg(Seg::ss, (sp + n * bytes) & c.stack_mask(), bytes);
  for (u8 n = 0; n < 8; ++n) {
    if (7 - n != rsp) c.set_reg(static_cast<u8>((7 - n) * 8), bytes, values[n]);
  }
  c.set_rsp(sp + u64{8} * bytes);
}

void enter(Core& c, const Insn& i) {
  const unsigned bytes = i.stack_bytes == 8 && i.operand_bytes == 4 ? 8 : i.operand_bytes;
  const u64 old_rsp = c.gpr[rsp];
  const u64 old_rbp = c.gpr[rbp];
  const unsigned level = i.imm2 & 31;
  try {
    c.push(c.gpr[rbp], bytes);
    const u64 frame = c.gpr[rsp];
    if (level > 0) {
      for (unsigned n = 1; n < level; ++n) {
        c.gpr[rbp] = (c.gpr[rbp] - bytes);
        c.push(c.read_seg(Seg::ss, c.gpr[rbp] & c.stack_mask(), bytes), bytes);
      }
      c.push(frame, bytes);
    }
    c.gpr[rbp] = old_rbp;
    c.set_reg(rbp * 8, bytes, frame);
    c.set_rsp(c.gpr[rsp] - (i.imm & 0xffff));
    // A push to the new top has to be possible (SDM Vol. 2A).
    c.probe(c.linear_address(Seg::ss, c.gpr[rsp] & c.stack_mask(), 1, true), 1, Access::write, c.user());
  } catch (...) {
    c.gpr[rsp] = old_rsp;
    c.gpr[rbp] = old_rbp;
    throw;
  }
}

void leave(Core& c, const Insn& i) {
  const unsigned bytes = i.stack_bytes == 8 && i.operand_bytes == 4 ? 8 : i.operand_bytes;
  const u64 frame = c.gpr[rbp] & c.stack_mask();
  const u64 value = c.read_seg(Seg::ss, frame, bytes);
  c.set_rsp(frame + bytes);
  c.set_reg(rbp * 8, bytes, value);
}

void xlat(Core& c, const Insn& i) {
  const u64 offset = truncate(c.gpr[rbx] + (c.gpr[rax] & 0xff), i.address_bytes);
  c.set_reg(rax * 8, 1, c.read_seg(i.seg, offset, 1));
}

// --- BMI1, BMI2 and ADX (SDM Vol. 2) ---

void set_bmi_flags(Core& c, u64 result, unsigned bytes, bool carry) {
  const bool sign = (result >> (bytes * 8 - 1)) & 1;
  c.fl.set_bits((result == 0 ? flag::zf : 0) | (sign ? flag::sf : 0) | (carry ? flag::cf : 0));
}

void andn(Core& c, const Insn& i) {
  const u64 r = truncate(~c.get(i, 1) & c.get(i, 2), width(i));
  c.set(i, 0, r);
  set_bmi_flags(c, r, width(i), false);
}

void blsr(Core& c, const Insn& i) {
  const u64 a = c.get(i, 1);
  const u64 r = truncate(a & (a - 1), width(i));
  c.set(i, 0, r);
  set_bmi_flags(c, r, width(i), a == 0);
}

void blsi(Core& c, const Insn& i) {
  const u64 a = c.get(i, 1);
  const u64 r = truncate(a & (0 - a), width(i));
  c.set(i, 0, r);
  set_bmi_flags(c, r, width(i), a != 0);
}

void blsmsk(Core& c, const Insn& i) {
  const u64 a = c.get(i, 1);
  const u64 r = truncate(a ^ (a - 1), width(i));
  c.set(i, 0, r);
  set_bmi_flags(c, r, width(i), a == 0);
  c.fl.set_bits(c.fl.value() & ~flag::zf);
}

void bextr(Core& c, const Insn& i) {
  const u64 control = c.get(i, 2);
  const unsigned from = control & 0xff;
  const unsigned length = (control >> 8) & 0xff;
  u64 r = from >= width(i) * 8 ? 0 : c.get(i, 1) >> from;
  if (length < 64) r &= (u64{1} << length) - 1;
  c.set(i, 0, r);
  c.fl.set_bits(r == 0 ? flag::zf : 0);
}

void bzhi(Core& c, const Insn& i) {
  const unsigned bits = width(i) * 8;
  const unsigned from = c.get(i, 2) & 0xff;
  u64 r = c.get(i, 1);
  if (from < bits) r &= (u64{1} << from) - 1;
  c.set(i, 0, r);
  set_bmi_flags(c, r, width(i), from >= bits);
}

template <int K>  // 0 SHLX, 1 SHRX, 2 SARX
void shift_x(Core& c, const Insn& i) {
  const unsigned bytes = width(i);
  const unsigned count = static_cast<unsigned>(c.get(i, 2)) & (bytes == 8 ? 63 : 31);
  const u64 a = c.get(i, 1);
  if constexpr (K == 0) c.set(i, 0, a << count);
  if constexpr (K == 1) c.set(i, 0, a >> count);
  if constexpr (K == 2) c.set(i, 0, static_cast<u64>(static_cast<s64>(sign_extend(a, bytes)) >> count));
}

void rorx(Core& c, const Insn& i) {
  const unsigned bits = width(i) * 8;
  const unsigned count = static_cast<unsigned>(i.imm) & (bits - 1);
  const u64 a = c.get(i, 1);
  c.set(i, 0, count == 0 ? a : (a >> count) | (a << (bits - count)));
}

void mulx(Core& c, const Insn& i) {
  __extension__ using Wide = unsigned __int128;
  const unsigned bits = width(i) * 8;
  const Wide product = static_cast<Wide>(truncate(c.gpr[rdx], width(i))) * c.get(i, 2);
  // If both destinations are one register it gets the high half.
  c.set(i, 1, static_cast<u64>(product));
  c.set(i, 0, static_cast<u64>(product >> bits));
}

void pdep(Core& c, const Insn& i) {
  const u64 source = c.get(i, 1);
  u64 r = 0;
  unsigned n = 0;
  for (u64 mask = c.get(i, 2); mask != 0; mask &= mask - 1, ++n) {
    if ((source >> n) & 1) r |= mask & (0 - mask);
  }
  c.set(i, 0, r);
}

void pext(Core& c, const Insn& i) {
  const u64 source = c.get(i, 1);
  u64 r = 0;
  unsigned n = 0;
  for (u64 mask = c.get(i, 2); mask != 0; mask &= mask - 1, ++n) {
    if ((source & mask & (0 - mask)) != 0) r |= u64{1} << n;
  }
  c.set(i, 0, r);
}

template <u64 Flag>
void add_with_one_flag(Core& c, const Insn& i) {
  __extension__ using Wide = unsigned __int128;
  const u64 flags = c.fl.value();
  const Wide sum = static_cast<Wide>(c.get(i, 0)) + c.get(i, 1) + ((flags & Flag) != 0 ? 1 : 0);
  c.set(i, 0, static_cast<u64>(sum));
  c.fl.set_bits((flags & ~Flag) | ((sum >> (width(i) * 8)) != 0 ? Flag : 0));
}

// --- decimal adjustments of 32-bit code (SDM Vol. 2) ---

void set_al_flags(Core& c, u64 carries) { c.fl.set_partial(sign_extend(static_cast<u8>(c.gpr[rax])), carries); }

void daa(Core& c, const Insn&) {
  const u8 al = static_cast<u8>(c.gpr[rax]);
  const bool af = c.fl.af() || (al & 0xf) > 9;
  const bool cf = c.fl.cf() || al > 0x99;
  c.set_reg(rax * 8, 1, static_cast<u64>(al + (af ? 6 : 0) + (cf ? 0x60 : 0)));
  set_al_flags(c, (af ? flag::af : 0) | (cf ? flag::cf : 0));
}

void das(Core& c, const Insn&) {
  const u8 al = static_cast<u8>(c.gpr[rax]);
  const bool af = c.fl.af() || (al & 0xf) > 9;
  const bool high = c.fl.cf() || al > 0x99;
  const bool cf = high || (af && al < 6);
  c.set_reg(rax * 8, 1, static_cast<u64>(al - (af ? 6 : 0) - (high ? 0x60 : 0)));
  set_al_flags(c, (af ? flag::af : 0) | (cf ? flag::cf : 0));
}

template <bool Subtract>
void ascii_adjust(Core& c, const Insn&) {
  const bool adjust = c.fl.af() || (c.gpr[rax] & 0xf) > 9;
  u64 ax = c.gpr[rax] & 0xffff;
  if (adjust) ax = Subtract ? ax - 0x106 : ax + 0x106;
  c.set_reg(rax * 8, 2, ax & 0xff0f);
  c.fl.set_bits((c.fl.value() & ~(flag::af | flag::cf)) | (adjust ? flag::af | flag::cf : 0));
}

void aam(Core& c, const Insn& i) {
  const u8 base = static_cast<u8>(i.imm);
  if (base == 0) raise(vector::de);
  const u8 al = static_cast<u8>(c.gpr[rax]);
  c.set_reg(rax * 8, 2, static_cast<u64>(((al / base) << 8) | (al % base)));
  set_al_flags(c, 0);
}

void aad(Core& c, const Insn& i) {
  const u64 ax = c.gpr[rax];
  c.set_reg(rax * 8, 2, ((ax & 0xff) + ((ax >> 8) & 0xff) * (i.imm & 0xff)) & 0xff);
  set_al_flags(c, 0);
}

void salc(Core& c, const Insn&) { c.set_reg(rax * 8, 1, c.fl.cf() ? 0xff : 0); }

void bound(Core& c, const Insn& i) {
  const unsigned bytes = i.operand_bytes;
  const u64 offset = c.offset_of(i);
  const s64 index = static_cast<s64>(sign_extend(c.get(i, 0), bytes));
  const s64 low = static_cast<s64>(sign_extend(c.read_seg(i.seg, offset, bytes), bytes));
  const s64 high = static_cast<s64>(sign_extend(c.read_seg(i.seg, offset + bytes, bytes), bytes));
  if (index < low || index > high) raise(vector::br);
}

}  // namespace

void no_operation(Core&, const Insn&) {}

void add_integer_forms(FormTable& t) {
  t.add(ZYDIS_MNEMONIC_ADD, {alu_form<Alu::add>});
  t.add(ZYDIS_MNEMONIC_OR, {alu_form<Alu::or_>});
  t.add(ZYDIS_MNEMONIC_ADC, {alu_form<Alu::adc>});
  t.add(ZYDIS_MNEMONIC_SBB, {alu_form<Alu::sbb>});
  t.add(ZYDIS_MNEMONIC_AND, {alu_form<Alu::and_>});
  t.add(ZYDIS_MNEMONIC_SUB, {alu_form<Alu::sub>});
  t.add(ZYDIS_MNEMONIC_XOR, {alu_form<Alu::xor_>});
  t.add(ZYDIS_MNEMONIC_CMP, {alu_form<Alu::cmp>});
  t.add(ZYDIS_MNEMONIC_TEST, {alu_form<Alu::test>});
  t.add(ZYDIS_MNEMONIC_INC, {inc});
  t.add(ZYDIS_MNEMONIC_DEC, {dec});
  t.add(ZYDIS_MNEMONIC_NEG, {neg});
  t.add(ZYDIS_MNEMONIC_NOT, {not_});
  t.add(ZYDIS_MNEMONIC_MOVZX, {movzx});
  t.add(ZYDIS_MNEMONIC_MOVSX, {movsx});
  t.add(ZYDIS_MNEMONIC_MOVSXD, {movsx});
  t.add(ZYDIS_MNEMONIC_MOVNTI, {mov});
  t.add(ZYDIS_MNEMONIC_LEA, {lea});
  t.add(ZYDIS_MNEMONIC_XCHG, {xchg, 2});
  t.add(ZYDIS_MNEMONIC_XADD, {xadd, 3});
  t.add(ZYDIS_MNEMONIC_CMPXCHG, {cmpxchg, 5});
  t.add(ZYDIS_MNEMONIC_CMPXCHG8B, {cmpxchg8b, 10});
  t.add(ZYDIS_MNEMONIC_CMPXCHG16B, {cmpxchg16b, 18});
  t.add(ZYDIS_MNEMONIC_MUL, {mul, 3});
  t.add(ZYDIS_MNEMONIC_IMUL, {imul, 3});
  t.add(ZYDIS_MNEMONIC_DIV, {divide<false>, divide_cycles});
  t.add(ZYDIS_MNEMONIC_IDIV, {divide<true>, divide_cycles});
  t.add(ZYDIS_MNEMONIC_BSF, {bsf, 3});
  t.add(ZYDIS_MNEMONIC_BSR, {bsr, 3});
  t.add(ZYDIS_MNEMONIC_POPCNT, {popcnt, 3});
  t.add(ZYDIS_MNEMONIC_LZCNT, {lzcnt, 3});
  t.add(ZYDIS_MNEMONIC_TZCNT, {tzcnt, 3});
  t.add(ZYDIS_MNEMONIC_BT, {bit_test<BitOp::test>});
  t.add(ZYDIS_MNEMONIC_BTS, {bit_test<BitOp::set>});
  t.add(ZYDIS_MNEMONIC_BTR, {bit_test<BitOp::reset>});
  t.add(ZYDIS_MNEMONIC_BTC, {bit_test<BitOp::complement>});
  t.add(ZYDIS_MNEMONIC_BSWAP, {bswap});
  t.add(ZYDIS_MNEMONIC_MOVBE, {movbe});
  for (int m : {ZYDIS_MNEMONIC_SETO, ZYDIS_MNEMONIC_SETNO, ZYDIS_MNEMONIC_SETB, ZYDIS_MNEMONIC_SETNB,
                ZYDIS_MNEMONIC_SETZ, ZYDIS_MNEMONIC_SETNZ, ZYDIS_MNEMONIC_SETBE, ZYDIS_MNEMONIC_SETNBE,
                ZYDIS_MNEMONIC_SETS, ZYDIS_MNEMONIC_SETNS, ZYDIS_MNEMONIC_SETP, ZYDIS_MNEMONIC_SETNP,
                ZYDIS_MNEMONIC_SETL, ZYDIS_MNEMONIC_SETNL, ZYDIS_MNEMONIC_SETLE, ZYDIS_MNEMONIC_SETNLE}) {
    t.add(m, {setcc});
  }
  for (int m : {ZYDIS_MNEMONIC_CMOVO, ZYDIS_MNEMONIC_CMOVNO, ZYDIS_MNEMONIC_CMOVB, ZYDIS_MNEMONIC_CMOVNB,
                ZYDIS_MNEMONIC_CMOVZ, ZYDIS_MNEMONIC_CMOVNZ, ZYDIS_MNEMONIC_CMOVBE, ZYDIS_MNEMONIC_CMOVNBE,
                ZYDIS_MNEMONIC_CMOVS, ZYDIS_MNEMONIC_CMOVNS, ZYDIS_MNEMONIC_CMOVP, ZYDIS_MNEMONIC_CMOVNP,
                ZYDIS_MNEMONIC_CMOVL, ZYDIS_MNEMONIC_CMOVNL, ZYDIS_MNEMONIC_CMOVLE, ZYDIS_MNEMONIC_CMOVNLE}) {
    t.add(m, {cmovcc});
  }
  t.add(ZYDIS_MNEMONIC_CBW, {cbw});
  t.add(ZYDIS_MNEMONIC_CWDE, {cwde});
  t.add(ZYDIS_MNEMONIC_CDQE, {cdqe});
  t.add(ZYDIS_MNEMONIC_CWD, {cwd});
  t.add(ZYDIS_MNEMONIC_CDQ, {cdq});
  t.add(ZYDIS_MNEMONIC_CQO, {cqo});
  t.add(ZYDIS_MNEMONIC_LAHF, {lahf});
  t.add(ZYDIS_MNEMONIC_SAHF, {sahf});
  t.add(ZYDIS_MNEMONIC_CLC, {clc});
  t.add(ZYDIS_MNEMONIC_STC, {stc});
  t.add(ZYDIS_MNEMONIC_CMC, {cmc});
  t.add(ZYDIS_MNEMONIC_CLD, {cld});
  t.add(ZYDIS_MNEMONIC_STD, {std_});
  t.add(ZYDIS_MNEMONIC_PUSH, {push});
  t.add(ZYDIS_MNEMONIC_POP, {pop, 1});
  t.add(ZYDIS_MNEMONIC_PUSHA, {pusha, 8});
  t.add(ZYDIS_MNEMONIC_PUSHAD, {pusha, 8});
  t.add(ZYDIS_MNEMONIC_POPA, {popa, 8});
  t.add(ZYDIS_MNEMONIC_POPAD, {popa, 8});
  t.add(ZYDIS_MNEMONIC_ENTER, {enter, 10});
  t.add(ZYDIS_MNEMONIC_LEAVE, {leave});
  t.add(ZYDIS_MNEMONIC_XLAT, {xlat, 2});
  t.add(ZYDIS_MNEMONIC_ANDN, {andn});
  t.add(ZYDIS_MNEMONIC_BLSR, {blsr});
  t.add(ZYDIS_MNEMONIC_BLSI, {blsi});
  t.add(ZYDIS_MNEMONIC_BLSMSK, {blsmsk});
  t.add(ZYDIS_MNEMONIC_BEXTR, {bextr, 2});
  t.add(ZYDIS_MNEMONIC_BZHI, {bzhi});
  t.add(ZYDIS_MNEMONIC_SHLX, {shift_x<0>});
  t.add(ZYDIS_MNEMONIC_SHRX, {shift_x<1>});
  t.add(ZYDIS_MNEMONIC_SARX, {shift_x<2>});
  t.add(ZYDIS_MNEMONIC_RORX, {rorx});
  t.add(ZYDIS_MNEMONIC_MULX, {mulx, 4});
  t.add(ZYDIS_MNEMONIC_PDEP, {pdep, 3});
  t.add(ZYDIS_MNEMONIC_PEXT, {pext, 3});
  t.add(ZYDIS_MNEMONIC_ADCX, {add_with_one_flag<flag::cf>});
  t.add(ZYDIS_MNEMONIC_ADOX, {add_with_one_flag<flag::of>});
  t.add(ZYDIS_MNEMONIC_DAA, {daa});
  t.add(ZYDIS_MNEMONIC_DAS, {das});
  t.add(ZYDIS_MNEMONIC_AAA, {ascii_adjust<false>});
  t.add(ZYDIS_MNEMONIC_AAS, {ascii_adjust<true>});
  t.add(ZYDIS_MNEMONIC_AAM, {aam, 20});
  t.add(ZYDIS_MNEMONIC_AAD, {aad, 4});
  t.add(ZYDIS_MNEMONIC_SALC, {salc});
  t.add(ZYDIS_MNEMONIC_BOUND, {bound, 5});
  t.add(ZYDIS_MNEMONIC_NOP, {no_operation});
  t.add(ZYDIS_MNEMONIC_PAUSE, {no_operation});
  t.add(ZYDIS_MNEMONIC_ENDBR32, {no_operation});
  t.add(ZYDIS_MNEMONIC_ENDBR64, {no_operation});
}

}  // namespace vpmu::soft
