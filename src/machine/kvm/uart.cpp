#include "machine/kvm/uart.hpp"

namespace vpmu::kvm {
namespace {

// Registers by their offset.
constexpr std::uint16_t data = 0;
constexpr std::uint16_t interrupt_enable = 1;
constexpr std::uint16_t identification = 2;  // written: FIFO control
constexpr std::uint16_t line_control = 3;
constexpr std::uint16_t modem_control = 4;
constexpr std::uint16_t line_status = 5;
constexpr std::uint16_t modem_status_register = 6;

// Interrupt enable.
constexpr std::uint8_t on_received = 1U << 0;
constexpr std::uint8_t on_empty = 1U << 1;

// Interrupt identification.
constexpr std::uint8_t none = 0x01;
constexpr std::uint8_t transmitter_empty = 0x02;
constexpr std::uint8_t data_available = 0x04;
constexpr std::uint8_t fifo_enabled = 0xC0;

// Line status.
constexpr std::uint8_t data_ready = 1U << 0;
constexpr std::uint8_t can_send = 3U << 5;

constexpr std::uint8_t loopback = 1U << 4;  // modem control

}  // namespace

bool Uart::receive(char character) {
  if (received_.size() >= queue) return false;
  received_.push_back(character);
  update();
  return true;
}

void Uart::update() {
  const bool level = ((interrupt_enable_ & on_received) != 0 && !received_.empty()) ||
                     ((interrupt_enable_ & on_empty) != 0 && empty_pending_);
  if (level == level_) return;
  level_ = level;
  set_interrupt_(level);
}

std::uint8_t Uart::identify() {
  const std::uint8_t fifo = fifo_ ? fifo_enabled : 0;
  if ((interrupt_enable_ & on_received) != 0 && !received_.empty()) return data_available | fifo;
  if ((interrupt_enable_ & on_empty) != 0 && empty_pending_) {
    // Reading it acknowledges.
    empty_pending_ = false;
    update();
    return transmitter_empty | fifo;
  }
  return none | fifo;
}

std::uint8_t Uart::modem_status() const {
  constexpr std::uint8_t present = 0xB0;  // carrier, data set ready, clear to send
  if ((modem_control_ & loopback) == 0) return present;
  // DTR, RTS, OUT1 and OUT2 come back as DSR, CTS, RI and DCD.
  const unsigned out = modem_control_;
  return static_cast<std::uint8_t>((out & 1U) << 5 | (out & 2U) << 3 | (out & 4U) << 4 | (out & 8U) << 4);
}

std::uint8_t Uart::read(std::uint16_t reg) {
  switch (reg) {
    case data: {
      if (divisor_shown()) return static_cast<std::uint8_t>(divisor_);
      if (received_.empty()) return 0;
      const char character = received_.front();
      received_.pop_front();
      update();
      return static_cast<std::uint8_t>(character);
    }
    case interrupt_enable:
      return divisor_shown() ? static_cast<std::uint8_t>(divisor_ >> 8) : interrupt_enable_;
    case identification:
      return identify();
    case line_control:
      return line_control_;
    case modem_control:
      return modem_control_;
    case line_status:
      return can_send | (received_.empty() ? 0 : data_ready);
    case modem_status_register:
      return modem_status();
    default:
      return scratch_;
  }
}

void Uart::write(std::uint16_t reg, std::uint8_t value) {
  switch (reg) {
    case data:
      if (divisor_shown()) {
        divisor_ = static_cast<std::uint16_t>((divisor_ & 0xFF00) | value);
        return;
      }
      if ((modem_control_ & loopback) != 0) {
        receive(static_cast<char>(value));
      } else {
        send_(static_cast<char>(value));
      }
      // The line falls and rises again: the guest's interrupt controller may look for the edge.
      empty_pending_ = false;
      update();
      empty_pending_ = true;
      update();
      return;
    case interrupt_enable:
      if (divisor_shown()) {
        divisor_ = static_cast<std::uint16_t>((divisor_ & 0x00FF) | value << 8);
        return;
      }
      // Enabling it while the transmitter is empty, as it always is, interrupts.
      if ((value & on_empty) != 0 && (interrupt_enable_ & on_empty) == 0) empty_pending_ = true;
      interrupt_enable_ = value & 0x0F;
      update();
      return;
    case identification:
      fifo_ = (value & 1) != 0;
      if ((value & 2) != 0) received_.clear();
      update();
      return;
    case line_control:
      line_control_ = value;
      return;
    case modem_control:
      modem_control_ = value & 0x1F;
      return;
    case line_status:
    case modem_status_register:
      return;  // read-only
    default:
      scratch_ = value;
  }
}

}  // namespace vpmu::kvm
