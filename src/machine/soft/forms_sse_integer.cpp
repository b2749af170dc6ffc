// SSE2's integers: packed arithmetic, comparisons, shifts, shuffles.
#include <Zydis/Zydis.h>

#include "machine/soft/sse.hpp"

namespace vpmu::soft {

namespace {

using namespace sse;  // NOLINT(google-build-using-namespace): the forms are written in its terms

/// A form from a function of two vectors of integers.
template <class F>
GeneralForm binary(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    const Xmm b = source(c, i, 1);
    Xmm& a = destination(c, i);
    a = pack(F{}(ints(a), ints(b)));
  };
}

/// Shifts of elements, by an immediate or by the low quadword of a register or memory.
template <class F>
GeneralForm shift(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    Xmm count;
    if (i.op[1].kind == Operand::Kind::imm) {
      count.q[0] = i.imm & 0xff;
    } else {
      count = source(c, i, 1);
    }
    Xmm& a = destination(c, i);
    a = pack(F{}(ints(a), ints(count)));
  };
}

/// Shuffles that take their order from an immediate, element by element.
template <class F>
GeneralForm shuffle(F) {
  return [](Core& c, const Insn& i) {
    require(c);
    const Xmm from = source(c, i, 1);
    destination(c, i) = F{}(from, static_cast<unsigned>(i.imm));
  };
}

template <bool Left>
void shift_bytes(Core& c, const Insn& i) {
  require(c);
  const u64 count = std::min<u64>(i.imm & 0xff, 16);
  Xmm& a = destination(c, i);
  Xmm r;
  for (u64 n = 0; n + count < 16; ++n) {
    if constexpr (Left) {
      r.b[n + count] = a.b[n];
    } else {
      r.b[n] = a.b[n + count];
    }
  }
  a = r;
}

void pmovmskb(Core& c, const Insn& i) {
  require(c);
  c.set_reg(i.op[0].reg, i.op[0].bytes, static_cast<u32>(_mm_movemask_epi8(ints(c.xmm[i.op[1].reg]))));
}

void pextrw(Core& c, const Insn& i) {
  require(c);
  if (i.op[0].kind != Operand::Kind::reg) raise_ud();
  c.set_reg(i.op[0].reg, i.op[0].bytes, c.xmm[i.op[1].reg].w[i.imm & 7]);
}

void pinsrw(Core& c, const Insn& i) {
  require(c);
  const u64 value = i.op[1].kind == Operand::Kind::mem ? c.read_seg(i.seg, c.offset_of(i), 2) : c.get(i, 1);
  destination(c, i).w[i.imm & 7] = static_cast<u16>(value);
}

}  // namespace

