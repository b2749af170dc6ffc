// EFLAGS bits, and the arithmetic flags kept as the operands that they follow from.
#pragma once

#include <bit>

#include "machine/soft/types.hpp"

namespace vpmu::soft {

namespace flag {
inline constexpr u64 cf = 1u << 0;
inline constexpr u64 fixed_one = 1u << 1;
inline constexpr u64 pf = 1u << 2;
inline constexpr u64 af = 1u << 4;
inline constexpr u64 zf = 1u << 6;
inline constexpr u64 sf = 1u << 7;
inline constexpr u64 tf = 1u << 8;
inline constexpr u64 if_ = 1u << 9;
inline constexpr u64 df = 1u << 10;
inline constexpr u64 of = 1u << 11;
inline constexpr u64 iopl = 3u << 12;
inline constexpr u64 nt = 1u << 14;
inline constexpr u64 rf = 1u << 16;
inline constexpr u64 vm = 1u << 17;
inline constexpr u64 ac = 1u << 18;
inline constexpr u64 vif = 1u << 19;
inline constexpr u64 vip = 1u << 20;
inline constexpr u64 id = 1u << 21;
inline constexpr u64 arithmetic = cf | pf | af | zf | sf | of;
}  // namespace flag

/// The conditions of Jcc, SETcc and CMOVcc, by the low four bits of the opcode.
enum class Cond : u8 { o, no, b, nb, z, nz, be, nbe, s, ns, p, np, l, nl, le, nle };

/// CF, PF, AF, ZF, SF and OF, worked out when something asks.
///
/// Operands and result are kept sign-extended to 64 bits. Sign extension keeps both the signed and the unsigned
/// order, so that one comparison serves every operand size. Logic results are kept as r - 0.
struct LazyFlags {
  enum class Kind : u32 {
    subtract,  ///< a - b = r
    add,       ///< a + b = r
    inc,       ///< a + 1 = r, CF as saved
    dec,       ///< a - 1 = r, CF as saved
    partial,   ///< ZF, SF, PF from r; CF, AF, OF from `bits`
    bits,      ///< all in `bits`
  };
  u64 a = 0;
  u64 b = 0;
  u64 r = 0;
  Kind kind = Kind::bits;
  u32 bits = 0;

  void set_bits(u64 value) {
    kind = Kind::bits;
    bits = static_cast<u32>(value & flag::arithmetic);
  }
  void set_logic(u64 extended) {
    a = r = extended;
    b = 0;
    kind = Kind::subtract;
  }
  void set_partial(u64 extended, u64 carry_flags) {
    r = extended;
    kind = Kind::partial;
    bits = static_cast<u32>(carry_flags);
  }

  [[nodiscard]] bool cf() const {
    switch (kind) {
      case Kind::subtract:
        return a < b;
      case Kind::add:
        return r < a;
      default:
        return (bits & flag::cf) != 0;
    }
  }
  [[nodiscard]] bool of() const {
    switch (kind) {
      case Kind::subtract:
      case Kind::dec:
        return static_cast<s64>((a ^ b) & (a ^ r)) < 0;
      case Kind::add:
      case Kind::inc:
        return static_cast<s64>((a ^ r) & (b ^ r)) < 0;
      default:
        return (bits & flag::of) != 0;
    }
  }
  [[nodiscard]] bool af() const { return kind >= Kind::partial ? (bits & flag::af) != 0 : ((a ^ b ^ r) & 0x10) != 0; }
  [[nodiscard]] bool zf() const { return kind == Kind::bits ? (bits & flag::zf) != 0 : r == 0; }
  [[nodiscard]] bool sf() const { return kind == Kind::bits ? (bits & flag::sf) != 0 : static_cast<s64>(r) < 0; }
  [[nodiscard]] bool pf() const {
    return kind == Kind::bits ? (bits & flag::pf) != 0 : (std::popcount(static_cast<u8>(r)) & 1) == 0;
  }
  [[nodiscard]] u64 value() const {
    if (kind == Kind::bits) return bits;
    return (cf() ? flag::cf : 0) | (pf() ? flag::pf : 0) | (af() ? flag::af : 0) | (zf() ? flag::zf : 0) |
           (sf() ? flag::sf : 0) | (of() ? flag::of : 0);
  }

  template <Cond C>
  [[nodiscard]] bool test() const {
    constexpr auto base = static_cast<Cond>(static_cast<u8>(C) & 0xe);
    constexpr bool negate = (static_cast<u8>(C) & 1) != 0;
    return base_test<base>() != negate;
  }
  [[nodiscard]] bool test(Cond cond) const {
    switch (cond) {
      case Cond::o:
        return test<Cond::o>();
      case Cond::no:
        return test<Cond::no>();
      case Cond::b:
        return test<Cond::b>();
      case Cond::nb:
        return test<Cond::nb>();
      case Cond::z:
        return test<Cond::z>();
      case Cond::nz:
        return test<Cond::nz>();
      case Cond::be:
        return test<Cond::be>();
      case Cond::nbe:
        return test<Cond::nbe>();
      case Cond::s:
        return test<Cond::s>();
      case Cond::ns:
        return test<Cond::ns>();
      case Cond::p:
        return test<Cond::p>();
      case Cond::np:
        return test<Cond::np>();
      case Cond::l:
        return test<Cond::l>();
      case Cond::nl:
        return test<Cond::nl>();
      case Cond::le:
        return test<Cond::le>();
      case Cond::nle:
        return test<Cond::nle>();
    }
    return false;
  }

