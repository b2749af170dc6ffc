// Page walks: none, 32-bit, PAE and 4-level (SDM Vol. 3A ch. 4), and the soft TLBs that remember them.
#include "machine/soft/core.hpp"

namespace vpmu::soft {

namespace {

constexpr u64 present = 1, writable = 2, user_page = 4, accessed = 0x20, dirty = 0x40, large = 0x80;
constexpr u64 no_execute = u64{1} << 63;
/// MAXPHYADDR, as CPUID 0x80000008 has it.
constexpr unsigned physical_bits = 40;
constexpr u64 reserved_high = ((u64{1} << 52) - 1) & ~((u64{1} << physical_bits) - 1);
constexpr u64 address_mask = ((u64{1} << physical_bits) - 1) & page_mask;

namespace error_bit {
constexpr u32 protection = 1, write = 2, user = 4, reserved = 8, fetch = 16;
}

struct Walk {
  Core& core;
  u64 linear;
  Access access;
  bool user;

  [[noreturn]] void fail(u32 why) const {
    u32 code = why;
    if (access == Access::write) code |= error_bit::write;
    if (user) code |= error_bit::user;
    // The fetch bit needs something that can tell fetches apart: execute-disable (SDM Vol. 3A 4.7).
    if (access == Access::exec && (core.efer & efer::nxe) != 0 && (core.cr4 & cr4::pae) != 0) code |= error_bit::fetch;
    core.cr2 = linear;
    raise(vector::pf, code);
  }

  void check(bool may_write, bool may_user, bool never_execute) const {
    const bool wp = (core.cr0 & cr0::wp) != 0;
    if (user && !may_user) fail(error_bit::protection);
    if (access == Access::write && !may_write && (user || wp)) fail(error_bit::protection);
    if (access == Access::exec && never_execute) fail(error_bit::protection);
  }

  void mark(u64 at, u64 entry, u64 bits, unsigned bytes) const {
    if ((entry & bits) != bits) {
      core.mem.write(at, &(entry |= bits), bytes);
      if (core.mem.contains(at, bytes) && core.mem.holds_code(at, bytes)) core.code_written(at, bytes);
    }
  }

  [[nodiscard]] u64 four_levels() const {
    const bool nx_enabled = (core.efer & efer::nxe) != 0;
    const bool legacy = !core.long_mode();  // PAE paging: three levels, the first of them four entries
    u64 table = core.cr3 & (legacy ? 0xffffffe0 : address_mask);
    bool may_write = true;
    bool may_user = true;
    bool never_execute = false;
    std::array<u64, 4> at{};
    std::array<u64, 4> entries{};
    const int top = legacy ? 2 : 3;
    for (int level = top;; --level) {
      const unsigned shift = 12 + 9 * static_cast<unsigned>(level);
      const auto n = static_cast<std::size_t>(level);
      const u64 slot = legacy && level == 2 ? (linear >> 30) & 3 : (linear >> shift) & 511;
      at[n] = table + slot * 8;
      const u64 entry = entries[n] = core.mem.read_u64(at[n]);
      if ((entry & present) == 0) fail(0);
      const bool pdpte = legacy && level == 2;
      u64 reserved = reserved_high;
      if (!nx_enabled || pdpte) reserved |= no_execute;
      if (legacy) reserved |= 0x7ff0000000000000;
      if (pdpte) reserved |= 0x1e6;
      const bool leaf = level == 0 || ((entry & large) != 0 && level < 3 && !pdpte);
      if (level == 3) reserved |= large;
      if (leaf && level > 0) reserved |= ((u64{1} << shift) - 1) & ~u64{0x1fff};
      if ((entry & reserved) != 0) fail(error_bit::protection | error_bit::reserved);
      if (!pdpte) {
        may_write = may_write && (entry & writable) != 0;
        may_user = may_user && (entry & user_page) != 0;
        never_execute = never_execute || (entry & no_execute) != 0;
      }
      if (!leaf) {
        table = entry & address_mask;
        continue;
      }
      check(may_write, may_user, never_execute);
      for (int above = top; above > level; --above) {
        const auto m = static_cast<std::size_t>(above);
        if (!(legacy && above == 2)) mark(at[m], entries[m], accessed, 8);
      }
      mark(at[n], entry, accessed | (access == Access::write ? dirty : 0), 8);
      const u64 offset_mask = (u64{1} << shift) - 1;
      return (entry & address_mask & ~offset_mask) | (linear & offset_mask);
    }
  }

  [[nodiscard]] u64 two_levels() const {
    const u64 directory_at = (core.cr3 & 0xfffff000) + ((linear >> 22) & 1023) * 4;
    const u64 directory = core.mem.read_u32(directory_at);
    if ((directory & present) == 0) fail(0);
    const u64 dirty_if_written = access == Access::write ? dirty : 0;
    if ((directory & large) != 0 && (core.cr4 & cr4::pse) != 0) {
      if ((directory & (u64{1} << 21)) != 0) fail(error_bit::protection | error_bit::reserved);
      check((directory & writable) != 0, (directory & user_page) != 0, false);
      mark(directory_at, directory, accessed | dirty_if_written, 4);
      // PSE-36: bits 20:13 are address bits 39:32.
      return (directory & 0xffc00000) | ((directory & 0x1fe000) << 19) | (linear & 0x3fffff);
    }
    const u64 page_at = (directory & 0xfffff000) + ((linear >> 12) & 1023) * 4;
    const u64 page = core.mem.read_u32(page_at);
    if ((page & present) == 0) fail(0);
    check((directory & page & writable) != 0, (directory & page & user_page) != 0, false);
    mark(directory_at, directory, accessed, 4);
    mark(page_at, page, accessed | dirty_if_written, 4);
    return (page & 0xfffff000) | (linear & 0xfff);
  }
};

}  // namespace

u64 Core::translate(u64 linear, Access access, bool as_user) {
  if (!paging()) return linear & 0xffffffff;
  const Walk walk{*this, linear, access, as_user};
  return (cr4 & cr4::pae) != 0 ? walk.four_levels() : walk.two_levels();
}

void Core::flush_tlb() {
  for (Tlb& each : tlbs) each = Tlb{};
  new_epoch();
}

void Core::flush_page(u64 linear) {
  for (Tlb& each : tlbs) {
    each.read[tlb_index(linear)] = TlbEntry{};
    each.write[tlb_index(linear)] = TlbEntry{};
  }
  new_epoch();
}

void Core::purge_write_tlb(u64 physical_page) {
  const u64 host = reinterpret_cast<u64>(mem.at(physical_page));
  for (Tlb& each : tlbs) {
    for (TlbEntry& entry : each.write) {
      if (entry.tag + entry.addend == host) entry = TlbEntry{};
    }
  }
}

}  // namespace vpmu::soft
