// The state of a virtual PMU as bytes, for saving, restoring and migrating a vCPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu {

/// What VirtualPmu::save() gives and restore() takes: the guest's registers, counts up to now, and whether a PMI is yet
/// to be reported. The same bytes on every host, under every policy and backing. What a VMM configures is not in it:
/// profile, event filter, policy.
///
/// Little-endian, of fixed size:
///
///     offset  bytes
///     0       4      "vPMU"
///     4       2      version: 1
///     6       2      size in bytes, these included: 400
///     8       1      vendor: 0 Intel, 1 AMD
///     9       1      bit 0: a PMI is pending
///     10      6      0
///     16      47 x 8 16 general-purpose counters, 16 event selects, 8 fixed counters, GLOBAL_CTRL, GLOBAL_STATUS,
///                    FIXED_CTR_CTRL, DEBUGCTL, PEBS_ENABLE, PEBS_DATA_CFG, DS_AREA; 0 for what the profile lacks
///     392     4      CRC-32 (ISO-HDLC) of all bytes before
///     396     4      0
struct Snapshot {
  static constexpr std::size_t size = 400;
  static constexpr std::uint16_t version = 1;
  std::array<std::uint8_t, size> bytes{};
  friend bool operator==(const Snapshot&, const Snapshot&) = default;
};

/// Why restore() changed nothing.
struct SnapshotError {
  enum class Kind : std::uint8_t {
    not_a_snapshot,
    cut,      // or something follows
    too_old,  // versions that this library no longer reads
    too_new,
    damaged,  // the checksum does not fit, or a byte that must be 0 is not
    other_vendor,
    refused,  // `reg` holds what this profile's register cannot
    no_pmi,   // a PMI is pending, and this profile has no counters
  };
  Kind kind = Kind::not_a_snapshot;
  Msr reg{};
};
/// One line for a person, without a full stop. `refused`: register_name() has the register's name.
const char* describe(SnapshotError::Kind kind);

/// Registers that together hold all state of a PMU but a pending PMI: for a VMM that saves MSR by MSR, by
/// VirtualPmu::host_read_msr() and host_write_msr(). They may be restored in any order. A pending PMI
/// (VirtualPmu::pmi_pending()) has to reach the local APIC first: by an enter().
struct MsrList {
  std::array<Msr, 47> msrs{};
  std::size_t count = 0;
  [[nodiscard]] const Msr* begin() const { return msrs.data(); }
  [[nodiscard]] const Msr* end() const { return msrs.data() + count; }
};
MsrList state_msrs(const Profile& profile);

}  // namespace vpmu
