#include "machine/kvm/acpi_tables.hpp"

#include <cstring>
#include <numeric>
#include <string_view>
#include <vector>

namespace vpmu::kvm {
namespace {

constexpr std::uint64_t tables_at = 0xE0000;  // where a PC's firmware has them, and where RAM is not
constexpr std::size_t header_bytes = 36;
constexpr std::size_t checksum_at = 9;

/// A table that grows, its fields in the order of the specification.
class Table {
 public:
  Table(std::string_view signature, std::uint8_t revision) {
    text(signature);
    u32(0);  // length
    u8(revision);
    u8(0);  // checksum
    text("VPMU  ");
    text("VPMUKVM ");
    u32(1);
    text("VPMU");
    u32(1);
  }
  void u8(std::uint64_t value) { number(value, 1); }
  void u16(std::uint64_t value) { number(value, 2); }
  void u32(std::uint64_t value) { number(value, 4); }
  void u64(std::uint64_t value) { number(value, 8); }
  void zeros(std::size_t count) { bytes_.resize(bytes_.size() + count); }
  void text(std::string_view value) { bytes_.insert(bytes_.end(), value.begin(), value.end()); }
  /// A generic address structure: ports.
  void ports(std::uint16_t port, std::uint8_t bytes) {
    u8(1);
    u8(bytes * 8U);
    u8(0);
    u8(bytes == 4 ? 3 : 2);  // access size
    u64(port);
  }
  [[nodiscard]] const std::vector<std::uint8_t>& finish() {
    const auto length = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data() + 4, &length, sizeof length);
    bytes_[checksum_at] = static_cast<std::uint8_t>(0U - std::accumulate(bytes_.begin(), bytes_.end(), 0U));
    return bytes_;
  }

 private:
  void number(std::uint64_t value, unsigned bytes) {
    for (unsigned n = 0; n < bytes; ++n) bytes_.push_back(static_cast<std::uint8_t>(value >> (8 * n)));
  }
  std::vector<std::uint8_t> bytes_;
};

class Placer {
 public:
  explicit Placer(soft::Memory& memory) : memory_{memory} {}
  std::uint64_t place(const std::vector<std::uint8_t>& bytes) {
    constexpr std::uint64_t alignment = 64;
    const std::uint64_t at = next_;
    memory_.write(at, bytes.data(), bytes.size());
    next_ = (at + bytes.size() + alignment - 1) / alignment * alignment;
    return at;
  }

 private:
  soft::Memory& memory_;
  std::uint64_t next_ = tables_at;
};

std::vector<std::uint8_t> facs() {
  std::vector<std::uint8_t> bytes(64);
  std::memcpy(bytes.data(), "FACS", 4);
  bytes[4] = 64;
  bytes[32] = 1;  // version
  return bytes;
}

Table dsdt() {
  Table table{"DSDT", 2};
  // Name (\_S5, Package (4) {5, 0, 0, 0})
  for (const unsigned byte : {0x08, 0x5F, 0x53, 0x35, 0x5F, 0x12, 0x07, 0x04, 0x0A, 0x05, 0x00, 0x00, 0x00})
    table.u8(byte);
  return table;
}

/// ACPI 6.4, section 5.2.9, as of revision 3.
Table fadt(std::uint64_t facs_at, std::uint64_t dsdt_at) {
  constexpr std::uint16_t sci_irq = 9;
  constexpr std::uint32_t slow = 0xFFFF;  // no C2, no C3
  // Legacy devices; no VGA.
  constexpr std::uint16_t boot_architecture = 1U << 0 | 1U << 2;
  // WBINVD; power and sleep buttons are control methods, of which there are none; the timer has 32 bits.
  constexpr std::uint32_t flags = 1U << 0 | 1U << 4 | 1U << 5 | 1U << 8;
  Table table{"FACP", 3};
  table.u32(facs_at);
  table.u32(dsdt_at);
  table.zeros(2);
  table.u16(sci_irq);
  table.zeros(8);  // no SMI: ACPI is on from the start
  table.u32(acpi::pm1_event);
  table.u32(0);
  table.u32(acpi::pm1_control);
  table.u32(0);
  table.u32(0);
  table.u32(acpi::pm_timer);
  table.zeros(8);  // no general-purpose events
  table.u8(4);
  table.u8(2);
  table.u8(0);
  table.u8(4);
  table.zeros(4);
  table.u16(slow);
  table.u16(slow);
  table.zeros(9);
  table.u16(boot_architecture);
  table.u8(0);
  table.u32(flags);
  table.zeros(12 + 4);  // no reset register
  table.u64(facs_at);
  table.u64(dsdt_at);
  table.ports(acpi::pm1_event, 4);
  table.zeros(12);
  table.ports(acpi::pm1_control, 2);
  table.zeros(12);
  table.zeros(12);
  table.ports(acpi::pm_timer, 4);
  table.zeros(2UL * 12);
  return table;
}

/// ACPI 6.4, section 5.2.12.
Table madt(std::uint32_t cpus) {
  constexpr std::uint32_t local_apic = 0xFEE00000;
  constexpr std::uint32_t io_apic = 0xFEC00000;
  Table table{"APIC", 3};
  table.u32(local_apic);
  table.u32(1);  // 8259s too
  for (std::uint32_t cpu = 0; cpu < cpus; ++cpu) {
    table.u8(0);
    table.u8(8);
    table.u8(cpu);
    table.u8(cpu);
    table.u32(1);  // enabled
  }
  table.u8(1);
  table.u8(12);
  table.u8(cpus);
  table.u8(0);
  table.u32(io_apic);
  table.u32(0);
  table.u8(4);  // NMI on each processor's LINT1
  table.u8(6);
  table.u8(0xFF);
  table.u16(0);
  table.u8(1);
  return table;
}

std::vector<std::uint8_t> rsdp(std::uint64_t xsdt_at) {
  std::vector<std::uint8_t> bytes(header_bytes);
  std::memcpy(bytes.data(), "RSD PTR ", 8);
  std::memcpy(bytes.data() + 9, "VPMU  ", 6);
  bytes[15] = 2;
  bytes[20] = header_bytes;
  std::memcpy(bytes.data() + 24, &xsdt_at, sizeof xsdt_at);
  const auto sum = [&](std::size_t length) {
    return static_cast<std::uint8_t>(
        0U - std::accumulate(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length), 0U));
  };
  bytes[8] = sum(20);
  bytes[32] = sum(header_bytes);
  return bytes;
}

}  // namespace

std::uint64_t write_acpi_tables(soft::Memory& memory, std::uint32_t cpus) {
  Placer placer{memory};
  const std::uint64_t facs_at = placer.place(facs());
  const std::uint64_t dsdt_at = placer.place(dsdt().finish());
  const std::uint64_t fadt_at = placer.place(fadt(facs_at, dsdt_at).finish());
  const std::uint64_t madt_at = placer.place(madt(cpus).finish());
  Table xsdt{"XSDT", 1};
  xsdt.u64(fadt_at);
  xsdt.u64(madt_at);
  return placer.place(rsdp(placer.place(xsdt.finish())));
}

}  // namespace vpmu::kvm
