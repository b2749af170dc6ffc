// String instructions. One with REP retires once, when its last iteration is done.
#include <Zydis/Zydis.h>

#include <algorithm>

#include "machine/soft/forms.hpp"

namespace vpmu::soft {

namespace {

/// How many iterations run before interrupts, limits and the host are looked at again.
constexpr u64 iterations_at_once = 4096;

unsigned element_bytes(const Insn& i) {
  if ((i.opcode & 1) == 0) return 1;
  // I/O moves four bytes at most.
  const bool io = i.opcode >= 0x6c && i.opcode <= 0x6f;
  return io && i.operand_bytes == 8 ? 4 : i.operand_bytes;
}

void step(Core& c, const Insn& i, u8 which, unsigned bytes, u64 times = 1) {
  const u64 distance = bytes * times;
  const u64 moved = (c.system_flags & flag::df) != 0 ? c.gpr[which] - distance : c.gpr[which] + distance;
  c.set_reg(static_cast<u8>(which * 8), i.address_bytes, moved);
}

u64 source(const Core& c, const Insn& i) { return truncate(c.gpr[rsi], i.address_bytes); }
u64 destination(const Core& c, const Insn& i) { return truncate(c.gpr[rdi], i.address_bytes); }

void count_down(Core& c, const Insn& i, u64 times) { c.set_reg(rcx * 8, i.address_bytes, c.gpr[rcx] - times); }

/// Runs `once` as often as the prefix says. `bulk` may do several iterations at a time: it answers how many it did.
template <class Once, class Bulk>
void repeat(Core& c, const Insn& i, u64 bytes_per_cycle, Once once, Bulk bulk) {
  if (i.rep == Rep::none) {
    (void)once();
    return;
  }
  const unsigned bytes = element_bytes(i);
  u64 left = iterations_at_once;
  u64 done = 0;
  bool finished = c.rcx_count(i) == 0;
  while (!finished && left > 0) {
    u64 times = bulk(std::min(c.rcx_count(i), left));
    if (times == 0) {
      times = 1;
      finished = once();
    }
    count_down(c, i, times);
    left -= times;
    done += times;
    if (c.rcx_count(i) == 0) finished = true;
    // Code may have changed, even this instruction: what is left has to be decoded anew.
    if (c.attention) break;
  }
  if (!finished) {
    c.restart = true;
    c.attention = true;
  }
  c.add_cycles(bytes_per_cycle == 0 ? done : done * bytes / bytes_per_cycle);
}

constexpr auto no_bulk = [](u64) { return u64{0}; };

u64 elements_in_page(u64 linear, unsigned bytes) { return (page_bytes - linear % page_bytes) / bytes; }

/// The host's address of a page that is in the TLB, for flat forward access.
u8* in_tlb(std::array<TlbEntry, tlb_entries>& entries, u64 linear) {
  const TlbEntry& entry = entries[tlb_index(linear)];
  return entry.tag == (linear & page_mask) ? reinterpret_cast<u8*>(linear + entry.addend) : nullptr;
}

void movs(Core& c, const Insn& i) {
  const unsigned bytes = element_bytes(i);
  repeat(
      c, i, 16,
      [&] {
        const u64 value = c.read_seg(i.seg, source(c, i), bytes);
        c.write_seg(Seg::es, destination(c, i), bytes, value);
        step(c, i, rsi, bytes);
        step(c, i, rdi, bytes);
        return false;
      },
      [&](u64 wanted) -> u64 {
        if (!c.code64() || i.seg >= Seg::fs || i.address_bytes != 8 || (c.system_flags & flag::df) != 0) return 0;
        const u64 from = source(c, i);
        const u64 to = destination(c, i);
        const u64 times = std::min({wanted, elements_in_page(from, bytes), elements_in_page(to, bytes)});
        const u8* in = in_tlb(c.tlb->read, from);
        u8* out = in_tlb(c.tlb->write, to);
        if (times == 0 || in == nullptr || out == nullptr) return 0;
        const u64 length = times * bytes;
        // An overlap ahead of the source repeats what was just written: one at a time.
        if (out > in && out < in + length) return 0;
        std::memmove(out, in, length);
        step(c, i, rsi, bytes, times);
        step(c, i, rdi, bytes, times);
        return times;
      });
}

void stos(Core& c, const Insn& i) {
  const unsigned bytes = element_bytes(i);
  repeat(
      c, i, 16,
      [&] {
        c.write_seg(Seg::es, destination(c, i), bytes, truncate(c.gpr[rax], bytes));
        step(c, i, rdi, bytes);
        return false;
      },
      [&](u64 wanted) -> u64 {
        if (!c.code64() || i.address_bytes != 8 || (c.system_flags & flag::df) != 0) return 0;
        const u64 to = destination(c, i);
        const u64 times = std::min(wanted, elements_in_page(to, bytes));
        u8* out = in_tlb(c.tlb->write, to);
        if (times == 0 || out == nullptr) return 0;
        for (u64 n = 0; n < times; ++n) std::memcpy(out + n * bytes, &c.gpr[rax], bytes);
        step(c, i, rdi, bytes, times);
        return times;
      });
}

void lods(Core& c, const Insn& i) {
  const unsigned bytes = element_bytes(i);
  repeat(
      c, i, 0,
      [&] {
        c.set_reg(rax * 8, bytes, c.read_seg(i.seg, source(c, i), bytes));
        step(c, i, rsi, bytes);
        return false;
      },
      no_bulk);
}

void compare(Core& c, unsigned bytes, u64 a, u64 b) {
  switch (bytes) {
    case 1:
      (void)alu<Alu::cmp, u8>(c.fl, static_cast<u8>(a), static_cast<u8>(b));
      break;
    case 2:
      (void)alu<Alu::cmp, u16>(c.fl, static_cast<u16>(a), static_cast<u16>(b));
      break;
    case 4:
      (void)alu<Alu::cmp, u32>(c.fl, static_cast<u32>(a), static_cast<u32>(b));
      break;
    default:
      (void)alu<Alu::cmp, u64>(c.fl, a, b);
      break;
  }
}

bool comparison_ends(const Core& c, const Insn& i) {
  return (i.rep == Rep::repe && !c.fl.zf()) || (i.rep == Rep::repne && c.fl.zf());
}

void cmps(Core& c, const Insn& i) {
  const unsigned bytes = element_bytes(i);
  repeat(
      c, i, 0,
      [&] {
        const u64 a = c.read_seg(i.seg, source(c, i), bytes);
        const u64 b = c.read_seg(Seg::es, destination(c, i), bytes);
        compare(c, bytes, a, b);
        step(c, i, rsi, bytes);
        step(c, i, rdi, bytes);
        return comparison_ends(c, i);
      },
      no_bulk);
}

void scas(Core& c, const Insn& i) {
  const unsigned bytes = element_bytes(i);
  repeat(
      c, i, 0,
      [&] {
        compare(c, bytes, c.gpr[rax], c.read_seg(Seg::es, destination(c, i), bytes));
        step(c, i, rdi, bytes);
        return comparison_ends(c, i);
      },
      no_bulk);
}

void ins(Core& c, const Insn& i) {
  const unsigned bytes = element_bytes(i);
  const u16 port = static_cast<u16>(c.gpr[rdx]);
  c.check_io(port, bytes);
  if (c.wants_exit(ExitReason::port, c.options.intercept_ports, port)) return;
  repeat(
      c, i, 0,
      [&] {
        // The port is read only if the element can be stored.
        c.probe(c.linear_address(Seg::es, destination(c, i), bytes, true), bytes, Access::write, c.user());
        c.write_seg(Seg::es, destination(c, i), bytes, c.env.port_in(port, bytes));
        step(c, i, rdi, bytes);
        return false;
      },
      no_bulk);
}

void outs(Core& c, const Insn& i) {
  const unsigned bytes = element_bytes(i);
  const u16 port = static_cast<u16>(c.gpr[rdx]);
  c.check_io(port, bytes);
  if (c.wants_exit(ExitReason::port, c.options.intercept_ports, port)) return;
  repeat(
      c, i, 0,
      [&] {
        c.env.port_out(port, bytes, static_cast<u32>(c.read_seg(i.seg, source(c, i), bytes)));
        step(c, i, rsi, bytes);
        return false;
      },
      no_bulk);
}

}  // namespace

void add_string_forms(FormTable& t) {
  for (int m : {ZYDIS_MNEMONIC_MOVSB, ZYDIS_MNEMONIC_MOVSW, ZYDIS_MNEMONIC_MOVSD, ZYDIS_MNEMONIC_MOVSQ}) {
    t.add(m, {movs, 3, true});
  }
  for (int m : {ZYDIS_MNEMONIC_STOSB, ZYDIS_MNEMONIC_STOSW, ZYDIS_MNEMONIC_STOSD, ZYDIS_MNEMONIC_STOSQ}) {
    t.add(m, {stos, 3, true});
  }
  for (int m : {ZYDIS_MNEMONIC_LODSB, ZYDIS_MNEMONIC_LODSW, ZYDIS_MNEMONIC_LODSD, ZYDIS_MNEMONIC_LODSQ}) {
    t.add(m, {lods, 2, true});
  }
  for (int m : {ZYDIS_MNEMONIC_CMPSB, ZYDIS_MNEMONIC_CMPSW, ZYDIS_MNEMONIC_CMPSD, ZYDIS_MNEMONIC_CMPSQ}) {
    t.add(m, {cmps, 3, true});
  }
  for (int m : {ZYDIS_MNEMONIC_SCASB, ZYDIS_MNEMONIC_SCASW, ZYDIS_MNEMONIC_SCASD, ZYDIS_MNEMONIC_SCASQ}) {
    t.add(m, {scas, 2, true});
  }
  for (int m : {ZYDIS_MNEMONIC_INSB, ZYDIS_MNEMONIC_INSW, ZYDIS_MNEMONIC_INSD}) t.add(m, {ins, 50, true});
  for (int m : {ZYDIS_MNEMONIC_OUTSB, ZYDIS_MNEMONIC_OUTSW, ZYDIS_MNEMONIC_OUTSD}) t.add(m, {outs, 50, true});
}

}  // namespace vpmu::soft
