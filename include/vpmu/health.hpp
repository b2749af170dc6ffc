// Whether the host really counts what a guest's counter should count.
#pragma once

#include <cstdint>

namespace vpmu {

/// State of a counter on the host. A counter that the host does not count says so here; it never silently reads 0.
enum class Health : std::uint8_t {
  idle,                 // the guest has it off, or it needs no host event
  counting,             // the host counts it
  clamped,              // the host counts it, but an overflow that is due soon comes late
  no_counter,           // no host counter is free
  no_resources,         // out of descriptors or memory
  not_permitted,        // the host's settings forbid it
  unsupported,          // the host can't count this event
  no_privilege_filter,  // the host can't tell user from kernel
  lost,                 // the host took its event away
  failed,               // the host refused for another reason
};

/// One line for a person, without a full stop.
const char* describe(Health health);

}  // namespace vpmu
