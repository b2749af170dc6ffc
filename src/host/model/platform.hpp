// Platforms: what the hardware and the host of a machine cost.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "vpmu/profile.hpp"

namespace vpmu::model {

/// How a number is known.
enum class Basis : std::uint8_t {
  published,  // by others, about this platform
  measured,   // by us, on a host that `source` names
  assumed,    // neither: somewhere in the range
};

/// One number with the range in which the truth may lie, and where it comes from.
struct Figure {
  double value = 0;
  double lo = 0;
  double hi = 0;
  Basis basis = Basis::assumed;
  std::string source;
};

/// A machine. Plain data: every figure stands in platform_figures() under its key.
struct Platform {
  std::string name;   // key on the command line
  std::string title;  // for a person
  Vendor vendor = Vendor::intel;

  // Clocks, MHz. Cycles below are those of the core clock; published cycles were read from the TSC, so the core clock
  // is taken at the TSC's rate, and its range reaches to the highest turbo.
  Figure core_mhz;
  Figure tsc_mhz;

  // Hardware, core cycles.
  Figure exit_cycles;  // VM exit and the entry after it, with a hypervisor's shortest way between
  Figure rdmsr_cycles;
  Figure wrmsr_cycles;
  Figure rdpmc_cycles;
  Figure free_read_cycles;  // a count read by RDPMC and the user page, all in all

  // Calls to the host's perf, ns each, without the register accesses behind them.
  Figure open_ns;  // the overflow signal's set-up included
  Figure close_ns;
  Figure set_period_ns;  // of an event that is off
  Figure live_set_period_ns;
  Figure enable_ns;
  Figure disable_ns;
  Figure read_ns;  // of an event that is off
  Figure live_read_ns;
  Figure signal_ns;  // from the overflow to the handler

  Figure tick_ns;  // a guest's timer interrupt handler, without any PMU work

  /// The one factor that a user may calibrate, on 'before' figures alone: on open_ns and close_ns.
  Figure recreate_scale;
};

enum class Unit : std::uint8_t { mhz, cycles, ns, factor };

struct FigureKey {
  std::string_view key;
  Unit unit;
  Figure Platform::* member;
};

/// The figures of a Platform, in order.
std::span<const FigureKey> platform_figures();

/// All platforms; the first is `generic`, the default.
std::span<const Platform> platforms();

/// The platform of that name, or a null pointer.
const Platform* find_platform(std::string_view name);

/// What is wrong with a platform, in one line without a full stop; empty if nothing is: every figure has a source, is
/// finite and not negative, clocks from 100 MHz to 10 GHz, the factor above 0, and stands within its range.
std::string check(const Platform& platform);

}  // namespace vpmu::model
