#include "machine/kvm/devices.hpp"

#include <ctime>

#include "machine/kvm/acpi_tables.hpp"

namespace vpmu::kvm {
namespace {

constexpr std::uint16_t com1 = 0x3F8;
constexpr std::uint16_t exit_port = 0xF4;
constexpr std::uint16_t clock_index = 0x70;
constexpr std::uint16_t clock_data = 0x71;
constexpr std::uint16_t keyboard_command = 0x64;
constexpr std::uint16_t reset_control = 0xCF9;
constexpr std::uint8_t keyboard_reset = 0xFE;  // pulses the processor's reset line
constexpr std::uint8_t reset_now = 1U << 2;

constexpr std::uint8_t bcd(int value) { return static_cast<std::uint8_t>(value / 10 << 4 | value % 10); }

std::uint32_t pm_timer() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  constexpr std::uint64_t ns_per_second = 1000000000;
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(now.tv_sec) * acpi::pm_timer_hz +
                                    static_cast<std::uint64_t>(now.tv_nsec) * acpi::pm_timer_hz / ns_per_second);
}

}  // namespace

Devices::Devices(std::function<void(char)> output, std::function<void(bool)> set_serial_interrupt)
    : uart_{std::move(output), std::move(set_serial_interrupt)}, pm1_control_{acpi::sci_enabled} {}

std::optional<GuestEnd> Devices::end() const {
  const std::lock_guard lock{mutex_};
  return end_;
}

bool Devices::receive(char character) {
  const std::lock_guard lock{mutex_};
  return uart_.receive(character);
}

void Devices::finish(GuestEnd end) {
  if (!end_) end_ = end;
}

/// A Motorola MC146818A: the host's time of day in UTC, BCD, 24 hours, always valid. It cannot be set.
std::uint8_t Devices::clock_register() const {
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  ::gmtime_r(&now, &t);
  switch (clock_index_) {
    case 0x00:
      return bcd(t.tm_sec);
    case 0x02:
      return bcd(t.tm_min);
    case 0x04:
      return bcd(t.tm_hour);
    case 0x06:
      return bcd(t.tm_wday + 1);
    case 0x07:
      return bcd(t.tm_mday);
    case 0x08:
      return bcd(t.tm_mon + 1);
    case 0x09:
      return bcd(t.tm_year % 100);
    case 0x0A:
      return 0x26;  // no update in progress, 32768 Hz
    case 0x0B:
      return 0x02;  // 24 hours
    case 0x0D:
      return 0x80;  // valid
    case 0x32:
      return bcd(19 + t.tm_year / 100);
    default:
      return 0;
  }
}

std::uint8_t Devices::in_byte(std::uint16_t port) {
  if (port >= com1 && port < com1 + Uart::registers) return uart_.read(port - com1);
  if (port >= acpi::pm1_event && port < acpi::pm1_event + 4) {
    return static_cast<std::uint8_t>(pm1_event_ >> (8 * (port - acpi::pm1_event)));
  }
  if (port >= acpi::pm1_control && port < acpi::pm1_control + 2) {
    return static_cast<std::uint8_t>(pm1_control_ >> (8 * (port - acpi::pm1_control)));
  }
  switch (port) {
    case clock_index:
      return clock_index_;
    case clock_data:
      return clock_register();
    default:
      return 0xFF;
  }
}

void Devices::out_byte(std::uint16_t port, std::uint8_t value) {
  if (port >= com1 && port < com1 + Uart::registers) return uart_.write(port - com1, value);
  switch (port) {
    case clock_index:
      clock_index_ = value & 0x7F;
      break;
    case keyboard_command:
      if (value == keyboard_reset) finish({.kind = GuestEnd::Kind::reset});
      break;
    case reset_control:
      if ((value & reset_now) != 0) finish({.kind = GuestEnd::Kind::reset});
      break;
    default:
      break;
  }
}

std::uint32_t Devices::in(std::uint16_t port, unsigned bytes) {
  if (port == acpi::pm_timer && bytes == 4) return pm_timer();
  const std::lock_guard lock{mutex_};
  std::uint32_t value = 0;
  for (unsigned n = 0; n < bytes; ++n) value |= std::uint32_t{in_byte(static_cast<std::uint16_t>(port + n))} << (8 * n);
  return value;
}

void Devices::out(std::uint16_t port, unsigned bytes, std::uint32_t value) {
  const std::lock_guard lock{mutex_};
  if (port == exit_port) return finish({.kind = GuestEnd::Kind::exit, .value = value});
  if (port == acpi::pm1_control && bytes == 2) {
    pm1_control_ = static_cast<std::uint16_t>((value & ~acpi::sleep_enable) | acpi::sci_enabled);
    if ((value & acpi::sleep_enable) != 0 && (value & acpi::sleep_type) == acpi::sleep_type_off) {
      finish({.kind = GuestEnd::Kind::power_off});
    }
    return;
  }
  if (port == acpi::pm1_event + 2) {
    pm1_event_ = (pm1_event_ & 0xFFFF) | value << 16;
    return;
  }
  for (unsigned n = 0; n < bytes; ++n) {
    out_byte(static_cast<std::uint16_t>(port + n), static_cast<std::uint8_t>(value >> (8 * n)));
  }
}

}  // namespace vpmu::kvm
