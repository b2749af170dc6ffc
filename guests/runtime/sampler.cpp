#include "runtime/sampler.hpp"

#include "runtime/local_apic.hpp"
#include "runtime/processor.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::guest {
namespace {

constinit Sampler the_sampler{};

void handle_pmi(InterruptFrame& frame) { the_sampler.handle(frame); }

}  // namespace

HandlerWay usual_way() { return pmu().has_global() ? HandlerWay::global : HandlerWay::legacy; }

bool allows(HandlerWay way) {
  switch (way) {
    case HandlerWay::global:
      return pmu().has_global();
    case HandlerWay::streamlined:
      return pmu().is_intel() && pmu().profile().version >= 4;
    case HandlerWay::legacy:
      return !pmu().has_global();
  }
  return false;
}

const char* name_of(HandlerWay way) {
  switch (way) {
    case HandlerWay::global:
      return "global";
    case HandlerWay::streamlined:
      return "streamlined";
    case HandlerWay::legacy:
      return "legacy";
  }
  return "?";
}

const char* name_of(Delivery delivery) { return delivery == Delivery::nmi ? "nmi" : "vector"; }

void Sampler::add(CounterId counter, Setup setup, std::uint64_t period) {
  setup.interrupt = Interrupt::on;
  pmu().program(counter, setup);
  pmu().arm(counter, period);
  counters_ |= counter.mask();
  sampled_[counter.slot()] = {.period = period, .samples = 0};
}

void Sampler::open(HandlerWay way, Delivery delivery, SampleHook hook) {
  way_ = way;
  delivery_ = delivery;
  hook_ = hook;
  if (pmu().has_global()) pmu().acknowledge(pmu().status_bits());
  if (way == HandlerWay::streamlined) write_msr(Msr::ia32_debugctl, debugctl::freeze_perfmon_on_pmi);
  route_pmis(delivery, handle_pmi);
}

void Sampler::close() {
  mask_pmis();
  if (way_ == HandlerWay::streamlined) write_msr(Msr::ia32_debugctl, 0);
  for_each_counter(counters_, [](CounterId counter) { pmu().clear(counter); });
}

void Sampler::forget() {
  counters_ = others_ = 0;
  pmis_ = spurious_ = 0;
  running_ = true;
  durations_.clear();
  lateness_.clear();
}

void Sampler::start() {
  running_ = true;
  pmu().start(all());
}

void Sampler::stop() {
  running_ = false;
  pmu().stop(all());
}

void Sampler::drain() {
  const std::uint64_t status = pmu().overflowed(counters_);
  pmu().acknowledge(status);
  take_samples(status, {});
}

std::uint64_t Sampler::events(CounterId counter) const {
  const SampledCounter& state = sampled_[counter.slot()];
  const std::uint64_t since = (pmu().read(counter) + state.period) & pmu().mask(counter);
  return state.samples * state.period + since;
}

void Sampler::handle(InterruptFrame& frame) {
  const std::uint64_t start = read_tsc();
  ++pmis_;
  switch (way_) {
    case HandlerWay::global:
      handle_global(frame);
      break;
    case HandlerWay::streamlined:
      handle_streamlined(frame);
      break;
    case HandlerWay::legacy:
      handle_legacy(frame);
      break;
  }
  if (delivery_ == Delivery::vector) end_of_interrupt();
  durations_.add(read_tsc() - start);
}

std::uint64_t Sampler::take_samples(std::uint64_t status, const InterruptFrame& frame) {
  std::uint64_t taken = 0;
  for_each_counter(status & counters_, [&](CounterId counter) {
    SampledCounter& state = sampled_[counter.slot()];
    // What was counted since the overflow belongs to the next period.
    const std::uint64_t since = read_pmc(pmu().rdpmc_index(counter));
    pmu().write(counter, since - state.period);
    lateness_.add(since);
    ++state.samples;
    ++taken;
    if (hook_ != nullptr) hook_(*this, counter, frame);
  });
  return taken;
}

void Sampler::handle_global(const InterruptFrame& frame) {
  write_msr(pmu().global_ctrl(), 0);
  std::uint64_t taken = 0;
  std::uint64_t status = read_msr(pmu().global_status());
  while (status != 0) {
    pmu().acknowledge(status);
    taken += take_samples(status, frame);
    status = read_msr(pmu().global_status());
  }
  if (taken == 0) ++spurious_;
  if (running_) write_msr(pmu().global_ctrl(), all());
  // AMD does not mask LVTPC, and its kernels' PerfMonV2 handler leaves it alone.
  if (pmu().is_intel()) write_apic(ApicRegister::lvt_performance, lvtpc_value(delivery_));
}

void Sampler::handle_streamlined(const InterruptFrame& frame) {
  const std::uint64_t status = read_msr(pmu().global_status());
  if (take_samples(status, frame) == 0) ++spurious_;
  write_apic(ApicRegister::lvt_performance, lvtpc_value(delivery_));
  pmu().acknowledge(status);
}

void Sampler::handle_legacy(const InterruptFrame& frame) {
  write_apic(ApicRegister::lvt_performance, lvtpc_value(delivery_));
  pmu().stop(all());
  if (take_samples(pmu().overflowed(counters_), frame) == 0) ++spurious_;
  if (running_) pmu().start(all());
}

Sampler& sampler() { return the_sampler; }

}  // namespace vpmu::guest
