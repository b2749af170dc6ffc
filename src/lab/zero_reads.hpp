// Counters that a guest switched on and read 0 in: why they stood still.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {

/// "gp 0", "fixed 2".
std::string counter_name(CounterId counter);

class ZeroReads {
 public:
  /// After VirtualPmu::enter().
  void entered(const VirtualPmu& pmu) {
    if (pmu.registers().revision() != revision_) look(pmu);
  }
  /// The guest read a counter, by RDMSR or RDPMC. Other registers do not matter.
  void read_msr(Msr msr, std::uint64_t value);
  void read_pmc(const Profile& profile, std::uint32_t ecx, std::uint64_t value);

  /// Counter and reason of those whose last read was 0 and that never counted before it.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> list() const;

 private:
  struct Counter {
    std::uint64_t control = 0;   // its own, as last seen
    bool counted = false;        // since it has this control
    const char* why = nullptr;   // it is on, and has not counted
    const char* read = nullptr;  // `why`, when 0 was read
  };

  void look(const VirtualPmu& pmu);
  void read(CounterId id, std::uint64_t value);

  std::uint32_t revision_ = ~0U;
  std::array<Counter, max_counters> counters_{};
};

}  // namespace vpmu::lab
