// The PMU as CPUID states it, and a driver for its four styles.
#pragma once

#include <array>
#include <cstdint>

#include "arch/events.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/msr.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::guest {

using arch::EventKind;

enum class Rings : std::uint8_t { kernel, user, both };
enum class Interrupt : std::uint8_t { off, on };

struct Setup {
  EventKind event = EventKind::instructions;
  Rings rings = Rings::both;
  Interrupt interrupt = Interrupt::off;
};

/// One WRMSR, as measure() takes it.
struct MsrWrite {
  std::uint32_t msr = 0;
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  std::uint32_t unused = 0;
};

/// The WRMSRs that start or stop counters.
class WriteList {
 public:
  void add(Msr msr, std::uint64_t value) {
    writes_[size_++] = {index_of(msr), static_cast<std::uint32_t>(value), static_cast<std::uint32_t>(value >> 32), 0};
  }
  [[nodiscard]] const MsrWrite* data() const { return writes_.data(); }
  [[nodiscard]] std::uint32_t size() const { return size_; }
  void apply() const;

 private:
  std::array<MsrWrite, max_gp_counters> writes_{};
  std::uint32_t size_ = 0;
};

const char* name_of(EventKind event);

class Pmu {
 public:
  /// Finds out what there is. AMD's K7 counters have no CPUID bit: one is written and read back for that, as kernels
  /// do.
  Pmu();

  [[nodiscard]] const Profile& profile() const { return profile_; }
  [[nodiscard]] bool present() const { return profile_.present(); }
  [[nodiscard]] bool is_intel() const { return profile_.is_intel(); }
  /// One register starts and stops all counters: Intel from v2, AMD's PerfMonV2.
  [[nodiscard]] bool has_global() const { return profile_.has_global_ctrl(); }
  [[nodiscard]] CounterSet counters() const { return profile_.counters(); }
  [[nodiscard]] CounterSet gp_counters() const { return first_gp(profile_.gp_counters); }
  /// Counters that can count the event: general-purpose ones, and the fixed one that is made for it.
  [[nodiscard]] CounterSet counters_of(EventKind event) const;
  [[nodiscard]] bool can_count(CounterId counter, EventKind event) const;
  /// Whether the vendor has the event, and neither CPUID nor the option `missing=NAME,...` says that it is unavailable
  /// (AMD's CPUID cannot say so).
  [[nodiscard]] bool offers(EventKind event) const;

  [[nodiscard]] Msr selector(CounterId counter) const;
  [[nodiscard]] Msr value(CounterId counter) const;
  [[nodiscard]] Msr global_ctrl() const;
  [[nodiscard]] Msr global_status() const;
  [[nodiscard]] Msr global_clear() const;
  [[nodiscard]] std::uint32_t rdpmc_index(CounterId counter) const;
  /// The largest value of a counter.
  [[nodiscard]] std::uint64_t mask(CounterId counter) const;
  /// What a general-purpose counter's selector holds for this, enable bit included.
  [[nodiscard]] std::uint64_t selector_value(const Setup& setup) const;

  /// Sets a counter up, without starting it.
  void program(CounterId counter, const Setup& setup);
  /// Turns a counter's own control off.
  void clear(CounterId counter);
  [[nodiscard]] WriteList start_list(CounterSet counters) const;
  [[nodiscard]] WriteList stop_list(CounterSet counters) const;
  void start(CounterSet counters) const { start_list(counters).apply(); }
  void stop(CounterSet counters) const { stop_list(counters).apply(); }

  [[nodiscard]] std::uint64_t read(CounterId counter) const;
  /// Values above the low 31 bits need IA32_A_PMCn or a sign that extends.
  void write(CounterId counter, std::uint64_t value) const;
  /// The counter then overflows at the events-th event.
  void arm(CounterId counter, std::uint64_t events) const { write(counter, 0 - events); }

  /// Which counters overflowed. Without global registers: those of `counters` whose sign bit is clear, which is right
  /// for counters that were armed for fewer events than half their range.
  [[nodiscard]] std::uint64_t overflowed(CounterSet counters) const;
  void acknowledge(std::uint64_t status) const;

  /// The status bits that an acknowledgement may name.
  [[nodiscard]] std::uint64_t status_bits() const;

  /// All counters, selectors, controls and status to 0.
  void reset();

 private:
  Profile profile_;
  std::array<std::uint64_t, max_gp_counters> selectors_{};
  std::uint64_t fixed_ctrl_ = 0;
};

/// The only one of this processor.
Pmu& pmu();

/// One line: what CPUID states.
void print_pmu();

}  // namespace vpmu::guest
