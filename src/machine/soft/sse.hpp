// What the SSE forms share: operands, the checks before each instruction, MXCSR.
#pragma once

#include <emmintrin.h>
#include <xmmintrin.h>

#include "machine/soft/forms.hpp"

namespace vpmu::soft::sse {

/// #UD without OS support, #NM while the FPU is switched off (SDM Vol. 2, exception classes).
inline void require(const Core& c) {
  if ((c.cr0 & cr0::em) != 0 || (c.cr4 & cr4::osfxsr) == 0) raise_ud();
  if ((c.cr0 & cr0::ts) != 0) raise(vector::nm);
}

inline Xmm read_memory(Core& c, const Insn& i, unsigned bytes, bool aligned) {
  Xmm value;
  const u64 offset = c.offset_of(i);
  if (bytes < 16) {
    value.q[0] = c.read_seg(i.seg, offset, bytes);
    return value;
  }
  if (aligned && c.linear_address(i.seg, offset, 16, false) % 16 != 0) raise_gp();
  value.q[0] = c.read_seg(i.seg, offset, 8);
  value.q[1] = c.read_seg(i.seg, truncate(offset + 8, i.address_bytes), 8);
  return value;
}

inline void write_memory(Core& c, const Insn& i, unsigned bytes, const Xmm& value, bool aligned) {
  const u64 offset = c.offset_of(i);
  if (bytes < 16) {
    c.write_seg(i.seg, offset, bytes, value.q[0]);
    return;
  }
  const u64 linear = c.linear_address(i.seg, offset, 16, true);
  if (aligned && linear % 16 != 0) raise_gp();
  c.probe(linear, 16, Access::write, c.user());
  c.write_seg(i.seg, offset, 8, value.q[0]);
  c.write_seg(i.seg, truncate(offset + 8, i.address_bytes), 8, value.q[1]);
}

/// An XMM register whole, or memory zero-extended. 16-byte memory operands must be aligned.
inline Xmm source(Core& c, const Insn& i, unsigned n) {
  const Operand& o = i.op[n];
  if (o.kind == Operand::Kind::xmm) return c.xmm[o.reg];
  return read_memory(c, i, o.bytes, true);
}

inline Xmm& destination(Core& c, const Insn& i) { return c.xmm[i.op[0].reg]; }

inline __m128i ints(const Xmm& x) {
  __m128i v;
  std::memcpy(&v, x.b.data(), sizeof v);
  return v;
}
inline __m128 floats(const Xmm& x) { return _mm_castsi128_ps(ints(x)); }
inline __m128d doubles(const Xmm& x) { return _mm_castsi128_pd(ints(x)); }
inline Xmm pack(__m128i v) {
  Xmm x;
  std::memcpy(x.b.data(), &v, sizeof v);
  return x;
}
inline Xmm pack(__m128 v) { return pack(_mm_castps_si128(v)); }
inline Xmm pack(__m128d v) { return pack(_mm_castpd_si128(v)); }

constexpr u32 mxcsr_flags = 0x3f, mxcsr_masks = 0x1f80;

// The compiler knows of no dependence between arithmetic and MXCSR: what goes in and what comes out has to look as if
// MXCSR's access made it.
inline void pin(__m128& v) { asm volatile("" : "+x"(v)); }
inline void pin(__m128d& v) { asm volatile("" : "+x"(v)); }
inline void pin(__m128i& v) { asm volatile("" : "+x"(v)); }
inline void pin(u64& v) { asm volatile("" : "+r"(v)); }
inline void pin(Xmm& x) {
  __m128i v = ints(x);
  pin(v);
  x = pack(v);
}

/// Runs `f(inputs...)` under the guest's rounding mode, all exceptions masked, and hands back the guest's flags: an
/// unmasked exception is #XM, and then nothing was written.
template <class F, class... Inputs>
auto with_mxcsr(Core& c, F f, Inputs... inputs) {
  const u32 host = _mm_getcsr();
  _mm_setcsr((c.mxcsr & ~mxcsr_flags) | mxcsr_masks);
  (pin(inputs), ...);
  auto result = f(inputs...);
  pin(result);
  const u32 raised = _mm_getcsr() & mxcsr_flags;
  _mm_setcsr(host);
  c.mxcsr |= raised;
  if ((raised & ~(c.mxcsr >> 7) & mxcsr_flags) != 0) {
    if ((c.cr4 & cr4::osxmmexcpt) == 0) raise_ud();
    raise(vector::xm);
  }
  return result;
}

}  // namespace vpmu::soft::sse
