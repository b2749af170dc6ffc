// The ports of the kvm machine: a serial line, a clock, the power switch, and the exit port.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "machine/kvm/uart.hpp"

namespace vpmu::kvm {

/// Why the guest ended itself.
struct GuestEnd {
  enum class Kind : std::uint8_t {
    exit,       // it wrote `value` to port 0xF4
    power_off,  // by ACPI
    reset,      // by the keyboard controller or port 0xCF9
  };
  Kind kind = Kind::exit;
  std::uint32_t value = 0;
};

/// All of them may be called from any thread.
class Devices {
 public:
  Devices(std::function<void(char)> output, std::function<void(bool)> set_serial_interrupt);

  std::uint32_t in(std::uint16_t port, unsigned bytes);
  void out(std::uint16_t port, unsigned bytes, std::uint32_t value);
  /// A character for the guest's serial line; false if too many wait.
  bool receive(char character);
  [[nodiscard]] std::optional<GuestEnd> end() const;

  /// The line that interrupts: ISA's of the first serial port.
  static constexpr std::uint32_t serial_irq = 4;

 private:
  std::uint8_t in_byte(std::uint16_t port);
  void out_byte(std::uint16_t port, std::uint8_t value);
  [[nodiscard]] std::uint8_t clock_register() const;
  void finish(GuestEnd end);

  mutable std::mutex mutex_;
  Uart uart_;
  std::uint8_t clock_index_ = 0;
  std::uint16_t pm1_control_;
  std::uint32_t pm1_event_ = 0;
  std::optional<GuestEnd> end_;
};

}  // namespace vpmu::kvm
