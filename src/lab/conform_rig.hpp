// What stands behind the virtual PMU while a scenario is replayed.
#pragma once

#include <cstdint>
#include <string>

#include "lab/conform_host.hpp"
#include "lab/conform_scenario.hpp"
#include "vpmu/backing.hpp"
#include "vpmu/emulated_backing.hpp"

namespace vpmu::lab {

class ConformRig {
 public:
  virtual ~ConformRig() = default;
  ConformRig(const ConformRig&) = delete;
  ConformRig& operator=(const ConformRig&) = delete;

  [[nodiscard]] virtual Backing& backing() = 0;
  /// Between VM entry and VM exit, this happens in the guest.
  virtual void run(const Batch& batch) = 0;
  virtual void fail_opens(std::uint64_t opens) = 0;
  /// hw_preset, hw_trace, hw_view. Says in one line how the hardware differs from what is recorded; empty: it doesn't.
  virtual std::string hardware(const Operation& operation, const Scenario& scenario) = 0;

 protected:
  ConformRig() = default;
};

/// Emulated mode: host events. The hardware is never touched.
class EmulatedRig final : public ConformRig {
 public:
  Backing& backing() override { return backing_; }
  void run(const Batch& batch) override { host_.run(batch); }
  void fail_opens(std::uint64_t opens) override { host_.fail_opens(opens); }
  std::string hardware(const Operation& operation, const Scenario& scenario) override {
    const bool untouched = operation.verb != Verb::hw_trace || scenario.traces[operation.index].empty();
    return untouched ? "" : "no access";
  }

 private:
  VectorHost host_;
  EmulatedBacking backing_{host_};
};

}  // namespace vpmu::lab
