#include "runtime/pmu.hpp"

#include <bit>

#include "runtime/checks.hpp"
#include "runtime/options.hpp"
#include "runtime/print.hpp"
#include "runtime/probe.hpp"
#include "runtime/processor.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::guest {
namespace {

constexpr std::uint32_t vendor_amd_ebx = 0x68747541;    // "Auth"enticAMD
constexpr std::uint32_t vendor_hygon_ebx = 0x6F677948;  // "Hygo"nGenuine

constexpr std::uint8_t byte_of(std::uint32_t value, std::uint32_t shift) {
  return static_cast<std::uint8_t>(value >> shift);
}

/// SDM volume 2, CPUID leaf 0AH.
Profile intel_profile(std::uint32_t last_leaf) {
  Profile profile;
  const CpuidResult features = cpuid(1);
  profile.pdcm = (features.ecx >> 15 & 1) != 0;
  profile.ds = (features.edx >> 21 & 1) != 0;
  if (last_leaf >= 7) {
    const CpuidResult extended = cpuid(7);
    profile.tsx = (extended.ebx >> 4 & 1) != 0 || (extended.ebx >> 11 & 1) != 0;
  }
  if (profile.pdcm) profile.perf_capabilities = try_read_msr(Msr::ia32_perf_capabilities).value;
  if (last_leaf < 0xA) return profile;
  const CpuidResult leaf = cpuid(0xA);
  profile.version = byte_of(leaf.eax, 0);
  if (profile.version == 0) return profile;
  profile.gp_counters = byte_of(leaf.eax, 8);
  profile.gp_width = byte_of(leaf.eax, 16);
  profile.events_length = byte_of(leaf.eax, 24);
  profile.events_unavailable = leaf.ebx;
  if (profile.version >= 2) {
    profile.fixed_mask = static_cast<std::uint8_t>((1U << (leaf.edx & 0x1F)) - 1);
    profile.fixed_width = byte_of(leaf.edx, 5);
  }
  if (profile.version >= 5) profile.fixed_mask |= static_cast<std::uint8_t>(leaf.ecx);
  return profile;
}

bool has_k7_counters() {
  constexpr std::uint64_t pattern = 0xFFFF;
  const Msr counter = amd_k7_perf_ctr[0];
  const bool takes = try_write_msr(counter, pattern) && try_read_msr(counter).value == pattern;
  static_cast<void>(try_write_msr(counter, 0));
  return takes;
}

/// APM volume 3, appendix E, functions 80000001H and 80000022H.
Profile amd_profile() {
  Profile profile;
  profile.vendor = Vendor::amd;
  const std::uint32_t last_leaf = cpuid(0x80000000).eax;
  if (last_leaf >= 0x80000001) {
    const CpuidResult features = cpuid(0x80000001);
    profile.core_ext = (features.ecx >> 23 & 1) != 0;
    profile.nested_virtualization = (features.ecx >> 2 & 1) != 0;
  }
  if (last_leaf >= 0x80000022 && (cpuid(0x80000022).eax & 1) != 0) {
    profile.version = 2;
    profile.gp_counters = cpuid(0x80000022).ebx & 0xF;
  } else if (profile.core_ext) {
    profile.version = 1;
    profile.gp_counters = 6;
  } else if (has_k7_counters()) {
    profile.version = 1;
    profile.gp_counters = 4;
  }
  profile.gp_width = profile.present() ? 48 : 0;  // APM volume 2, section 13.2.1
  return profile;
}

constexpr std::uint64_t fixed_nibble(const Setup& setup) {
  return (setup.rings != Rings::user ? fixed_ctrl::kernel : 0) | (setup.rings != Rings::kernel ? fixed_ctrl::user : 0) |
         (setup.interrupt == Interrupt::on ? fixed_ctrl::interrupt : 0);
}

}  // namespace

