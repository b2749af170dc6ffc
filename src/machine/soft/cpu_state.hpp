// The architectural state of the guest's processor, and the names of its parts.
#pragma once

#include <array>

#include "machine/soft/flags.hpp"
#include "machine/soft/insn.hpp"
#include "machine/soft/types.hpp"

namespace vpmu::soft {

namespace cr0 {
inline constexpr u64 pe = 1u << 0, mp = 1u << 1, em = 1u << 2, ts = 1u << 3, et = 1u << 4, ne = 1u << 5;
inline constexpr u64 wp = 1u << 16, am = 1u << 18, nw = 1u << 29, cd = 1u << 30, pg = 1u << 31;
inline constexpr u64 known = pe | mp | em | ts | et | ne | wp | am | nw | cd | pg;
}  // namespace cr0
namespace cr4 {
inline constexpr u64 vme = 1u << 0, pvi = 1u << 1, tsd = 1u << 2, de = 1u << 3, pse = 1u << 4, pae = 1u << 5;
inline constexpr u64 mce = 1u << 6, pge = 1u << 7, pce = 1u << 8, osfxsr = 1u << 9, osxmmexcpt = 1u << 10;
inline constexpr u64 umip = 1u << 11, vmxe = 1u << 13, fsgsbase = 1u << 16;
inline constexpr u64 known = tsd | de | pse | pae | mce | pge | pce | osfxsr | osxmmexcpt | umip | fsgsbase;
}  // namespace cr4
namespace efer {
inline constexpr u64 sce = 1u << 0, lme = 1u << 8, lma = 1u << 10, nxe = 1u << 11, svme = 1u << 12;
}  // namespace efer

namespace vector {
inline constexpr u8 de = 0, db = 1, nmi = 2, bp = 3, of = 4, br = 5, ud = 6, nm = 7, df = 8, ts = 10, np = 11, ss = 12;
inline constexpr u8 gp = 13, pf = 14, mf = 16, ac = 17, mc = 18, xm = 19;
}  // namespace vector

/// MSRs that are state of the CPU itself (SDM Vol. 4; APM Vol. 2 app. A).
namespace msr {
inline constexpr u32 tsc = 0x10, sysenter_cs = 0x174, sysenter_esp = 0x175, sysenter_eip = 0x176, pat = 0x277;
inline constexpr u32 efer = 0xc0000080, star = 0xc0000081, lstar = 0xc0000082, cstar = 0xc0000083;
inline constexpr u32 fmask = 0xc0000084, fs_base = 0xc0000100, gs_base = 0xc0000101, kernel_gs_base = 0xc0000102;
inline constexpr u32 tsc_aux = 0xc0000103;
}  // namespace msr

enum Gpr : u8 { rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15, zero };

struct Segment {
  u16 selector = 0;
  u8 access = 0;  ///< P, DPL, S and type, as in a descriptor's sixth byte.
  u8 flags = 0;   ///< G, D/B, L, AVL, as in the high nibble of its seventh.
  u32 limit = 0;  ///< In bytes, inclusive.
  u64 base = 0;
  bool usable = false;

  [[nodiscard]] bool present() const { return (access & 0x80) != 0; }
  [[nodiscard]] u8 dpl() const { return (access >> 5) & 3; }
  [[nodiscard]] bool is_code() const { return (access & 0x18) == 0x18; }
  [[nodiscard]] bool is_data() const { return (access & 0x18) == 0x10; }
  [[nodiscard]] bool conforming() const { return is_code() && (access & 4) != 0; }
  [[nodiscard]] bool writable() const { return is_data() && (access & 2) != 0; }
  [[nodiscard]] bool readable() const { return is_data() || (is_code() && (access & 2) != 0); }
  [[nodiscard]] bool expands_down() const { return is_data() && (access & 4) != 0; }
  [[nodiscard]] bool is_big() const { return (flags & 4) != 0; }
  [[nodiscard]] bool is_long() const { return (flags & 2) != 0; }
};

struct DescriptorTable {
  u64 base = 0;
  u16 limit = 0;
};

union Xmm {
  std::array<u64, 2> q{};
  std::array<u32, 4> d;
  std::array<u16, 8> w;
  std::array<u8, 16> b;
};

struct CpuState {
  std::array<u64, 17> gpr{};  ///< By Gpr; the last is always zero.
  u64 rip = 0;
  LazyFlags fl;
  u64 system_flags = 0;  ///< All of RFLAGS but the arithmetic flags.
  u8 cpl = 0;
  bool nmi_blocked = false;  ///< From an NMI's delivery to the next IRET.
  bool shadow = false;       ///< The instruction after STI or MOV SS takes no interrupt.

  std::array<Segment, seg_count> seg{};
  Segment ldtr;
  Segment tr;
  DescriptorTable gdtr;
  DescriptorTable idtr;
  u64 cr0 = cr0::pe | cr0::et | cr0::ne;
  u64 cr2 = 0;
  u64 cr3 = 0;
  u64 cr4 = 0;
  u64 efer = 0;
  std::array<u64, 8> dr{0, 0, 0, 0, 0, 0, 0xffff0ff0, 0x400};

  u64 star = 0, lstar = 0, cstar = 0, fmask = 0, kernel_gs_base = 0, tsc_aux = 0;
  u64 sysenter_cs = 0, sysenter_esp = 0, sysenter_eip = 0;
  u64 pat = 0x0007040600070406;

  std::array<Xmm, 16> xmm{};
  u32 mxcsr = 0x1f80;
  u16 fcw = 0x37f;

  [[nodiscard]] u64 rflags() const { return system_flags | flag::fixed_one | fl.value(); }
  void set_rflags(u64 value) {
    fl.set_bits(value);
    system_flags = value & ~(flag::arithmetic | flag::fixed_one);
  }
  [[nodiscard]] bool paging() const { return (cr0 & cr0::pg) != 0; }
  [[nodiscard]] bool long_mode() const { return (efer & efer::lma) != 0; }
  [[nodiscard]] bool code64() const { return long_mode() && seg[static_cast<std::size_t>(Seg::cs)].is_long(); }
  [[nodiscard]] Segment& segment(Seg which) { return seg[static_cast<std::size_t>(which)]; }
  [[nodiscard]] const Segment& segment(Seg which) const { return seg[static_cast<std::size_t>(which)]; }
};

}  // namespace vpmu::soft