 private:
  template <Cond C>
  [[nodiscard]] bool base_test() const {
    const bool subtracted = kind == Kind::subtract;
    if constexpr (C == Cond::o) return of();
    if constexpr (C == Cond::b) return subtracted ? a < b : cf();
    if constexpr (C == Cond::z) return zf();
    if constexpr (C == Cond::be) return subtracted ? a <= b : cf() || zf();
    if constexpr (C == Cond::s) return sf();
    if constexpr (C == Cond::p) return pf();
    if constexpr (C == Cond::l) return subtracted ? static_cast<s64>(a) < static_cast<s64>(b) : sf() != of();
    if constexpr (C == Cond::le) {
      return subtracted ? static_cast<s64>(a) <= static_cast<s64>(b) : zf() || sf() != of();
    }
  }
};

/// The operations of the first eight opcode rows, and TEST.
enum class Alu : u8 { add, or_, adc, sbb, and_, sub, xor_, cmp, test };

/// Performs one of them: returns the result (for CMP and TEST not to be stored) and records the flags.
template <Alu K, class T>
inline T alu(LazyFlags& f, T a, T b) {
  T r;
  if constexpr (K == Alu::add) {
    r = static_cast<T>(a + b);
    f.kind = LazyFlags::Kind::add;
  } else if constexpr (K == Alu::sub || K == Alu::cmp) {
    r = static_cast<T>(a - b);
    f.kind = LazyFlags::Kind::subtract;
  } else if constexpr (K == Alu::adc || K == Alu::sbb) {
    const T carry = f.cf() ? 1 : 0;
    constexpr unsigned top = sizeof(T) * 8 - 1;
    T carries;
    T overflow;
    if constexpr (K == Alu::adc) {
      r = static_cast<T>(static_cast<T>(a + b) + carry);
      carries = static_cast<T>((a & b) | ((a | b) & ~r));
      overflow = static_cast<T>((a ^ r) & (b ^ r));
    } else {
      r = static_cast<T>(static_cast<T>(a - b) - carry);
      carries = static_cast<T>((~a & b) | ((~a | b) & r));
      overflow = static_cast<T>((a ^ b) & (a ^ r));
    }
    f.set_partial(sign_extend(r), ((carries >> top) & 1 ? flag::cf : 0) | ((overflow >> top) & 1 ? flag::of : 0) |
                                      (static_cast<u64>(a ^ b ^ r) & flag::af));
    return r;
  } else {
    if constexpr (K == Alu::or_) r = static_cast<T>(a | b);
    if constexpr (K == Alu::and_ || K == Alu::test) r = static_cast<T>(a & b);
    if constexpr (K == Alu::xor_) r = static_cast<T>(a ^ b);
    f.set_logic(sign_extend(r));
    return r;
  }
  f.a = sign_extend(a);
  f.b = sign_extend(b);
  f.r = sign_extend(r);
  return r;
}

template <class T>
inline T increment(LazyFlags& f, T a) {
  if (f.kind != LazyFlags::Kind::inc && f.kind != LazyFlags::Kind::dec) f.bits = f.cf() ? flag::cf : 0;
  const T r = static_cast<T>(a + 1);
  f.a = sign_extend(a);
  f.b = 1;
  f.r = sign_extend(r);
  f.kind = LazyFlags::Kind::inc;
  return r;
}

template <class T>
inline T decrement(LazyFlags& f, T a) {
  if (f.kind != LazyFlags::Kind::inc && f.kind != LazyFlags::Kind::dec) f.bits = f.cf() ? flag::cf : 0;
  const T r = static_cast<T>(a - 1);
  f.a = sign_extend(a);
  f.b = 1;
  f.r = sign_extend(r);
  f.kind = LazyFlags::Kind::dec;
  return r;
}

template <class T>
inline T negate(LazyFlags& f, T a) {
  return alu<Alu::sub, T>(f, T{0}, a);
}

/// SHL, SHR and SAR by a count that is already masked; a count of 0 changes no flag.
enum class Shift : u8 { shl, shr, sar };

template <Shift K, class T>
inline T shift(LazyFlags& f, T a, unsigned count) {
  if (count == 0) return a;
  constexpr unsigned bits = sizeof(T) * 8;
  bool carry = false;
  bool overflow = false;
  T r = 0;
  if constexpr (K == Shift::shl) {
    if (count <= bits) {
      carry = (static_cast<u64>(a) >> (bits - count)) & 1;
      r = count == bits ? T{0} : static_cast<T>(static_cast<u64>(a) << count);
    }
    overflow = ((static_cast<u64>(r) >> (bits - 1)) & 1) != static_cast<u64>(carry);
  } else if constexpr (K == Shift::shr) {
    if (count <= bits) {
      carry = (static_cast<u64>(a) >> (count - 1)) & 1;
      r = count == bits ? T{0} : static_cast<T>(static_cast<u64>(a) >> count);
    }
    // Defined for a count of 1 (the sign changes); for larger ones the OF of the last single step.
    overflow = ((static_cast<u64>(r) >> (bits - 1)) ^ (static_cast<u64>(r) >> (bits - 2))) & 1;
  } else {
    const u64 extended = sign_extend(a);
    const unsigned capped = count < 63 ? count : 63;
    carry = (static_cast<s64>(extended) >> (capped - 1)) & 1;
    if (count >= bits) carry = static_cast<s64>(extended) < 0;
    r = static_cast<T>(static_cast<s64>(extended) >> capped);
  }
  f.set_partial(sign_extend(r), (carry ? flag::cf : 0) | (overflow ? flag::of : 0));
  return r;
}

}  // namespace vpmu::soft
