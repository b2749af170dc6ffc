// What a guest's PMU asked of the modelled host.
#pragma once

#include <cstdint>

#include "host/model/hardware_port.hpp"
#include "vpmu/host/host_calls.hpp"

namespace vpmu::lab {

/// Accesses to the hardware's PMU registers in mediated mode.
struct HardwareUse {
  model::AccessCounts by_switch;  // the hypervisor's, between VM exits and VM entries
  model::AccessCounts by_guest;   // the guest's own, without a VM exit
  model::SwitchCounts others;

  HardwareUse& operator+=(const HardwareUse& more) {
    by_switch += more.by_switch;
    by_guest += more.by_guest;
    others += more.others;
    return *this;
  }
};

struct HostUse {
  HostCallCounts calls;       // emulated
  HardwareUse hardware;       // mediated
  std::uint64_t cost_ps = 0;  // modelled: the calls with the register accesses behind them; those of the switch

  HostUse& operator+=(const HostUse& more) {
    calls += more.calls;
    hardware += more.hardware;
    cost_ps += more.cost_ps;
    return *this;
  }
};

}  // namespace vpmu::lab
