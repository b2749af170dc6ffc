// One line for a person about each host error and health.
#include "vpmu/health.hpp"
#include "vpmu/host_events.hpp"

namespace vpmu {

const char* describe(HostError error) {
  switch (error) {
    case HostError::no_counter:
      return "no host counter is free";
    case HostError::no_resources:
      return "the host is out of descriptors or memory";
    case HostError::not_permitted:
      return "the host's settings forbid it";
    case HostError::unsupported:
      return "the host can't count this event";
    case HostError::no_privilege_filter:
      return "the host can't tell user from kernel";
    case HostError::lost:
      return "the host took the event away";
    case HostError::unavailable:
      return "the host has no free read of this event";
    case HostError::failed:
      return "the host refused";
  }
  return "unknown error";
}

const char* describe(Health health) {
  switch (health) {
    case Health::idle:
      return "not enabled";
    case Health::counting:
      return "counting";
    case Health::clamped:
      return "counting, but with a period too short for the host: overflows come late";
    case Health::no_counter:
      return describe(HostError::no_counter);
    case Health::no_resources:
      return describe(HostError::no_resources);
    case Health::not_permitted:
      return describe(HostError::not_permitted);
    case Health::unsupported:
      return describe(HostError::unsupported);
    case Health::no_privilege_filter:
      return describe(HostError::no_privilege_filter);
    case Health::lost:
      return describe(HostError::lost);
    case Health::failed:
      return describe(HostError::failed);
  }
  return "unknown";
}

}  // namespace vpmu
