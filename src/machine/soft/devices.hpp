// Ports: a serial line, fw_cfg, the exit port, interrupt controllers that never interrupt, a timer to calibrate by.
#pragma once

#include <array>
#include <functional>
#include <optional>

#include "machine/soft/types.hpp"

namespace vpmu::soft {

class Devices {
 public:
  using Output = std::function<void(char)>;

  /// `now` gives the TSC, which runs at `tsc_hz`.
  Devices(Output output, u64 memory_bytes, u64 tsc_hz, std::function<u64()> now);

  u32 in(u16 port, unsigned bytes);
  void out(u16 port, unsigned bytes, u32 value);
  /// What the guest wrote to port 0xF4.
  [[nodiscard]] std::optional<u32> exit_value() const { return exit_value_; }

 private:
  u8 in_byte(u16 port);
  void out_byte(u16 port, u8 value);
  void select(u16 key);
  [[nodiscard]] u64 pit_ticks() const;

  Output output_;
  u64 memory_bytes_;
  u64 tsc_hz_;
  std::function<u64()> now_;
  std::optional<u32> exit_value_;

  struct Serial {
    u8 interrupt_enable = 0, line_control = 0, modem_control = 0, scratch = 0;
    u16 divisor = 1;
  } serial_;
  std::array<u8, 8> item_{};  ///< Of fw_cfg: what is selected.
  u64 item_length_ = 0;
  u64 item_at_ = 0;
  std::array<u8, 2> pic_mask_{0xff, 0xff};
  struct Timer {
    u16 reload = 0;
    bool high_next = false;  ///< The next byte is the high one.
    u64 start = 0;
  };
  std::array<Timer, 3> pit_{};
  u8 port61_ = 0;
};

}  // namespace vpmu::soft
