#include "lab/experiments/measure_platform.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/experiments/guest_pool.hpp"
#include "lab/experiments/real_guest.hpp"

namespace vpmu::lab {
namespace {

using model::Basis;
using model::Figure;
using model::Platform;

constexpr int times = 2000;
constexpr int signal_times = 30;
constexpr std::uint64_t far = std::uint64_t{1} << 40;
constexpr const char* source = "this machine, perf software events of a thread; median, 10th and 90th percentile";

double ns_of(std::uint64_t ticks) { return static_cast<double>(ticks) * 1e9 / static_cast<double>(tsc_hz()); }

Figure figure_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const auto at = [&](std::size_t percent) { return std::round(samples[samples.size() * percent / 100]); };
  return {.value = at(50), .lo = at(10), .hi = at(90), .basis = Basis::measured, .source = source};
}

class Calls {
 public:
  explicit Calls(const std::atomic<bool>& stop) : stop_{stop} {}

  template <class Prepare, class Call>
  Figure time(Prepare&& prepare, Call&& call) {
    std::vector<double> samples;
    samples.reserve(times);
    for (int i = 0; i < times; ++i) {
      if (stop_.load(std::memory_order_relaxed)) throw Interrupted{};
      prepare();
      const std::uint64_t start = __rdtsc();
      call();
      samples.push_back(ns_of(__rdtsc() - start));
    }
    return figure_of(std::move(samples));
  }

  [[nodiscard]] std::string why_not() {
    const auto opened = host_.open(spec, far);
    if (!opened.ok()) return describe(opened.error());
    event_ = *opened;
    return {};
  }

  void measure(Platform& platform) {
    const auto nothing = [] {};
    const auto enable = [this] { static_cast<void>(host_.enable(event_)); };
    const auto disable = [this] { static_cast<void>(host_.disable(event_)); };
    const auto open = [this] { event_ = host_.open(spec, far).value_or(HostEvent::none); };
    const auto close = [this] { host_.close(event_); };
    const auto set_period = [this] { static_cast<void>(host_.set_period(event_, far)); };
    const auto read = [this] { static_cast<void>(host_.read(event_)); };
    platform.open_ns = time(close, open);
    platform.close_ns = time(open, close);
    open();
    platform.set_period_ns = time(nothing, set_period);
    platform.read_ns = time(nothing, read);
    platform.enable_ns = time(disable, enable);
    platform.disable_ns = time(enable, disable);
    enable();
    platform.live_set_period_ns = time(nothing, set_period);
    platform.live_read_ns = time(nothing, read);
    disable();
    platform.signal_ns = time_signal();
    close();
  }

 private:
  /// From when a period of the software clock is over to the handler; by that clock, the thread's own time, so that
  /// others that run meanwhile do not count.
  Figure time_signal() {
    constexpr std::uint64_t period_ns = 2'000'000;
    constexpr double patience_ns = 1e9;
    const auto now = [] { return linux_clock_system().thread_cpu_ns(); };
    std::vector<double> samples;
    for (int i = 0; i < signal_times; ++i) {
      if (stop_.load(std::memory_order_relaxed)) throw Interrupted{};
      static_cast<void>(host_.set_period(event_, period_ns));
      static_cast<void>(host_.take_hints());
      static_cast<void>(host_.enable(event_));
      const std::uint64_t due = now() + period_ns;
      const std::uint64_t start = __rdtsc();
      while (host_.hints().load(std::memory_order_relaxed) == 0 && ns_of(__rdtsc() - start) < patience_ns) _mm_pause();
      const std::uint64_t end = now();
      samples.push_back(end < due ? 0 : static_cast<double>(end - due));
      static_cast<void>(host_.disable(event_));
    }
    return figure_of(std::move(samples));
  }

  static constexpr HostEventSpec spec{
      .select = 0x3C, .vendor = Vendor::intel, .user = true, .kernel = true, .counter = CounterId::gp(0)};
  const std::atomic<bool>& stop_;
  LinuxPerf host_{{.source = LinuxPerf::Source::task_clock}};
  HostEvent event_ = HostEvent::none;
};

}  // namespace

MeasuredPlatform measure_platform(const std::atomic<bool>& stop) {
  MeasuredPlatform result{.platform = model::platforms().front(), .not_measured = {}};
  Platform& platform = result.platform;
  platform.name = "this-machine";
  platform.title = "The machine that vpmu lab measure ran on";
  platform.vendor = __builtin_cpu_is("amd") != 0 ? Vendor::amd : Vendor::intel;
  constexpr double hz_a_mhz = 1e6;
  const double mhz = std::round(static_cast<double>(tsc_hz()) / hz_a_mhz);
  platform.tsc_mhz = {
      .value = mhz, .lo = mhz, .hi = mhz, .basis = Basis::measured, .source = "this machine's time-stamp counter"};
  platform.core_mhz = {.value = mhz,
                       .lo = mhz / 2,
                       .hi = mhz * 2,
                       .basis = Basis::assumed,
                       .source = "assumed: the TSC's rate; turbo is not seen"};
  Calls calls{stop};
  result.not_measured = calls.why_not();
  if (result.not_measured.empty()) calls.measure(platform);
  return result;
}

}  // namespace vpmu::lab