void WriteList::apply() const {
  for (std::uint32_t i = 0; i < size_; ++i) {
    write_msr(static_cast<Msr>(writes_[i].msr), std::uint64_t{writes_[i].high} << 32 | writes_[i].low);
  }
}

const char* name_of(EventKind event) {
  switch (event) {
    case EventKind::instructions:
      return "instructions";
    case EventKind::cycles:
      return "cycles";
    case EventKind::ref_cycles:
      return "ref-cycles";
    case EventKind::branches:
      return "branches";
    case EventKind::branch_misses:
      return "branch-misses";
    case EventKind::llc_references:
      return "llc-references";
    case EventKind::llc_misses:
      return "llc-misses";
  }
  return "?";
}

Pmu::Pmu() {
  const CpuidResult vendor = cpuid(0);
  const bool amd = vendor.ebx == vendor_amd_ebx || vendor.ebx == vendor_hygon_ebx;
  profile_ = amd ? amd_profile() : intel_profile(vendor.eax);
}

bool Pmu::can_count(CounterId counter, EventKind event) const {
  if ((counters() & counter.mask()) == 0) return false;
  if (!counter.is_fixed()) return offers(event);
  return counter.number() < arch::fixed_events.size() && arch::fixed_events[counter.number()] == event &&
         !option_lists("missing", name_of(event));
}

CounterSet Pmu::counters_of(EventKind event) const {
  CounterSet set = 0;
  for_each_counter(counters(), [&](CounterId counter) { set |= can_count(counter, event) ? counter.mask() : 0; });
  return set;
}

bool Pmu::offers(EventKind event) const {
  if (!present() || arch::event_code(profile_.vendor, event) == 0 || option_lists("missing", name_of(event))) {
    return false;
  }
  return arch::is_available(profile_, event);
}

Msr Pmu::selector(CounterId counter) const {
  if (is_intel()) return ia32_perfevtsel[counter.number()];
  return profile_.core_ext ? amd_core_perf_ctl[counter.number()] : amd_k7_perf_ctl[counter.number()];
}

Msr Pmu::value(CounterId counter) const {
  if (counter.is_fixed()) return ia32_fixed_ctr[counter.number()];
  if (is_intel()) return ia32_pmc[counter.number()];
  return profile_.core_ext ? amd_core_perf_ctr[counter.number()] : amd_k7_perf_ctr[counter.number()];
}

Msr Pmu::global_ctrl() const { return is_intel() ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl; }

Msr Pmu::global_status() const { return is_intel() ? Msr::ia32_perf_global_status : Msr::amd_perf_cntr_global_status; }

Msr Pmu::global_clear() const {
  return is_intel() ? Msr::ia32_perf_global_ovf_ctrl : Msr::amd_perf_cntr_global_status_clr;
}

std::uint32_t Pmu::rdpmc_index(CounterId counter) const {
  constexpr std::uint32_t fixed_type = 0x40000000;  // SDM volume 2, RDPMC
  return counter.is_fixed() ? fixed_type | counter.number() : counter.number();
}

std::uint64_t Pmu::mask(CounterId counter) const { return (1ULL << profile_.width(counter)) - 1; }

std::uint64_t Pmu::selector_value(const Setup& setup) const {
  return arch::event_code(profile_.vendor, setup.event) | evtsel::enable |
         (setup.rings != Rings::kernel ? evtsel::user : 0) | (setup.rings != Rings::user ? evtsel::kernel : 0) |
         (setup.interrupt == Interrupt::on ? evtsel::interrupt : 0);
}

void Pmu::program(CounterId counter, const Setup& setup) {
  if (counter.is_fixed()) {
    const std::uint32_t shift = 4 * counter.number();
    fixed_ctrl_ = (fixed_ctrl_ & ~(0xFULL << shift)) | fixed_nibble(setup) << shift;
    write_msr(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl_);
    return;
  }
  selectors_[counter.number()] = selector_value(setup);
  // Without a global register the selector's own enable bit is what starts it.
  write_msr(selector(counter), has_global() ? selectors_[counter.number()]
                                            : selectors_[counter.number()] & ~std::uint64_t{evtsel::enable});
}

