// What makes a guest's counters count: the interface between the register file and a backing.
#pragma once

#include <atomic>
#include <cstdint>

#include "vpmu/counter.hpp"
#include "vpmu/health.hpp"
#include "vpmu/policy.hpp"

namespace vpmu {

class RegisterFile;

/// Makes counters count between VM entry and VM exit. One object serves one vCPU; all calls come from its thread.
class Backing {
 public:
  /// Makes the host follow the register file for the counters of `changed`. Before a VM entry.
  virtual void enter(RegisterFile& registers, CounterSet changed) = 0;
  /// Looks at what may have overflowed, and tells the register file. After a VM exit.
  virtual void leave(RegisterFile& registers) = 0;
  /// Adds to the register file what the host has counted in these counters and not yet told.
  virtual void fold(RegisterFile& registers, CounterSet counters) = 0;
  /// Tells the register file of each overflow in these counters so far. Their counts may stay behind.
  virtual void fold_overflows(RegisterFile& registers, CounterSet counters) = 0;
  /// A PMI is about to be reported: brings other overflows to light where that costs no host call, so that they share
  /// it.
  virtual void before_pmi(RegisterFile& registers) = 0;
  /// End of a time slice of the vCPU's thread.
  virtual void sched_out(RegisterFile& registers) = 0;
  /// Forgets all that is counted and gives all host resources back.
  virtual void release() = 0;
  virtual void set_policy(const Policy& policy) = 0;
  [[nodiscard]] virtual Health health(CounterId counter) const = 0;

  /// A word that is not 0 while leave() has something to look at.
  [[nodiscard]] const std::atomic<std::uint64_t>& exit_work() const { return *exit_work_; }
  /// Whether enter() is called before each VM entry, also if nothing changed.
  [[nodiscard]] bool every_entry() const { return every_entry_; }

 protected:
  Backing(const std::atomic<std::uint64_t>& exit_work, bool every_entry)
      : exit_work_{&exit_work}, every_entry_{every_entry} {}
  ~Backing() = default;
  Backing(const Backing&) = delete;
  Backing& operator=(const Backing&) = delete;

 private:
  const std::atomic<std::uint64_t>* exit_work_;
  bool every_entry_;
};

}  // namespace vpmu
