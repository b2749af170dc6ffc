// Why an access has no answer.
#pragma once

#include <cstdint>

namespace vpmu {

enum class Fault : std::uint8_t {
  /// A guest access: inject #GP(0). A host access: the register or the value is refused.
  general_protection,
};

}  // namespace vpmu