void Pmu::clear(CounterId counter) {
  if (counter.is_fixed()) {
    fixed_ctrl_ &= ~(0xFULL << (4 * counter.number()));
    write_msr(Msr::ia32_fixed_ctr_ctrl, fixed_ctrl_);
    return;
  }
  selectors_[counter.number()] = 0;
  write_msr(selector(counter), 0);
}

WriteList Pmu::start_list(CounterSet counters) const {
  WriteList list;
  if (has_global()) {
    list.add(global_ctrl(), counters);
    return list;
  }
  for_each_counter(counters, [&](CounterId counter) { list.add(selector(counter), selectors_[counter.number()]); });
  return list;
}

WriteList Pmu::stop_list(CounterSet counters) const {
  WriteList list;
  if (has_global()) {
    list.add(global_ctrl(), 0);
    return list;
  }
  for_each_counter(counters, [&](CounterId counter) {
    list.add(selector(counter), selectors_[counter.number()] & ~std::uint64_t{evtsel::enable});
  });
  return list;
}

std::uint64_t Pmu::read(CounterId counter) const { return read_msr(value(counter)); }

void Pmu::write(CounterId counter, std::uint64_t value) const {
  if (!counter.is_fixed() && is_intel() && profile_.full_width_writes()) {
    write_msr(ia32_a_pmc[counter.number()], value & mask(counter));
  } else {
    write_msr(this->value(counter), value);
  }
}

std::uint64_t Pmu::overflowed(CounterSet counters) const {
  if (has_global()) return read_msr(global_status());
  CounterSet set = 0;
  for_each_counter(counters, [&](CounterId counter) {
    const std::uint64_t sign = (mask(counter) >> 1) + 1;
    if ((read(counter) & sign) == 0) set |= counter.mask();
  });
  return set;
}

void Pmu::acknowledge(std::uint64_t status) const {
  if (has_global()) write_msr(global_clear(), status);
}

void Pmu::reset() {
  if (!present()) return;
  if (has_global()) write_msr(global_ctrl(), 0);
  for_each_counter(gp_counters(), [this](CounterId counter) { write_msr(selector(counter), 0); });
  if (profile_.fixed_mask != 0) write_msr(Msr::ia32_fixed_ctr_ctrl, 0);
  for_each_counter(counters(), [this](CounterId counter) { write_msr(value(counter), 0); });
  if (is_intel() && has_global()) write_msr(Msr::ia32_debugctl, 0);
  if (is_intel() && profile_.pebs()) write_msr(Msr::ia32_pebs_enable, 0);
  if (has_global()) write_msr(global_clear(), ~std::uint64_t{0} & status_bits());
  selectors_ = {};
  fixed_ctrl_ = 0;
}

std::uint64_t Pmu::status_bits() const {
  if (!is_intel()) return counters();
  return counters() | global_status::buffer_overflow | global_status::condition_changed |
         (profile_.version >= 4 ? global_status::v4 : 0);
}

Pmu& pmu() {
  static constinit bool found = false;
  alignas(Pmu) static constinit std::array<unsigned char, sizeof(Pmu)> place{};
  auto* object = reinterpret_cast<Pmu*>(place.data());
  if (!found) {
    *object = Pmu{};
    found = true;
  }
  return *object;
}

void print_pmu() {
  const Profile& profile = pmu().profile();
  print("{}: {} perfmon {}, {} general-purpose counters of {} bits, fixed {x} of {} bits, unavailable {x}\n",
        guest_name, profile.is_intel() ? "intel" : "amd", profile.version, profile.gp_counters, profile.gp_width,
        profile.fixed_mask, profile.fixed_width, profile.events_unavailable);
}

}  // namespace vpmu::guest
