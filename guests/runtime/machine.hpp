// What the guest may not expect of the machine below it, as the machine or the command line says.
#pragma once

namespace vpmu::guest {

/// QEMU's TCG, which answers any MSR it does not know with 0 in place of #GP.
[[nodiscard]] bool ignores_unknown_msrs();

}  // namespace vpmu::guest