void add_sse_integer_forms(FormTable& t) {
#define BINARY(mnemonic, intrinsic) \
  t.add(ZYDIS_MNEMONIC_##mnemonic, {binary([](__m128i a, __m128i b) { return intrinsic(a, b); })})
  BINARY(PADDB, _mm_add_epi8);
  BINARY(PADDW, _mm_add_epi16);
  BINARY(PADDD, _mm_add_epi32);
  BINARY(PADDQ, _mm_add_epi64);
  BINARY(PADDSB, _mm_adds_epi8);
  BINARY(PADDSW, _mm_adds_epi16);
  BINARY(PADDUSB, _mm_adds_epu8);
  BINARY(PADDUSW, _mm_adds_epu16);
  BINARY(PSUBB, _mm_sub_epi8);
  BINARY(PSUBW, _mm_sub_epi16);
  BINARY(PSUBD, _mm_sub_epi32);
  BINARY(PSUBQ, _mm_sub_epi64);
  BINARY(PSUBSB, _mm_subs_epi8);
  BINARY(PSUBSW, _mm_subs_epi16);
  BINARY(PSUBUSB, _mm_subs_epu8);
  BINARY(PSUBUSW, _mm_subs_epu16);
  BINARY(PMULLW, _mm_mullo_epi16);
  BINARY(PMULHW, _mm_mulhi_epi16);
  BINARY(PMULHUW, _mm_mulhi_epu16);
  BINARY(PMULUDQ, _mm_mul_epu32);
  BINARY(PMADDWD, _mm_madd_epi16);
  BINARY(PSADBW, _mm_sad_epu8);
  BINARY(PAVGB, _mm_avg_epu8);
  BINARY(PAVGW, _mm_avg_epu16);
  BINARY(PMINUB, _mm_min_epu8);
  BINARY(PMAXUB, _mm_max_epu8);
  BINARY(PMINSW, _mm_min_epi16);
  BINARY(PMAXSW, _mm_max_epi16);
  BINARY(PCMPEQB, _mm_cmpeq_epi8);
  BINARY(PCMPEQW, _mm_cmpeq_epi16);
  BINARY(PCMPEQD, _mm_cmpeq_epi32);
  BINARY(PCMPGTB, _mm_cmpgt_epi8);
  BINARY(PCMPGTW, _mm_cmpgt_epi16);
  BINARY(PCMPGTD, _mm_cmpgt_epi32);
  BINARY(PAND, _mm_and_si128);
  BINARY(PANDN, _mm_andnot_si128);
  BINARY(POR, _mm_or_si128);
  BINARY(PXOR, _mm_xor_si128);
  BINARY(PACKSSWB, _mm_packs_epi16);
  BINARY(PACKSSDW, _mm_packs_epi32);
  BINARY(PACKUSWB, _mm_packus_epi16);
  BINARY(PUNPCKLBW, _mm_unpacklo_epi8);
  BINARY(PUNPCKLWD, _mm_unpacklo_epi16);
  BINARY(PUNPCKLDQ, _mm_unpacklo_epi32);
  BINARY(PUNPCKLQDQ, _mm_unpacklo_epi64);
  BINARY(PUNPCKHBW, _mm_unpackhi_epi8);
  BINARY(PUNPCKHWD, _mm_unpackhi_epi16);
  BINARY(PUNPCKHDQ, _mm_unpackhi_epi32);
  BINARY(PUNPCKHQDQ, _mm_unpackhi_epi64);
#undef BINARY
#define SHIFT(mnemonic, intrinsic) \
  t.add(ZYDIS_MNEMONIC_##mnemonic, {shift([](__m128i a, __m128i count) { return intrinsic(a, count); })})
  SHIFT(PSLLW, _mm_sll_epi16);
  SHIFT(PSLLD, _mm_sll_epi32);
  SHIFT(PSLLQ, _mm_sll_epi64);
  SHIFT(PSRLW, _mm_srl_epi16);
  SHIFT(PSRLD, _mm_srl_epi32);
  SHIFT(PSRLQ, _mm_srl_epi64);
  SHIFT(PSRAW, _mm_sra_epi16);
  SHIFT(PSRAD, _mm_sra_epi32);
#undef SHIFT
  t.add(ZYDIS_MNEMONIC_PSLLDQ, {shift_bytes<true>});
  t.add(ZYDIS_MNEMONIC_PSRLDQ, {shift_bytes<false>});
  t.add(ZYDIS_MNEMONIC_PSHUFD, {shuffle([](const Xmm& a, unsigned order) {
          Xmm r;
          for (unsigned n = 0; n < 4; ++n) r.d[n] = a.d[(order >> (n * 2)) & 3];
          return r;
        })});
  t.add(ZYDIS_MNEMONIC_PSHUFLW, {shuffle([](const Xmm& a, unsigned order) {
          Xmm r = a;
          for (unsigned n = 0; n < 4; ++n) r.w[n] = a.w[(order >> (n * 2)) & 3];
          return r;
        })});
  t.add(ZYDIS_MNEMONIC_PSHUFHW, {shuffle([](const Xmm& a, unsigned order) {
          Xmm r = a;
          for (unsigned n = 0; n < 4; ++n) r.w[4 + n] = a.w[4 + ((order >> (n * 2)) & 3)];
          return r;
        })});
  t.add(ZYDIS_MNEMONIC_PMOVMSKB, {pmovmskb, 2});
  t.add(ZYDIS_MNEMONIC_PEXTRW, {pextrw, 2});
  t.add(ZYDIS_MNEMONIC_PINSRW, {pinsrw, 2});
}

}  // namespace vpmu::soft
