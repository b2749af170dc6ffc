#include "vpmu/snapshot.hpp"

#include "arch/registers.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu {
namespace {

// The layout: see Snapshot.
constexpr std::array<std::uint8_t, 4> magic{'v', 'P', 'M', 'U'};
constexpr std::size_t version_at = 4;
constexpr std::size_t size_at = 6;
constexpr std::size_t vendor_at = 8;
constexpr std::size_t flags_at = 9;
constexpr std::size_t zeros_at = 10;
constexpr std::size_t slots_at = 16;
constexpr std::size_t slots = std::tuple_size_v<decltype(MsrList::msrs)>;
constexpr std::size_t checksum_at = slots_at + slots * 8;
constexpr std::size_t zeros_end_at = checksum_at + 4;
static_assert(zeros_end_at + 4 == Snapshot::size);
constexpr std::uint8_t pmi_flag = 1;

constexpr std::size_t selectors_at = max_gp_counters;
constexpr std::size_t fixed_at = selectors_at + max_gp_counters;
constexpr std::size_t controls_at = fixed_at + max_fixed_counters;
constexpr std::array intel_controls{Msr::ia32_perf_global_ctrl, Msr::ia32_perf_global_status, Msr::ia32_fixed_ctr_ctrl,
                                    Msr::ia32_debugctl,         Msr::ia32_pebs_enable,        Msr::msr_pebs_data_cfg,
                                    Msr::ia32_ds_area};
static_assert(controls_at + intel_controls.size() == slots);
constexpr std::array amd_controls{Msr::amd_perf_cntr_global_ctl, Msr::amd_perf_cntr_global_status};

/// The register of a slot by the newest of its names; K7 names where the profile has no others. 0 is none.
Msr msr_of(const Profile& profile, std::size_t slot) {
  const auto n = static_cast<std::uint32_t>(slot % max_gp_counters);
  if (slot < fixed_at) {
    const bool selector = slot >= selectors_at;
    if (profile.is_intel()) return selector ? ia32_perfevtsel[n] : ia32_pmc[n];
    if (profile.core_ext || n >= amd_k7_perf_ctl.count) return selector ? amd_core_perf_ctl[n] : amd_core_perf_ctr[n];
    return selector ? amd_k7_perf_ctl[n] : amd_k7_perf_ctr[n];
  }
  if (slot < controls_at)
    return profile.is_intel() ? ia32_fixed_ctr[static_cast<std::uint32_t>(slot - fixed_at)] : Msr{};
  const std::size_t control = slot - controls_at;
  if (profile.is_intel()) return intel_controls[control];
  return control < amd_controls.size() ? amd_controls[control] : Msr{};
}

bool has(const Profile& profile, Msr msr) { return arch::enumerates(profile, arch::find_register(msr)); }

bool is_canonical(std::uint64_t address) {
  const std::uint64_t top = address >> 47;
  return top == 0 || top == 0x1FFFF;
}

constexpr std::uint64_t low_bits(std::uint32_t width) { return width == 0 ? 0 : ~std::uint64_t{0} >> (64 - width); }

/// Whether the register of this profile can hold the value, all of it.
bool can_hold(const Profile& profile, Msr msr, std::uint64_t value) {
  using arch::RegisterKind;
  const arch::Register reg = arch::find_register(msr);
  if (!arch::enumerates(profile, reg)) return value == 0;
  std::uint64_t bits = 0;
  switch (reg.kind) {
    case RegisterKind::pmc:
    case RegisterKind::k7_perf_ctr:
    case RegisterKind::core_perf_ctr:
      bits = low_bits(profile.gp_width);
      break;
    case RegisterKind::fixed_ctr:
      bits = low_bits(profile.fixed_width);
      break;
    case RegisterKind::perfevtsel:
    case RegisterKind::k7_perf_ctl:
    case RegisterKind::core_perf_ctl:
      bits = arch::legal_selector(profile, CounterId::gp(reg.number));
      break;
    case RegisterKind::fixed_ctr_ctrl:
      bits = arch::legal_fixed_ctrl(profile);
      break;
    case RegisterKind::global_ctrl:
    case RegisterKind::amd_global_ctl:
      bits = arch::legal_global_ctrl(profile);
      break;
    case RegisterKind::global_status:
    case RegisterKind::amd_global_status:
      bits = arch::legal_global_status(profile);
      break;
    case RegisterKind::debugctl:
      bits = arch::legal_debugctl(profile);
      break;
    case RegisterKind::pebs_enable:
      bits = arch::legal_pebs_enable(profile);
      break;
    case RegisterKind::pebs_data_cfg:
      bits = arch::legal_pebs_data_cfg();
      break;
    case RegisterKind::ds_area:
      return is_canonical(value);
    default:
      break;
  }
  return (value & ~bits) == 0;
}

void put(std::uint8_t* at, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

std::uint64_t get(const std::uint8_t* at, std::size_t bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value |= std::uint64_t{at[i]} << (8 * i);
  return value;
}

std::uint64_t slot_value(const std::uint8_t* bytes, std::size_t slot) { return get(bytes + slots_at + 8 * slot, 8); }

/// CRC-32/ISO-HDLC, bit by bit: a few hundred bytes now and then need no table.
std::uint32_t checksum(const std::uint8_t* bytes) {
  constexpr std::uint32_t reflected_polynomial = 0xEDB88320;
  std::uint32_t crc = ~0U;
  for (std::size_t i = 0; i < checksum_at; ++i) {
    crc ^= bytes[i];
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? reflected_polynomial : 0);
  }
  return ~crc;
}

/// What is wrong with bytes that are to be a snapshot of version 1, their registers apart.
Status<SnapshotError> check_form(Vendor vendor, const std::uint8_t* bytes, std::size_t size) {
  using Kind = SnapshotError::Kind;
  const auto error = [](Kind kind) { return SnapshotError{.kind = kind, .reg = Msr{}}; };
  for (std::size_t i = 0; i < magic.size() && i < size; ++i) {
    if (bytes[i] != magic[i]) return error(Kind::not_a_snapshot);
  }
  if (size < size_at) return error(Kind::cut);
  const std::uint64_t version = get(bytes + version_at, 2);
  if (version < Snapshot::version) return error(Kind::too_old);
  if (version > Snapshot::version) return error(Kind::too_new);
  if (size != Snapshot::size) return error(Kind::cut);
  if (get(bytes + checksum_at, 4) != checksum(bytes) || get(bytes + size_at, 2) != Snapshot::size ||
      get(bytes + zeros_at, slots_at - zeros_at) != 0 || get(bytes + zeros_end_at, 4) != 0 ||
      bytes[vendor_at] > static_cast<std::uint8_t>(Vendor::amd) || (bytes[flags_at] & ~pmi_flag) != 0) {
    return error(Kind::damaged);
  }
  if (bytes[vendor_at] != static_cast<std::uint8_t>(vendor)) return error(Kind::other_vendor);
  return {};
}

}  // namespace

