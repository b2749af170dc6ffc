// What a guest looked like when it could not go on.
#pragma once

#include <string>
#include <vector>

#include "machine/soft/machine.hpp"

namespace vpmu::lab {

/// Short name of an exit, as tables show it.
const char* exit_name(soft::ExitReason reason);

/// The last exception, the registers and the last exits, a line each.
std::vector<std::string> post_mortem(soft::Machine& machine);

}  // namespace vpmu::lab
