// What a kernel's PMI handler does: takes a sample of each counter that overflowed, and reloads it.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/distribution.hpp"
#include "runtime/pmi.hpp"
#include "runtime/pmu.hpp"

namespace vpmu::guest {

/// How a handler stops the counters, finds which overflowed, and starts them again.
enum class HandlerWay : std::uint8_t {
  global,       // Intel v2 and v3, AMD PerfMonV2: global control 0, status, acknowledge, reload, control back
  streamlined,  // Intel v4 with freezing: status, reload, acknowledge; the control is not written
  legacy,       // no global registers: all selectors off, the sign bits, reload, all selectors on
};

/// The way of kernels on this PMU, and all that it allows.
HandlerWay usual_way();
bool allows(HandlerWay way);
const char* name_of(HandlerWay way);
const char* name_of(Delivery delivery);

/// One counter that is sampled.
struct SampledCounter {
  std::uint64_t period = 0;
  std::uint64_t samples = 0;
};

class Sampler;
/// Called for each sample, in the handler.
using SampleHook = void (*)(Sampler& sampler, CounterId counter, const InterruptFrame& frame);

class Sampler {
 public:
  /// Sets a counter up to interrupt every `period` events. The counter is not started.
  void add(CounterId counter, Setup setup, std::uint64_t period);
  /// Takes PMIs from now on.
  void open(HandlerWay way, Delivery delivery, SampleHook hook = nullptr);
  /// Takes none any more, and turns the counters' controls off. Counters have to be stopped.
  void close();
  /// Everything, or only which counters there are.
  void forget();
  void forget_counters() { counters_ = others_ = 0; }
  /// For who stops and starts counters while PMIs can come: a handler leaves stopped counters stopped.
  void start();
  void stop();
  /// Takes the samples of stopped counters whose interrupt is still to come, or was dropped: LVTPC is masked for a
  /// moment after a handler started the counters again.
  void drain();

  [[nodiscard]] CounterSet counters() const { return counters_; }
  /// Further counters that the handler stops and starts with its own.
  void accompany(CounterSet others) { others_ = others; }
  [[nodiscard]] const SampledCounter& sampled(CounterId counter) const { return sampled_[counter.slot()]; }
  /// Events since add(), from the samples and the stopped counter's value.
  [[nodiscard]] std::uint64_t events(CounterId counter) const;
  [[nodiscard]] std::uint64_t pmis() const { return pmis_; }
  /// PMIs that found no overflow.
  [[nodiscard]] std::uint64_t spurious() const { return spurious_; }
  /// How long the handler took, by the TSC.
  [[nodiscard]] const Distribution& durations() const { return durations_; }
  /// Events that were counted from each overflow to the handler's look at the counter.
  [[nodiscard]] const Distribution& lateness() const { return lateness_; }

  void handle(InterruptFrame& frame);

 private:
  [[nodiscard]] CounterSet all() const { return counters_ | others_; }
  std::uint64_t take_samples(std::uint64_t status, const InterruptFrame& frame);
  void handle_global(const InterruptFrame& frame);
  void handle_streamlined(const InterruptFrame& frame);
  void handle_legacy(const InterruptFrame& frame);

  CounterSet counters_ = 0;
  CounterSet others_ = 0;
  HandlerWay way_ = HandlerWay::legacy;
  Delivery delivery_ = Delivery::nmi;
  SampleHook hook_ = nullptr;
  volatile bool running_ = true;
  std::uint64_t pmis_ = 0;
  std::uint64_t spurious_ = 0;
  std::array<SampledCounter, max_counters> sampled_{};
  Distribution durations_;
  Distribution lateness_;
};

/// The only one: handlers have no argument to find another by.
Sampler& sampler();

}  // namespace vpmu::guest