const char* describe(SnapshotError::Kind kind) {
  using Kind = SnapshotError::Kind;
  switch (kind) {
    case Kind::not_a_snapshot:
      return "not a snapshot of a virtual PMU";
    case Kind::cut:
      return "a snapshot of the wrong size";
    case Kind::too_old:
      return "a snapshot of a version that is no longer read";
    case Kind::too_new:
      return "a snapshot of a newer version";
    case Kind::damaged:
      return "a damaged snapshot";
    case Kind::other_vendor:
      return "a snapshot of another vendor's PMU";
    case Kind::refused:
      return "a register of the snapshot holds what this PMU's cannot";
    case Kind::no_pmi:
      return "the snapshot has a pending PMI, and this PMU has no counters";
  }
  return "unknown error";
}

MsrList state_msrs(const Profile& profile) {
  MsrList list;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const Msr msr = msr_of(profile, slot);
    if (has(profile, msr)) list.msrs[list.count++] = msr;
  }
  return list;
}

Snapshot VirtualPmu::save() {
  take_posted_writes();
  Snapshot snapshot;
  std::uint8_t* const bytes = snapshot.bytes.data();
  for (std::size_t i = 0; i < magic.size(); ++i) bytes[i] = magic[i];
  put(bytes + version_at, Snapshot::version, 2);
  put(bytes + size_at, Snapshot::size, 2);
  bytes[vendor_at] = static_cast<std::uint8_t>(profile().vendor);
  fold(profile().counters());
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const Msr msr = msr_of(profile(), slot);
    if (has(profile(), msr)) put(bytes + slots_at + 8 * slot, host_read_msr(msr).value_or(0), 8);
  }
  // Reading brings overflows to light.
  if (registers_.pmi_pending_) bytes[flags_at] = pmi_flag;
  put(bytes + checksum_at, checksum(bytes), 4);
  return snapshot;
}

Status<SnapshotError> VirtualPmu::restore(const std::uint8_t* bytes, std::size_t size) {
  if (const auto form = check_form(profile().vendor, bytes, size); !form) return form;
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const Msr msr = msr_of(profile(), slot);
    if (!can_hold(profile(), msr, slot_value(bytes, slot))) {
      return SnapshotError{.kind = SnapshotError::Kind::refused, .reg = msr};
    }
  }
  const bool pmi = (bytes[flags_at] & pmi_flag) != 0;
  if (pmi && !profile().present()) return SnapshotError{.kind = SnapshotError::Kind::no_pmi, .reg = Msr{}};

  reset();
  for (std::size_t slot = 0; slot < slots; ++slot) {
    const Msr msr = msr_of(profile(), slot);
    if (has(profile(), msr)) static_cast<void>(host_write_msr(msr, slot_value(bytes, slot)));
  }
  registers_.pmi_pending_ = pmi;
  return {};
}

}  // namespace vpmu
