// Descriptors and segment registers (SDM Vol. 3A ch. 3 and 5).
#include "machine/soft/core.hpp"

namespace vpmu::soft {

namespace {

constexpr u16 without_rpl(u16 selector) { return static_cast<u16>(selector & ~3); }
constexpr bool is_null(u16 selector) { return without_rpl(selector) == 0; }

}  // namespace

Segment Core::Descriptor::segment(u16 selector) const {
  Segment s;
  s.selector = selector;
  s.access = static_cast<u8>(low >> 40);
  s.flags = static_cast<u8>((low >> 52) & 0xf);
  s.limit = static_cast<u32>((low & 0xffff) | ((low >> 32) & 0xf0000));
  if ((s.flags & 8) != 0) s.limit = (s.limit << 12) | 0xfff;
  s.base = ((low >> 16) & 0xffffff) | ((low >> 32) & 0xff000000) | (high << 32);
  s.usable = true;
  return s;
}

u64 Core::Descriptor::gate_offset(bool wide) const {
  return (low & 0xffff) | ((low >> 32) & 0xffff0000) | (wide ? high << 32 : 0);
}

Core::Descriptor Core::descriptor(u16 selector, u8 vector_if_absent, u32 external) {
  const bool local = (selector & 4) != 0;
  const u64 base = local ? ldtr.base : gdtr.base;
  const u64 limit = local ? (ldtr.usable ? ldtr.limit : 0) : gdtr.limit;
  const u64 offset = selector & ~u64{7};
  if (offset + 7 > limit) raise(vector_if_absent, without_rpl(selector) | external);
  Descriptor d;
  d.address = base + offset;
  if (!long_mode()) d.address &= 0xffffffff;
  d.low = read_linear(d.address, 8, false);
  return d;
}

u64 Core::descriptor_high(const Descriptor& d) { return read_linear(d.address + 8, 8, false) & 0xffffffff; }

void Core::mark_accessed(const Descriptor& d) {
  if (((d.low >> 40) & 1) == 0) write_linear(d.address + 5, 1, ((d.low >> 40) & 0xff) | 1, false);
}

void Core::load_segment(Seg which, u16 selector) {
  Segment& target = segment(which);
  if (is_null(selector)) {
    if (which == Seg::ss) {
      if (!code64() || cpl == 3 || (selector & 3) != cpl) raise_gp();
      load_null_ss(cpl);
    } else {
      // AMD processors leave the base as it was.
      const u64 base = options.amd ? target.base : 0;
      target = Segment{};
      target.selector = selector;
      target.base = base;
    }
    set_mode();
    return;
  }
  if (which == Seg::ss) {
    load_ss(selector, cpl, vector::gp);
    return;
  }
  const Descriptor d = descriptor(selector);
  const Segment s = d.segment(selector);
  const u8 rpl = selector & 3;
  if (!s.readable()) raise_gp(without_rpl(selector));
  if (!s.conforming() && (rpl > s.dpl() || cpl > s.dpl())) raise_gp(without_rpl(selector));
  if (!s.present()) raise(vector::np, without_rpl(selector));
  mark_accessed(d);
  target = s;
  target.access |= 1;
  set_mode();
}

void Core::load_ss(u16 selector, u8 new_cpl, u8 vector_if_bad, u32 external) {
  const u32 code = without_rpl(selector) | external;
  if (is_null(selector)) raise(vector_if_bad, external);
  const Descriptor d = descriptor(selector, vector_if_bad, external);
  const Segment s = d.segment(selector);
  if ((selector & 3) != new_cpl || !s.writable() || s.dpl() != new_cpl) raise(vector_if_bad, code);
  if (!s.present()) raise(vector::ss, code);
  mark_accessed(d);
  segment(Seg::ss) = s;
  segment(Seg::ss).access |= 1;
  set_mode();
}

void Core::load_null_ss(u8 new_cpl) {
  Segment s;
  s.selector = new_cpl;
  s.access = static_cast<u8>(0x93 | (new_cpl << 5));
  s.flags = 0xc;
  s.limit = 0xffffffff;
  segment(Seg::ss) = s;
}

void Core::load_flat(Seg which, u16 selector, u8 dpl, bool code, bool wide) {
  Segment s;
  s.selector = selector;
  s.access = static_cast<u8>((code ? 0x9b : 0x93) | (dpl << 5));
  s.flags = code && wide ? 0xa : 0xc;
  s.limit = 0xffffffff;
  s.usable = true;
  segment(which) = s;
}

void Core::load_cs(u16 selector, const Descriptor& d, u8 new_cpl) {
  mark_accessed(d);
  const auto with_rpl = static_cast<u16>(without_rpl(selector) | new_cpl);
  segment(Seg::cs) = d.segment(with_rpl);
  segment(Seg::cs).access |= 1;
  cpl = new_cpl;
  attention = true;
  set_mode();
}

void Core::load_system_segment(Segment& into, u16 selector, u8 type) {
  const u32 code = without_rpl(selector);
  if ((selector & 4) != 0) raise_gp(code);
  Descriptor d = descriptor(selector);
  const u8 actual = d.type();
  // A 16-bit TSS is fine outside of long mode only.
  if (actual != type && !(type == 9 && actual == 1 && !long_mode())) raise_gp(code);
  if (!d.present()) raise(vector::np, code);
  if (long_mode()) {
    if ((selector & ~u64{7}) + 15 > gdtr.limit) raise_gp(code);
    d.high = descriptor_high(d);
    if (!is_canonical(d.segment(selector).base)) raise_gp(code);
  }
  if (type == 9) write_linear(d.address + 5, 1, ((d.low >> 40) & 0xff) | 2, false);
  into = d.segment(selector);
  if (type == 9) into.access |= 2;
}

void Core::drop_inaccessible_segments() {
  for (const Seg which : {Seg::es, Seg::ds, Seg::fs, Seg::gs}) {
    Segment& s = segment(which);
    if (s.usable && !s.conforming() && s.dpl() < cpl) {
      s = Segment{};
    }
  }
  set_mode();
}

}  // namespace vpmu::soft
