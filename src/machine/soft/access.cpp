// Memory accesses that miss the TLB's hit path: walks, pages' edges, the APIC page, code, the cache model.
#include "machine/soft/core.hpp"

namespace vpmu::soft {

namespace {

bool crosses_page(u64 linear, unsigned bytes) { return (linear % page_bytes) + bytes > page_bytes; }

}  // namespace

void Core::check_linear(u64 linear, unsigned bytes, Seg which) {
  if (code64() && (!is_canonical(linear) || !is_canonical(linear + bytes - 1))) {
    raise(which == Seg::ss ? vector::ss : vector::gp, 0);
  }
  if (cpl == 3 && (system_flags & flag::ac) != 0 && (cr0 & cr0::am) != 0 && bytes <= 8 && (linear & (bytes - 1)) != 0) {
    raise(vector::ac, 0);
  }
}

u64 Core::read_physical(u64 physical, unsigned bytes) {
  if (mmio_page && (physical & page_mask) == *mmio_page) {
    if (!emulating && options.intercept_mmio) throw MmioExit{};
    attention = true;
    return truncate(env.mmio_read(physical, bytes), bytes);
  }
  if (use_cache) {
    const auto outcome = cache.access(physical);
    pending[model::Event::llc_references] += outcome.referenced ? 1 : 0;
    pending[model::Event::llc_misses] += outcome.missed ? 1 : 0;
  }
  u64 value = 0;
  mem.read(physical, &value, bytes);
  return value;
}

void Core::write_physical(u64 physical, unsigned bytes, u64 value) {
  if (mmio_page && (physical & page_mask) == *mmio_page) {
    if (!emulating && options.intercept_mmio) throw MmioExit{};
    attention = true;
    env.mmio_write(physical, bytes, value);
    return;
  }
  if (use_cache) {
    const auto outcome = cache.access(physical);
    pending[model::Event::llc_references] += outcome.referenced ? 1 : 0;
    pending[model::Event::llc_misses] += outcome.missed ? 1 : 0;
  }
  mem.write(physical, &value, bytes);
  if (mem.contains(physical, bytes) && mem.holds_code(physical, bytes) && code_written(physical, bytes)) {
    attention = true;
  }
}

u64 Core::read_linear(u64 linear, unsigned bytes, bool as_user) {
  if (crosses_page(linear, bytes)) {
    const unsigned first = static_cast<unsigned>(page_bytes - linear % page_bytes);
    u64 next = linear + first;
    if (!code64()) next &= 0xffffffff;
    const u64 low_at = translate(linear, Access::read, as_user);
    const u64 high_at = translate(next, Access::read, as_user);
    const u64 low = read_physical(low_at, first);
    return low | (read_physical(high_at, bytes - first) << (first * 8));
  }
  const u64 physical = translate(linear, Access::read, as_user);
  if (mem.contains(physical) && !(mmio_page && (physical & page_mask) == *mmio_page)) {
    TlbEntry& entry = tlbs[as_user ? 1 : 0].read[tlb_index(linear)];
    entry.tag = linear & page_mask;
    entry.addend = reinterpret_cast<u64>(mem.at(physical & page_mask)) - entry.tag;
  }
  return read_physical(physical, bytes);
}

void Core::write_linear(u64 linear, unsigned bytes, u64 value, bool as_user) {
  if (crosses_page(linear, bytes)) {
    const unsigned first = static_cast<unsigned>(page_bytes - linear % page_bytes);
    u64 next = linear + first;
    if (!code64()) next &= 0xffffffff;
    const u64 low_at = translate(linear, Access::write, as_user);
    const u64 high_at = translate(next, Access::write, as_user);
    write_physical(low_at, first, truncate(value, first));
    write_physical(high_at, bytes - first, value >> (first * 8));
    return;
  }
  const u64 physical = translate(linear, Access::write, as_user);
  write_physical(physical, bytes, value);
  if (mem.contains(physical) && mem.code_lines(physical) == 0 && !(mmio_page && (physical & page_mask) == *mmio_page)) {
    TlbEntry& entry = tlbs[as_user ? 1 : 0].write[tlb_index(linear)];
    entry.tag = linear & page_mask;
    entry.addend = reinterpret_cast<u64>(mem.at(physical & page_mask)) - entry.tag;
  }
}

void Core::probe(u64 linear, unsigned bytes, Access access, bool as_user) {
  const u64 physical = translate(linear, access, as_user);
  if (mmio_page && (physical & page_mask) == *mmio_page && !emulating && options.intercept_mmio) throw MmioExit{};
  if (crosses_page(linear, bytes)) {
    const u64 next = (linear & page_mask) + page_bytes;
    (void)translate(code64() ? next : next & 0xffffffff, access, as_user);
  }
}

u64 Core::read_slow(u64 linear, unsigned bytes, Seg which) {
  check_linear(linear, bytes, which);
  return read_linear(linear, bytes, user());
}

bool Core::write_slow(u64 linear, unsigned bytes, u64 value, Seg which) {
  check_linear(linear, bytes, which);
  write_linear(linear, bytes, value, user());
  return attention;
}

u64 Core::read_for_write(u64 linear, unsigned bytes, Seg which) {
  check_linear(linear, bytes, which);
  probe(linear, bytes, Access::write, user());
  return read_linear(linear, bytes, user());
}

u64 Core::linear_address(Seg which, u64 offset, unsigned bytes, bool write) {
  const Segment& s = segment(which);
  if (code64()) {
    const u64 linear = which >= Seg::fs ? s.base + offset : offset;
    check_linear(linear, bytes, which);
    return linear;
  }
  const u8 fault_vector = which == Seg::ss ? vector::ss : vector::gp;
  if (!s.usable) raise(fault_vector, 0);
  if (write ? !s.writable() : !s.readable()) raise(fault_vector, 0);
  const u64 last = offset + bytes - 1;
  if (s.expands_down()) {
    const u64 top = s.is_big() ? 0xffffffff : 0xffff;
    if (offset <= s.limit || last > top) raise(fault_vector, 0);
  } else if (last > s.limit) {
    raise(fault_vector, 0);
  }
  const u64 linear = (s.base + offset) & 0xffffffff;
  check_linear(linear, bytes, which);
  return linear;
}

u64 Core::read_seg(Seg which, u64 offset, unsigned bytes) {
  const u64 linear = linear_address(which, offset, bytes, false);
  const TlbEntry& entry = tlb->read[tlb_index(linear)];
  if (entry.tag == ((linear + bytes - 1) & page_mask)) {
    u64 value = 0;
    std::memcpy(&value, reinterpret_cast<const void*>(linear + entry.addend), bytes);
    return value;
  }
  return read_linear(linear, bytes, user());
}

void Core::write_seg(Seg which, u64 offset, unsigned bytes, u64 value) {
  const u64 linear = linear_address(which, offset, bytes, true);
  const TlbEntry& entry = tlb->write[tlb_index(linear)];
  if (entry.tag == ((linear + bytes - 1) & page_mask)) {
    std::memcpy(reinterpret_cast<void*>(linear + entry.addend), &value, bytes);
    return;
  }
  write_linear(linear, bytes, value, user());
}

}  // namespace vpmu::soft
