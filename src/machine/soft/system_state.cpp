// Control registers, the CPU's own MSRs, flags from the stack, the I/O permission map.
#include "machine/soft/core.hpp"

namespace vpmu::soft {

void Core::write_cr0(u64 value) {
  if (value >> 32 != 0) raise_gp();
  value = (value & cr0::known) | cr0::et;
  if ((value & cr0::pg) != 0 && (value & cr0::pe) == 0) raise_gp();
  if ((value & cr0::nw) != 0 && (value & cr0::cd) == 0) raise_gp();
  // Real mode is not modelled.
  if ((value & cr0::pe) == 0) raise_gp();
  const bool was_paging = paging();
  const bool pages = (value & cr0::pg) != 0;
  if (pages && !was_paging && (efer & efer::lme) != 0) {
    if ((cr4 & cr4::pae) == 0 || segment(Seg::cs).is_long()) raise_gp();
    efer |= efer::lma;
  } else if (!pages && was_paging) {
    if (code64()) raise_gp();
    efer &= ~efer::lma;
  }
  cr0 = value;
  flush_tlb();
  set_mode();
}

void Core::write_cr3(u64 value) {
  if (long_mode() && value >> 40 != 0) raise_gp();
  cr3 = value;
  flush_tlb();
}

void Core::write_cr4(u64 value) {
  if ((value & ~cr4::known) != 0) raise_gp();
  if (long_mode() && (value & cr4::pae) == 0) raise_gp();
  cr4 = value;
  flush_tlb();
  set_mode();
}

bool Core::write_efer(u64 value) {
  const u64 allowed = efer::sce | efer::lme | efer::lma | efer::nxe | (options.amd ? efer::svme : 0);
  if ((value & ~allowed) != 0) return false;
  if (paging() && ((value ^ efer) & efer::lme) != 0) return false;
  efer = (value & ~efer::lma) | (efer & efer::lma);
  flush_tlb();
  return true;
}

std::optional<u64> Core::own_rdmsr(u32 index) {
  switch (index) {
    case msr::tsc:
      return now_tsc();
    case msr::efer:
      return efer;
    case msr::star:
      return star;
    case msr::lstar:
      return lstar;
    case msr::cstar:
      return cstar;
    case msr::fmask:
      return fmask;
    case msr::fs_base:
      return segment(Seg::fs).base;
    case msr::gs_base:
      return segment(Seg::gs).base;
    case msr::kernel_gs_base:
      return kernel_gs_base;
    case msr::tsc_aux:
      return tsc_aux;
    case msr::sysenter_cs:
      return sysenter_cs;
    case msr::sysenter_esp:
      return sysenter_esp;
    case msr::sysenter_eip:
      return sysenter_eip;
    case msr::pat:
      return pat;
    default:
      return std::nullopt;
  }
}

std::optional<bool> Core::own_wrmsr(u32 index, u64 value) {
  const auto canonical_into = [&](u64& to) {
    if (!is_canonical(value)) return false;
    to = value;
    return true;
  };
  switch (index) {
    case msr::tsc:
      tsc_base += value - now_tsc();
      budget_set = false;
      return true;
    case msr::efer:
      return write_efer(value);
    case msr::star:
      star = value;
      return true;
    case msr::lstar:
      return canonical_into(lstar);
    case msr::cstar:
      return canonical_into(cstar);
    case msr::fmask:
      fmask = value & 0xffffffff;
      return true;
    case msr::fs_base:
      return canonical_into(segment(Seg::fs).base);
    case msr::gs_base:
      return canonical_into(segment(Seg::gs).base);
    case msr::kernel_gs_base:
      return canonical_into(kernel_gs_base);
    case msr::tsc_aux:
      if (value >> 32 != 0) return false;
      tsc_aux = value;
      return true;
    case msr::sysenter_cs:
      sysenter_cs = value & 0xffffffff;
      return true;
    case msr::sysenter_esp:
      return canonical_into(sysenter_esp);
    case msr::sysenter_eip:
      return canonical_into(sysenter_eip);
    case msr::pat:
      // Memory types 0, 1, 4 to 7 (SDM Vol. 3A 11.12.2).
      for (unsigned n = 0; n < 64; n += 8) {
        const u64 type = (value >> n) & 0xff;
        if (type > 7 || type == 2 || type == 3) return false;
      }
      pat = value;
      return true;
    default:
      return std::nullopt;
  }
}

void Core::set_flags_from_stack(u64 value, unsigned bytes, bool from_iret) {
  u64 changeable = flag::arithmetic | flag::tf | flag::df | flag::nt | flag::ac | flag::id;
  if (from_iret) changeable |= flag::rf;
  if (cpl <= ((system_flags & flag::iopl) >> 12)) changeable |= flag::if_;
  if (cpl == 0) changeable |= flag::iopl;
  if (bytes == 2) changeable &= 0xffff;
  const u64 old = rflags() & ~(from_iret ? u64{0} : flag::rf);
  set_rflags((old & ~changeable) | (value & changeable));
  update_tlb_choice();
  attention = true;
}

void Core::check_io(u16 port, unsigned bytes) {
  if (cpl <= ((system_flags & flag::iopl) >> 12)) return;
  // The map's offset is at 0x66 of a 32- or 64-bit TSS.
  if (!tr.usable || tr.limit < 0x67) raise_gp();
  const u64 map = read_linear(tr.base + 0x66, 2, false);
  const u64 first = map + port / 8;
  if (first + 1 > tr.limit) raise_gp();
  const u64 bits = read_linear(tr.base + first, 2, false) >> (port % 8);
  if ((bits & ((1u << bytes) - 1)) != 0) raise_gp();
}

}  // namespace vpmu::soft
