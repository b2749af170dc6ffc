#include "machine/soft/devices.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace vpmu::soft {

namespace {

constexpr u16 com1 = 0x3f8, exit_port = 0xf4, fw_cfg_selector = 0x510, fw_cfg_data = 0x511;
constexpr u64 pit_hz = 1193182;

// fw_cfg keys (QEMU's documentation, docs/specs/fw_cfg): signature, interface, memory size, number of CPUs.
constexpr u16 key_signature = 0, key_interface = 1, key_memory = 3, key_cpus = 5, key_max_cpus = 15;

}  // namespace

Devices::Devices(Output output, u64 memory_bytes, u64 tsc_hz, std::function<u64()> now)
    : output_(std::move(output)), memory_bytes_(memory_bytes), tsc_hz_(tsc_hz), now_(std::move(now)) {}

void Devices::select(u16 key) {
  item_at_ = 0;
  item_.fill(0);
  const auto item = [this](const void* bytes, u64 length) {
    std::memcpy(item_.data(), bytes, length);
    item_length_ = length;
  };
  switch (key) {
    case key_signature:
      item("QEMU", 4);
      break;
    case key_interface: {
      const u32 traditional = 1;
      item(&traditional, 4);
      break;
    }
    case key_memory:
      item(&memory_bytes_, 8);
      break;
    case key_cpus:
    case key_max_cpus: {
      const u16 one = 1;
      item(&one, 2);
      break;
    }
    default:
      item_length_ = 0;
  }
}

u64 Devices::pit_ticks() const {
  __extension__ using u128 = unsigned __int128;
  return static_cast<u64>(static_cast<u128>(now_() - pit_[2].start) * pit_hz / tsc_hz_);
}

u8 Devices::in_byte(u16 port) {
  switch (port) {
    case com1 + 0:
      return (serial_.line_control & 0x80) != 0 ? static_cast<u8>(serial_.divisor) : 0;
    case com1 + 1:
      return (serial_.line_control & 0x80) != 0 ? static_cast<u8>(serial_.divisor >> 8) : serial_.interrupt_enable;
    case com1 + 2:
      return 1;  // No interrupt.
    case com1 + 3:
      return serial_.line_control;
    case com1 + 4:
      return serial_.modem_control;
    case com1 + 5:
      return 0x60;  // Ready to send, nothing received.
    case com1 + 6:
      return 0xb0;  // Carrier, ready, clear to send.
    case com1 + 7:
      return serial_.scratch;
    case fw_cfg_data:
      return item_at_ < item_length_ ? item_[item_at_++] : 0;
    case 0x20:
    case 0xa0:
      return 0;
    case 0x21:
      return pic_mask_[0];
    case 0xa1:
      return pic_mask_[1];
    case 0x42: {
      // Channel 2 counts down in guest time.
      const u64 left = pit_[2].reload - std::min<u64>(pit_ticks(), pit_[2].reload);
      pit_[2].high_next = !pit_[2].high_next;
      return static_cast<u8>(pit_[2].high_next ? left : left >> 8);
    }
    case 0x61: {
      const bool done = (port61_ & 1) != 0 && pit_ticks() >= (pit_[2].reload == 0 ? 0x10000u : pit_[2].reload);
      return static_cast<u8>((port61_ & 0xf) | (done ? 0x20 : 0));
    }
    default:
      return 0xff;
  }
}

void Devices::out_byte(u16 port, u8 value) {
  switch (port) {
    case com1 + 0:
      if ((serial_.line_control & 0x80) != 0) {
        serial_.divisor = static_cast<u16>((serial_.divisor & 0xff00) | value);
      } else if (output_) {
        output_(static_cast<char>(value));
      }
      break;
    case com1 + 1:
      if ((serial_.line_control & 0x80) != 0) {
        serial_.divisor = static_cast<u16>((serial_.divisor & 0xff) | (value << 8));
      } else {
        serial_.interrupt_enable = value & 0xf;
      }
      break;
    case com1 + 3:
      serial_.line_control = value;
      break;
    case com1 + 4:
      serial_.modem_control = value & 0x1f;
      break;
    case com1 + 7:
      serial_.scratch = value;
      break;
    case 0x21:
      pic_mask_[0] = value;
      break;
    case 0xa1:
      pic_mask_[1] = value;
      break;
    case 0x42: {
      Timer& timer = pit_[2];
      if (timer.high_next) {
        timer.reload = static_cast<u16>((timer.reload & 0xff) | (value << 8));
        timer.start = now_();
      } else {
        timer.reload = static_cast<u16>((timer.reload & 0xff00) | value);
      }
      timer.high_next = !timer.high_next;
      break;
    }
    case 0x43:
      if ((value >> 6) == 2) pit_[2].high_next = false;
      break;
    case 0x61:
      // The gate's rising edge starts the count.
      if ((value & 1) != 0 && (port61_ & 1) == 0) pit_[2].start = now_();
      port61_ = value;
      break;
    default:
      break;
  }
}

u32 Devices::in(u16 port, unsigned bytes) {
  u32 value = 0;
  for (unsigned n = 0; n < bytes; ++n) {
    // Wide reads of the data port take successive bytes of the item.
    const u16 at = port == fw_cfg_data ? port : static_cast<u16>(port + n);
    value |= u32{in_byte(at)} << (n * 8);
  }
  return value;
}

void Devices::out(u16 port, unsigned bytes, u32 value) {
  if (port == exit_port) {
    exit_value_ = value;
    return;
  }
  if (port == fw_cfg_selector) {
    select(static_cast<u16>(value));
    return;
  }
  for (unsigned n = 0; n < bytes; ++n) out_byte(static_cast<u16>(port + n), static_cast<u8>(value >> (n * 8)));
}

}  // namespace vpmu::soft
