#include "lab/recorded_events.hpp"

namespace vpmu::lab {

void RecordedEvents::log(HostCall record) {
  record.cost_ps = perf_.cost_picoseconds() - cost_ps_;
  record.signals = perf_.calls().signals - signals_;
  cost_ps_ += record.cost_ps;
  signals_ += record.signals;
  hint(perf_.take_hints());
  log_.host_call(record);
}

template <class Call>
auto RecordedEvents::recorded(HostCall record, Call call) {
  time_passed();
  const auto result = call();
  if (!result.ok()) record.error = result.error();
  log(record);
  return result;
}

void RecordedEvents::time_passed() {
  if (perf_.cost_picoseconds() != cost_ps_ || perf_.calls().signals != signals_) {
    log({.name = "signal", .counter = std::nullopt, .cost_ps = 0, .error = std::nullopt});
  }
}

std::optional<CounterId> RecordedEvents::counter_of(HostEvent event) const {
  const auto found = counters_.find(event);
  return found != counters_.end() ? std::optional{found->second} : std::nullopt;
}

Result<HostEvent, HostError> RecordedEvents::open(const HostEventSpec& spec, std::uint64_t period) {
  const auto event = recorded({.name = "open",
                               .counter = spec.counter,
                               .cost_ps = 0,
                               .value_name = "period",
                               .value = period,
                               .error = std::nullopt},
                              [&] { return perf_.open(spec, period); });
  if (event.ok()) counters_.insert_or_assign(*event, spec.counter);
  return event;
}

void RecordedEvents::close(HostEvent event) {
  time_passed();
  perf_.close(event);
  log({.name = "close", .counter = counter_of(event), .cost_ps = 0, .error = std::nullopt});
  counters_.erase(event);
}

Status<HostError> RecordedEvents::set_period(HostEvent event, std::uint64_t period) {
  return recorded({.name = "set period",
                   .counter = counter_of(event),
                   .cost_ps = 0,
                   .value_name = "period",
                   .value = period,
                   .error = std::nullopt},
                  [&] { return perf_.set_period(event, period); });
}

Status<HostError> RecordedEvents::enable(HostEvent event) {
  return recorded({.name = "enable", .counter = counter_of(event), .cost_ps = 0, .error = std::nullopt},
                  [&] { return perf_.enable(event); });
}

Status<HostError> RecordedEvents::disable(HostEvent event) {
  return recorded({.name = "disable", .counter = counter_of(event), .cost_ps = 0, .error = std::nullopt},
                  [&] { return perf_.disable(event); });
}

Result<std::uint64_t, HostError> RecordedEvents::read(HostEvent event) {
  return recorded({.name = "read", .counter = counter_of(event), .cost_ps = 0, .error = std::nullopt},
                  [&] { return perf_.read(event); });
}

Result<std::uint64_t, HostError> RecordedEvents::peek(HostEvent event) {
  time_passed();
  const auto count = perf_.peek(event);
  // An answer that there is none is no work.
  if (count.ok()) log({.name = "free read", .counter = counter_of(event), .cost_ps = 0, .error = std::nullopt});
  return count;
}

}  // namespace vpmu::lab
