// SSE and SSE2: moves, floating-point arithmetic, comparisons and conversions, and the state that they have.
#include <Zydis/Zydis.h>

#include "machine/soft/sse.hpp"

namespace vpmu::soft {

namespace {

using namespace sse;  // NOLINT(google-build-using-namespace): the forms are written in its terms

// --- moves ---

template <bool Aligned>
void move_whole(Core& c, const Insn& i) {
  require(c);
  if (i.op[0].kind == Operand::Kind::mem) {
    write_memory(c, i, 16, c.xmm[i.op[1].reg], Aligned);
  } else if (i.op[1].kind == Operand::Kind::mem) {
    destination(c, i) = read_memory(c, i, 16, Aligned);
  } else {
    destination(c, i) = c.xmm[i.op[1].reg];
  }
}

/// MOVSS and MOVSD: a register's move keeps the upper part, a load clears it.
template <unsigned Bytes>
void move_scalar(Core& c, const Insn& i) {
  require(c);
  if (i.op[0].kind == Operand::Kind::mem) {
    write_memory(c, i, Bytes, c.xmm[i.op[1].reg], false);
  } else if (i.op[1].kind == Operand::Kind::mem) {
    destination(c, i) = read_memory(c, i, Bytes, false);
  } else {
    std::memcpy(destination(c, i).b.data(), c.xmm[i.op[1].reg].b.data(), Bytes);
  }
}

/// MOVD and MOVQ, between general registers, memory and the low part of an XMM register.
void move_low(Core& c, const Insn& i) {
  require(c);
  using Kind = Operand::Kind;
  const Operand& a = i.op[0];
  const Operand& b = i.op[1];
  if (a.kind == Kind::xmm) {
    Xmm value;
    value.q[0] = b.kind == Kind::xmm ? c.xmm[b.reg].q[0] : c.get(i, 1);
    c.xmm[a.reg] = value;
  } else {
    c.set(i, 0, c.xmm[b.reg].q[0]);
  }
}

/// MOVLPS, MOVHPS and their kin: one half, the other stays.
template <unsigned Half>
void move_half(Core& c, const Insn& i) {
  require(c);
  if (i.op[0].kind == Operand::Kind::mem) {
    c.write_seg(i.seg, c.offset_of(i), 8, c.xmm[i.op[1].reg].q[Half]);
  } else {
    destination(c, i).q[Half] = c.read_seg(i.seg, c.offset_of(i), 8);
  }
}

void movhlps(Core& c, const Insn& i) {
  require(c);
  destination(c, i).q[0] = c.xmm[i.op[1].reg].q[1];
}

void movlhps(Core& c, const Insn& i) {
  require(c);
  destination(c, i).q[1] = c.xmm[i.op[1].reg].q[0];
}

void movddup(Core& c, const Insn& i) {
  require(c);
  const u64 low = source(c, i, 1).q[0];
  destination(c, i).q = {low, low};
}

template <unsigned First>
void duplicate_floats(Core& c, const Insn& i) {
  require(c);
  const Xmm from = source(c, i, 1);
  destination(c, i).d = {from.d[First], from.d[First], from.d[First + 2], from.d[First + 2]};
}

void movmskps(Core& c, const Insn& i) {
  require(c);
  c.set_reg(i.op[0].reg, i.op[0].bytes, static_cast<u32>(_mm_movemask_ps(floats(c.xmm[i.op[1].reg]))));
}

void movmskpd(Core& c, const Insn& i) {
  require(c);
  c.set_reg(i.op[0].reg, i.op[0].bytes, static_cast<u32>(_mm_movemask_pd(doubles(c.xmm[i.op[1].reg]))));
}

// --- logic and shuffles, which no exception belongs to ---

template <class F>
GeneralForm bitwise(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    const Xmm b = source(c, i, 1);
    Xmm& a = destination(c, i);
    a = F{}(a, b, static_cast<unsigned>(i.imm));
  };
}

// --- arithmetic ---

template <class F>
GeneralForm packed_single(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    const __m128 b = floats(source(c, i, 1));
    Xmm& a = destination(c, i);
    a = pack(with_mxcsr(c, F{}, floats(a), b));
  };
}

template <class F>
GeneralForm packed_double(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    const __m128d b = doubles(source(c, i, 1));
    Xmm& a = destination(c, i);
    a = pack(with_mxcsr(c, F{}, doubles(a), b));
  };
}

