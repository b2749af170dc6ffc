// How a Linux guest lowers its maximum sampling rate when its PMI handler takes long.
#pragma once

#include <cstdint>

namespace vpmu::lab {

/// Linux's rule. The running mean of the handler's time (128 samples, from 0) may be a quarter of the period at the
/// maximum rate; where it is more, a quarter of a tick is shared out among samples of 1.25 times the mean, at least one
/// a tick.
class SamplingThrottle {
 public:
  explicit SamplingThrottle(std::uint64_t tick_hz = 250, std::uint64_t max_rate = 100'000)
      : tick_hz_{tick_hz}, rate_{max_rate} {
    allowed_ns_ = nanoseconds / rate_ / share;
  }

  void sample(std::uint64_t handler_ns) {
    sum_ -= sum_ / samples;
    sum_ += handler_ns;
    const std::uint64_t mean = sum_ / samples;
    if (mean <= allowed_ns_) return;
    const std::uint64_t with_reserve = mean + mean / 4;
    const std::uint64_t a_tick = nanoseconds / tick_hz_ / share / with_reserve;
    allowed_ns_ = with_reserve;
    rate_ = (a_tick == 0 ? 1 : a_tick) * tick_hz_;
  }

  /// Samples a second that the guest allows now.
  [[nodiscard]] std::uint64_t max_rate() const { return rate_; }

 private:
  static constexpr std::uint64_t nanoseconds = 1'000'000'000;
  static constexpr std::uint64_t samples = 128;
  static constexpr std::uint64_t share = 4;  // a quarter

  std::uint64_t tick_hz_;
  std::uint64_t rate_;
  std::uint64_t allowed_ns_;
  std::uint64_t sum_ = 0;
};

/// The maximum rate after so many PMIs of one handler time.
inline std::uint64_t rate_after(std::uint64_t pmis, std::uint64_t handler_ns) {
  SamplingThrottle throttle;
  for (std::uint64_t i = 0; i < pmis; ++i) throttle.sample(handler_ns);
  return throttle.max_rate();
}

}  // namespace vpmu::lab
