// The modelled host's events, with a record of each call.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "host/model/perf.hpp"

namespace vpmu::lab {

struct HostCall {
  const char* name;  // as reports name it
  std::optional<CounterId> counter;
  std::uint64_t cost_ps;      // modelled
  std::uint64_t signals = 0;  // that it found due
  /// What it was given or gave, and what that is: "period", "count".
  const char* value_name = nullptr;
  std::uint64_t value = 0;
  std::optional<HostError> error;
};

class HostCallLog {
 public:
  virtual void host_call(const HostCall& call) = 0;

 protected:
  HostCallLog() = default;
  ~HostCallLog() = default;
  HostCallLog(const HostCallLog&) = default;
  HostCallLog& operator=(const HostCallLog&) = default;
};

/// Forwards to the model, which it shares with whoever lets time pass there.
class RecordedEvents final : public HostEvents {
 public:
  /// Both outlive it.
  RecordedEvents(model::PerfModel& perf, HostCallLog& log) : perf_{perf}, log_{log} {}

  Result<HostEvent, HostError> open(const HostEventSpec& spec, std::uint64_t period) override;
  void close(HostEvent event) override;
  Status<HostError> set_period(HostEvent event, std::uint64_t period) override;
  Status<HostError> enable(HostEvent event) override;
  Status<HostError> disable(HostEvent event) override;
  Result<std::uint64_t, HostError> read(HostEvent event) override;
  Result<std::uint64_t, HostError> peek(HostEvent event) override;

  /// Takes the hints that the model gave while time passed, and records the signals behind them.
  void time_passed();

 private:
  template <class Call>
  auto recorded(HostCall record, Call call);
  void log(HostCall record);
  [[nodiscard]] std::optional<CounterId> counter_of(HostEvent event) const;

  model::PerfModel& perf_;
  HostCallLog& log_;
  std::uint64_t cost_ps_ = 0;  // of all that is recorded
  std::uint64_t signals_ = 0;
  std::unordered_map<HostEvent, CounterId> counters_;
};

}  // namespace vpmu::lab