/// CMPxx with its predicate, 0 to 7.
template <class V, class Eq, class Lt, class Le, class Unord, class Neq, class Nlt, class Nle, class Ord>
V compare(unsigned predicate, V a, V b, Eq eq, Lt lt, Le le, Unord unord, Neq neq, Nlt nlt, Nle nle, Ord ord) {
  switch (predicate & 7) {
    case 0:
      return eq(a, b);
    case 1:
      return lt(a, b);
    case 2:
      return le(a, b);
    case 3:
      return unord(a, b);
    case 4:
      return neq(a, b);
    case 5:
      return nlt(a, b);
    case 6:
      return nle(a, b);
    default:
      return ord(a, b);
  }
}

#define PREDICATES(suffix, V)                                                                                  \
  [](V p, V q) { return _mm_cmpeq_##suffix(p, q); }, [](V p, V q) { return _mm_cmplt_##suffix(p, q); },        \
      [](V p, V q) { return _mm_cmple_##suffix(p, q); }, [](V p, V q) { return _mm_cmpunord_##suffix(p, q); }, \
      [](V p, V q) { return _mm_cmpneq_##suffix(p, q); }, [](V p, V q) { return _mm_cmpnlt_##suffix(p, q); },  \
      [](V p, V q) { return _mm_cmpnle_##suffix(p, q); }, [](V p, V q) { return _mm_cmpord_##suffix(p, q); }

#define COMPARE_FORM(name, suffix, V, unpack)                                                                       \
  void name(Core& c, const Insn& i) {                                                                               \
    require(c);                                                                                                     \
    const V b = unpack(source(c, i, 1));                                                                            \
    Xmm& a = destination(c, i);                                                                                     \
    const unsigned predicate = static_cast<unsigned>(i.imm);                                                        \
    a = pack(                                                                                                       \
        with_mxcsr(c, [&](V x, V y) { return compare<V>(predicate, x, y, PREDICATES(suffix, V)); }, unpack(a), b)); \
  }
COMPARE_FORM(cmpps, ps, __m128, floats)
COMPARE_FORM(cmpss, ss, __m128, floats)
COMPARE_FORM(cmppd, pd, __m128d, doubles)
COMPARE_FORM(cmpsd, sd, __m128d, doubles)
#undef COMPARE_FORM
#undef PREDICATES

/// COMISx signals on quiet NaNs, UCOMISx does not. `F` gives ZF, PF and CF in lanes 0, 1 and 2.
template <class F>
GeneralForm ordered(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    const Xmm a = c.xmm[i.op[0].reg];
    const Xmm b = source(c, i, 1);
    const Xmm lanes = pack(with_mxcsr(c, F{}, a, b));
    c.fl.set_bits((lanes.d[0] != 0 ? flag::zf : 0) | (lanes.d[1] != 0 ? flag::pf : 0) |
                  (lanes.d[2] != 0 ? flag::cf : 0));
  };
}

// --- conversions ---

/// Of the first lane to an integer register.
template <class Narrow, class Wide>
GeneralForm to_integer(Narrow, Wide) {
  return [](Core& c, const Insn& i) {
    require(c);
    const Xmm from = source(c, i, 1);
    const bool wide = i.op[0].bytes == 8;
    const __m128i r = with_mxcsr(
        c, [&](const Xmm& x) { return wide ? _mm_cvtsi64_si128(Wide{}(x)) : _mm_cvtsi32_si128(Narrow{}(x)); }, from);
    c.set_reg(i.op[0].reg, i.op[0].bytes, pack(r).q[0]);
  };
}

void cvtsi2sd(Core& c, const Insn& i) {
  require(c);
  const u64 value = c.get(i, 1);
  const bool wide = i.op[1].bytes == 8;
  Xmm& a = destination(c, i);
  a = pack(with_mxcsr(
      c,
      [&](__m128d to, u64 v) {
        return wide ? _mm_cvtsi64_sd(to, static_cast<s64>(v)) : _mm_cvtsi32_sd(to, static_cast<std::int32_t>(v));
      },
      doubles(a), value));
}

void cvtsi2ss(Core& c, const Insn& i) {
  require(c);
  const u64 value = c.get(i, 1);
  const bool wide = i.op[1].bytes == 8;
  Xmm& a = destination(c, i);
  a = pack(with_mxcsr(
      c,
      [&](__m128 to, u64 v) {
        return wide ? _mm_cvtsi64_ss(to, static_cast<s64>(v)) : _mm_cvtsi32_ss(to, static_cast<std::int32_t>(v));
      },
      floats(a), value));
}

/// Of a whole vector into another, or of the first lane with the rest kept: `f` gets destination and source.
template <class F>
GeneralForm convert(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    const Xmm from = source(c, i, 1);
    Xmm& a = destination(c, i);
    a = pack(with_mxcsr(c, F{}, a, from));
  };
}

// --- state ---

constexpr u32 mxcsr_mask = 0xffff;

void ldmxcsr(Core& c, const Insn& i) {
  require(c);
  const u64 value = c.read_seg(i.seg, c.offset_of(i), 4);
  if ((value & ~u64{mxcsr_mask}) != 0) raise_gp();
  c.mxcsr = static_cast<u32>(value);
}

void stmxcsr(Core& c, const Insn& i) {
  require(c);
  c.write_seg(i.seg, c.offset_of(i), 4, c.mxcsr);
}

/// The 512-byte area (SDM Vol. 1 10.5.1); the x87 part is that of an empty FPU.
void fxsave(Core& c, const Insn& i) {
  if ((c.cr0 & (cr0::em | cr0::ts)) != 0) raise(vector::nm);
  const u64 offset = c.offset_of(i);
  const u64 linear = c.linear_address(i.seg, offset, 512, true);
  if (linear % 16 != 0) raise_gp();
  c.probe(linear, 512, Access::write, c.user());
  c.write_seg(i.seg, offset, 8, c.fcw);
  c.write_seg(i.seg, offset + 8, 8, 0);
  c.write_seg(i.seg, offset + 16, 8, 0);
  c.write_seg(i.seg, offset + 24, 8, c.mxcsr | (u64{mxcsr_mask} << 32));
  const unsigned count = c.code64() ? 16 : 8;
  for (unsigned n = 0; n < count; ++n) {
    c.write_seg(i.seg, offset + 160 + n * 16, 8, c.xmm[n].q[0]);
    c.write_seg(i.seg, offset + 168 + n * 16, 8, c.xmm[n].q[1]);
  }
}

void fxrstor(Core& c, const Insn& i) {
  if ((c.cr0 & (cr0::em | cr0::ts)) != 0) raise(vector::nm);
  const u64 offset = c.offset_of(i);
  if (c.linear_address(i.seg, offset, 512, false) % 16 != 0) raise_gp();
  const u64 control = c.read_seg(i.seg, offset + 24, 4);
  if ((control & ~u64{mxcsr_mask}) != 0) raise_gp();
  std::array<Xmm, 16> registers = c.xmm;
  const unsigned count = c.code64() ? 16 : 8;
  for (unsigned n = 0; n < count; ++n) {
    registers[n].q[0] = c.read_seg(i.seg, offset + 160 + n * 16, 8);
    registers[n].q[1] = c.read_seg(i.seg, offset + 168 + n * 16, 8);
  }
  c.fcw = static_cast<u16>(c.read_seg(i.seg, offset, 2));
  c.mxcsr = static_cast<u32>(control);
  c.xmm = registers;
}

void add_moves(FormTable& t) {
  for (int m : {ZYDIS_MNEMONIC_MOVAPS, ZYDIS_MNEMONIC_MOVAPD, ZYDIS_MNEMONIC_MOVDQA, ZYDIS_MNEMONIC_MOVNTPS,
                ZYDIS_MNEMONIC_MOVNTPD, ZYDIS_MNEMONIC_MOVNTDQ}) {
    t.add(m, {move_whole<true>});
  }
  for (int m : {ZYDIS_MNEMONIC_MOVUPS, ZYDIS_MNEMONIC_MOVUPD, ZYDIS_MNEMONIC_MOVDQU, ZYDIS_MNEMONIC_LDDQU}) {
    t.add(m, {move_whole<false>});
  }
  t.add(ZYDIS_MNEMONIC_MOVSS, {move_scalar<4>});
  t.add_sse(ZYDIS_MNEMONIC_MOVSD, {move_scalar<8>});
  t.add(ZYDIS_MNEMONIC_MOVD, {move_low});
  t.add(ZYDIS_MNEMONIC_MOVQ, {move_low});
  t.add(ZYDIS_MNEMONIC_MOVLPS, {move_half<0>});
  t.add(ZYDIS_MNEMONIC_MOVLPD, {move_half<0>});
  t.add(ZYDIS_MNEMONIC_MOVHPS, {move_half<1>});
  t.add(ZYDIS_MNEMONIC_MOVHPD, {move_half<1>});
  t.add(ZYDIS_MNEMONIC_MOVHLPS, {movhlps});
  t.add(ZYDIS_MNEMONIC_MOVLHPS, {movlhps});
  t.add(ZYDIS_MNEMONIC_MOVDDUP, {movddup});
  t.add(ZYDIS_MNEMONIC_MOVSLDUP, {duplicate_floats<0>});
  t.add(ZYDIS_MNEMONIC_MOVSHDUP, {duplicate_floats<1>});
  t.add(ZYDIS_MNEMONIC_MOVMSKPS, {movmskps, 2});
  t.add(ZYDIS_MNEMONIC_MOVMSKPD, {movmskpd, 2});
}

void add_logic(FormTable& t) {
  const auto logic = [&t](int single, int dual, GeneralForm form) {
    t.add(single, {form});
    t.add(dual, {form});
  };
  logic(ZYDIS_MNEMONIC_ANDPS, ZYDIS_MNEMONIC_ANDPD,
        bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_and_si128(ints(a), ints(b))); }));
  logic(ZYDIS_MNEMONIC_ANDNPS, ZYDIS_MNEMONIC_ANDNPD,
        bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_andnot_si128(ints(a), ints(b))); }));
  logic(ZYDIS_MNEMONIC_ORPS, ZYDIS_MNEMONIC_ORPD,
        bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_or_si128(ints(a), ints(b))); }));
  logic(ZYDIS_MNEMONIC_XORPS, ZYDIS_MNEMONIC_XORPD,
        bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_xor_si128(ints(a), ints(b))); }));
  t.add(ZYDIS_MNEMONIC_UNPCKLPS,
        {bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_unpacklo_ps(floats(a), floats(b))); })});
  t.add(ZYDIS_MNEMONIC_UNPCKHPS,
        {bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_unpackhi_ps(floats(a), floats(b))); })});
  t.add(ZYDIS_MNEMONIC_UNPCKLPD,
        {bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_unpacklo_pd(doubles(a), doubles(b))); })});
  t.add(ZYDIS_MNEMONIC_UNPCKHPD,
        {bitwise([](const Xmm& a, const Xmm& b, unsigned) { return pack(_mm_unpackhi_pd(doubles(a), doubles(b))); })});
  t.add(ZYDIS_MNEMONIC_SHUFPS, {bitwise([](const Xmm& a, const Xmm& b, unsigned order) {
          Xmm r;
          r.d = {a.d[order & 3], a.d[(order >> 2) & 3], b.d[(order >> 4) & 3], b.d[(order >> 6) & 3]};
          return r;
        })});
  t.add(ZYDIS_MNEMONIC_SHUFPD, {bitwise([](const Xmm& a, const Xmm& b, unsigned order) {
          Xmm r;
          r.q = {a.q[order & 1], b.q[(order >> 1) & 1]};
          return r;
        })});
}

