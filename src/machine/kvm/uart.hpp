// A 16550A serial port with its interrupts (National Semiconductor PC16550D data sheet).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

namespace vpmu::kvm {

/// Sends at once, and receives as fast as the guest reads. Not thread-safe.
class Uart {
 public:
  static constexpr std::uint16_t registers = 8;
  /// Characters that wait for the guest beyond which receive() takes none.
  static constexpr std::size_t queue = 4096;

  /// `send`: a character from the guest. `set_interrupt`: the level of its interrupt line, at each change.
  Uart(std::function<void(char)> send, std::function<void(bool)> set_interrupt)
      : send_{std::move(send)}, set_interrupt_{std::move(set_interrupt)} {}

  std::uint8_t read(std::uint16_t reg);
  void write(std::uint16_t reg, std::uint8_t value);
  /// A character for the guest; false if too many wait already.
  bool receive(char character);

 private:
  [[nodiscard]] std::uint8_t identify();
  [[nodiscard]] bool divisor_shown() const { return (line_control_ & 0x80) != 0; }
  [[nodiscard]] std::uint8_t modem_status() const;
  void update();

  std::function<void(char)> send_;
  std::function<void(bool)> set_interrupt_;
  std::deque<char> received_;
  std::uint8_t interrupt_enable_ = 0;
  std::uint8_t line_control_ = 0;
  std::uint8_t modem_control_ = 0;
  std::uint8_t scratch_ = 0;
  std::uint16_t divisor_ = 1;
  bool fifo_ = false;
  bool empty_pending_ = false;  // the transmitter became empty, and nobody has been told
  bool level_ = false;
};

}  // namespace vpmu::kvm
