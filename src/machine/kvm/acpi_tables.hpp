// The ACPI tables of the kvm machine: its processors, and how to switch it off.
#pragma once

#include <cstdint>

#include "machine/soft/memory.hpp"

namespace vpmu::kvm {

/// Ports of the fixed hardware that the tables name (ACPI 6.4, section 4.8).
namespace acpi {
inline constexpr std::uint16_t pm1_event = 0x600;  // status and enable, 2 bytes each
inline constexpr std::uint16_t pm1_control = 0x604;
inline constexpr std::uint16_t pm_timer = 0x608;
inline constexpr std::uint64_t pm_timer_hz = 3579545;
/// In PM1 control: SCI_EN; SLP_EN with SLP_TYP = 5, which \_S5 names, is "off".
inline constexpr std::uint16_t sci_enabled = 1;
inline constexpr std::uint16_t sleep_enable = 1U << 13;
inline constexpr std::uint16_t sleep_type_off = 5U << 10;
inline constexpr std::uint16_t sleep_type = 7U << 10;
}  // namespace acpi

/// Writes them for so many vCPUs, whose APIC IDs count from 0. Gives the address of the RSDP.
std::uint64_t write_acpi_tables(soft::Memory& memory, std::uint32_t cpus);

}  // namespace vpmu::kvm
