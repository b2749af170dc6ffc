// Random accesses, and the checks of each answer.
#pragma once

#include <array>
#include <cstdint>

#include "runtime/random.hpp"
#include "runtime/register_rules.hpp"
#include "vpmu/counter.hpp"
#include "vpmu/msr.hpp"

namespace vpmu::guest {

class Traffic {
 public:
  explicit Traffic(std::uint64_t seed);

  void run(std::uint64_t operations);
  /// Sets everything to 0 and checks that it is.
  void end();

  struct Tally {
    std::uint64_t reads = 0;
    std::uint64_t writes = 0;
    std::uint64_t pmc_reads = 0;
    std::uint64_t faults = 0;
  };
  [[nodiscard]] const Tally& tally() const { return tally_; }
  [[nodiscard]] std::uint64_t pmis() const;

 private:
  Msr pick_msr();
  std::uint64_t pick_value(Msr msr, const RegisterRule& rule);
  std::uint64_t pick_selector(const RegisterRule& rule);
  void read(Msr msr);
  void write(Msr msr);
  void read_pmc();
  void route();
  void execute();
  /// Where the last value of a control is remembered; -1 for other registers.
  [[nodiscard]] static std::int32_t control_number(Msr msr);

  static constexpr std::size_t most_registers = 160;
  Random random_;
  Tally tally_;
  std::array<Msr, most_registers> all_{};  // of both vendors
  std::size_t all_count_ = 0;
  std::array<Msr, most_registers> own_{};  // present here
  std::size_t own_count_ = 0;
  std::array<std::uint64_t, max_gp_counters + 1> controls_{};
};

}  // namespace vpmu::guest
