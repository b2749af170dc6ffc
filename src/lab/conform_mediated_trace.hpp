// Hardware accesses of mediated mode, against the recorded ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "host/model/hardware_port.hpp"
#include "lab/conform_scenario.hpp"

namespace vpmu::lab {

std::string describe(const model::HardwareAccess& access);

/// Compares the accesses of one scenario, piece by piece. Two rules turn what is recorded into what is ours; anything
/// else is a difference:
/// - Intel: the VM entry's field is written when an entry needs it, not at each guest write. It holds the same value at
///   each entry.
/// - AMD: bits of the status that are surplus are cleared and missing ones are set, as on Intel, and nothing is written
///   where nothing differs. Recorded: all are cleared, and the register that sets is always written. And where
///   GLOBAL_CTL passes through, put reads it first: the guest may have written it.
class TraceComparison {
 public:
  explicit TraceComparison(bool intel) : intel_{intel} {}

  /// The first difference in one line, or nothing.
  std::string compare(const HardwareTrace& recorded, const HardwareTrace& ours, bool global_passes_through);

 private:
  /// The values that the entry field has at the switches of a trace; nothing: not known yet.
  using Fields = std::vector<std::optional<std::uint64_t>>;

  static HardwareTrace without_fields(const HardwareTrace& trace, model::HardwareAccess::Kind end,
                                      std::optional<std::uint64_t>& field, Fields& fields);
  [[nodiscard]] static HardwareTrace amd_as_ours(const HardwareTrace& recorded, bool global_passes_through);

  bool intel_;
  std::optional<std::uint64_t> recorded_field_;
  std::optional<std::uint64_t> our_field_;
};

}  // namespace vpmu::lab