void add_arithmetic(FormTable& t) {
// In assembly: compilers exchange the operands of commutative operations, and with them which NaN comes out.
#define OPERATE(V, text)                             \
  [](V a, V b) {                                     \
    asm volatile(text " %1, %0" : "+x"(a) : "x"(b)); \
    return a;                                        \
  }
#define ARITHMETIC(name, op, cost)                                                     \
  t.add(ZYDIS_MNEMONIC_##name##PS, {packed_single(OPERATE(__m128, #op "ps")), cost});  \
  t.add(ZYDIS_MNEMONIC_##name##SS, {packed_single(OPERATE(__m128, #op "ss")), cost});  \
  t.add(ZYDIS_MNEMONIC_##name##PD, {packed_double(OPERATE(__m128d, #op "pd")), cost}); \
  t.add(ZYDIS_MNEMONIC_##name##SD, {packed_double(OPERATE(__m128d, #op "sd")), cost})
  ARITHMETIC(ADD, add, 3);
  ARITHMETIC(SUB, sub, 3);
  ARITHMETIC(MUL, mul, 4);
  ARITHMETIC(DIV, div, 13);
  ARITHMETIC(MIN, min, 2);
  ARITHMETIC(MAX, max, 2);
#undef ARITHMETIC
#undef OPERATE
  t.add(ZYDIS_MNEMONIC_SQRTPS, {packed_single([](__m128, __m128 b) { return _mm_sqrt_ps(b); }), 15});
  t.add(ZYDIS_MNEMONIC_SQRTSS, {packed_single([](__m128 a, __m128 b) { return _mm_move_ss(a, _mm_sqrt_ss(b)); }), 15});
  t.add(ZYDIS_MNEMONIC_SQRTPD, {packed_double([](__m128d, __m128d b) { return _mm_sqrt_pd(b); }), 20});
  t.add(ZYDIS_MNEMONIC_SQRTSD, {packed_double([](__m128d a, __m128d b) { return _mm_sqrt_sd(a, b); }), 20});
  t.add(ZYDIS_MNEMONIC_CMPPS, {cmpps, 2});
  t.add(ZYDIS_MNEMONIC_CMPSS, {cmpss, 2});
  t.add(ZYDIS_MNEMONIC_CMPPD, {cmppd, 2});
  t.add_sse(ZYDIS_MNEMONIC_CMPSD, {cmpsd, 2});
// In assembly for the flags: what the intrinsics make of an unordered result differs between compilers.
#define ORDERED(name, text)                                                                                            \
  t.add(ZYDIS_MNEMONIC_##name,                                                                                         \
        {ordered([](const Xmm& a, const Xmm& b) {                                                                      \
           bool zero;                                                                                                  \
           bool parity;                                                                                                \
           bool carry;                                                                                                 \
           asm volatile(text " %4, %3" : "=@ccz"(zero), "=@ccp"(parity), "=@ccc"(carry) : "x"(ints(a)), "x"(ints(b))); \
           return _mm_setr_epi32(zero, parity, carry, 0);                                                              \
         }),                                                                                                           \
         2})
  ORDERED(COMISS, "comiss");
  ORDERED(COMISD, "comisd");
  ORDERED(UCOMISS, "ucomiss");
  ORDERED(UCOMISD, "ucomisd");
#undef ORDERED
}

void add_conversions(FormTable& t) {
  t.add(ZYDIS_MNEMONIC_CVTSI2SD, {cvtsi2sd, 4});
  t.add(ZYDIS_MNEMONIC_CVTSI2SS, {cvtsi2ss, 4});
  t.add(ZYDIS_MNEMONIC_CVTSD2SI, {to_integer([](const Xmm& x) { return _mm_cvtsd_si32(doubles(x)); },
                                             [](const Xmm& x) { return _mm_cvtsd_si64(doubles(x)); }),
                                  4});
  t.add(ZYDIS_MNEMONIC_CVTTSD2SI, {to_integer([](const Xmm& x) { return _mm_cvttsd_si32(doubles(x)); },
                                              [](const Xmm& x) { return _mm_cvttsd_si64(doubles(x)); }),
                                   4});
  t.add(ZYDIS_MNEMONIC_CVTSS2SI, {to_integer([](const Xmm& x) { return _mm_cvtss_si32(floats(x)); },
                                             [](const Xmm& x) { return _mm_cvtss_si64(floats(x)); }),
                                  4});
  t.add(ZYDIS_MNEMONIC_CVTTSS2SI, {to_integer([](const Xmm& x) { return _mm_cvttss_si32(floats(x)); },
                                              [](const Xmm& x) { return _mm_cvttss_si64(floats(x)); }),
                                   4});
#define CONVERT(name, expression) \
  t.add(ZYDIS_MNEMONIC_##name, {convert([]([[maybe_unused]] const Xmm& a, const Xmm& b) { return expression; }), 4})
  CONVERT(CVTSD2SS, _mm_cvtsd_ss(floats(a), doubles(b)));
  CONVERT(CVTSS2SD, _mm_cvtss_sd(doubles(a), floats(b)));
  CONVERT(CVTPS2PD, _mm_cvtps_pd(floats(b)));
  CONVERT(CVTPD2PS, _mm_cvtpd_ps(doubles(b)));
  CONVERT(CVTDQ2PS, _mm_cvtepi32_ps(ints(b)));
  CONVERT(CVTPS2DQ, _mm_cvtps_epi32(floats(b)));
  CONVERT(CVTTPS2DQ, _mm_cvttps_epi32(floats(b)));
  CONVERT(CVTDQ2PD, _mm_cvtepi32_pd(ints(b)));
  CONVERT(CVTPD2DQ, _mm_cvtpd_epi32(doubles(b)));
  CONVERT(CVTTPD2DQ, _mm_cvttpd_epi32(doubles(b)));
#undef CONVERT
}

}  // namespace

void add_sse_forms(FormTable& t) {
  add_moves(t);
  add_logic(t);
  add_arithmetic(t);
  add_conversions(t);
  t.add(ZYDIS_MNEMONIC_LDMXCSR, {ldmxcsr, 4});
  t.add(ZYDIS_MNEMONIC_STMXCSR, {stmxcsr, 3});
  for (int m : {ZYDIS_MNEMONIC_FXSAVE, ZYDIS_MNEMONIC_FXSAVE64}) t.add(m, {fxsave, 60});
  for (int m : {ZYDIS_MNEMONIC_FXRSTOR, ZYDIS_MNEMONIC_FXRSTOR64}) t.add(m, {fxrstor, 60});
}

}  // namespace vpmu::soft
