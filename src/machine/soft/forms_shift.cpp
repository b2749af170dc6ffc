// Shifts and rotates of the general path.
#include <Zydis/Zydis.h>

#include "machine/soft/forms.hpp"

namespace vpmu::soft {

namespace {

unsigned masked_count(Core& c, const Insn& i, unsigned operand) {
  return static_cast<unsigned>(c.get(i, operand)) & (i.op[0].bytes == 8 ? 63 : 31);
}

template <Shift K, class T>
void shift_as(Core& c, const Insn& i, unsigned count) {
  const T a = static_cast<T>(c.get_for_write(i, 0));
  c.set(i, 0, shift<K, T>(c.fl, a, count));
}

template <Shift K>
void shift_form(Core& c, const Insn& i) {
  const unsigned count = masked_count(c, i, 1);
  switch (i.op[0].bytes) {
    case 1:
      shift_as<K, u8>(c, i, count);
      break;
    case 2:
      shift_as<K, u16>(c, i, count);
      break;
    case 4:
      shift_as<K, u32>(c, i, count);
      break;
    default:
      shift_as<K, u64>(c, i, count);
      break;
  }
}

/// Rotates change CF and OF alone. OF is defined for a count of 1; for others it follows the same rule here.
void set_rotate_flags(Core& c, bool carry, bool overflow) {
  c.fl.set_bits((c.fl.value() & ~(flag::cf | flag::of)) | (carry ? flag::cf : 0) | (overflow ? flag::of : 0));
}

template <bool Left>
void rotate(Core& c, const Insn& i) {
  const unsigned bits = i.op[0].bytes * 8u;
  const unsigned masked = masked_count(c, i, 1);
  const u64 a = c.get_for_write(i, 0);
  const unsigned count = masked % bits;
  u64 r = a;
  if (count != 0) {
    r = Left ? (a << count) | (a >> (bits - count)) : (a >> count) | (a << (bits - count));
    r = truncate(r, bits / 8);
  }
  c.set(i, 0, r);
  if (masked == 0) return;
  const bool top = (r >> (bits - 1)) & 1;
  const bool carry = Left ? (r & 1) != 0 : top;
  set_rotate_flags(c, carry, Left ? carry != top : top != (((r >> (bits - 2)) & 1) != 0));
}

template <bool Left>
void rotate_through_carry(Core& c, const Insn& i) {
  const unsigned bits = i.op[0].bytes * 8u;
  const unsigned count = masked_count(c, i, 1) % (bits + 1);
  u64 r = c.get_for_write(i, 0);
  bool carry = c.fl.cf();
  for (unsigned n = 0; n < count; ++n) {
    const u64 in = carry ? 1 : 0;
    if constexpr (Left) {
      carry = (r >> (bits - 1)) & 1;
      r = truncate((r << 1) | in, bits / 8);
    } else {
      carry = r & 1;
      r = (r >> 1) | (in << (bits - 1));
    }
  }
  c.set(i, 0, r);
  if (count == 0) return;
  const bool top = (r >> (bits - 1)) & 1;
  set_rotate_flags(c, carry, Left ? carry != top : top != (((r >> (bits - 2)) & 1) != 0));
}

/// SHLD and SHRD. A count above the width is undefined (16-bit operands only): it is taken as of a doubled source.
template <bool Left>
void double_shift(Core& c, const Insn& i) {
  const unsigned bytes = i.op[0].bytes;
  const unsigned bits = bytes * 8;
  const unsigned count = masked_count(c, i, 2);
  const u64 a = c.get_for_write(i, 0);
  const u64 b = c.get(i, 1);
  if (count == 0) {
    c.set(i, 0, a);
    return;
  }
  u64 r = a;
  u64 source = b;
  bool carry = false;
  for (unsigned n = 0; n < count; ++n) {
    if constexpr (Left) {
      carry = (r >> (bits - 1)) & 1;
      const u64 in = (source >> (bits - 1)) & 1;
      source = truncate((source << 1) | in, bytes);
      r = truncate((r << 1) | in, bytes);
    } else {
      carry = r & 1;
      const u64 in = source & 1;
      source = (source >> 1) | (in << (bits - 1));
      r = (r >> 1) | (in << (bits - 1));
    }
  }
  c.set(i, 0, r);
  const bool overflow = (((r ^ a) >> (bits - 1)) & 1) != 0;
  c.fl.set_partial(sign_extend(r, bytes), (carry ? flag::cf : 0) | (overflow ? flag::of : 0));
}

}  // namespace

void add_shift_forms(FormTable& t) {
  t.add(ZYDIS_MNEMONIC_SHL, {shift_form<Shift::shl>});
  t.add(ZYDIS_MNEMONIC_SHR, {shift_form<Shift::shr>});
  t.add(ZYDIS_MNEMONIC_SAR, {shift_form<Shift::sar>});
  t.add(ZYDIS_MNEMONIC_ROL, {rotate<true>});
  t.add(ZYDIS_MNEMONIC_ROR, {rotate<false>});
  t.add(ZYDIS_MNEMONIC_RCL, {rotate_through_carry<true>, 3});
  t.add(ZYDIS_MNEMONIC_RCR, {rotate_through_carry<false>, 3});
  t.add(ZYDIS_MNEMONIC_SHLD, {double_shift<true>, 3});
  t.add(ZYDIS_MNEMONIC_SHRD, {double_shift<false>, 3});
}

}  // namespace vpmu::soft
