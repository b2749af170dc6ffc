#include "host/model/platform.hpp"

#include <cmath>

namespace vpmu::model {
namespace {

constexpr std::array<FigureKey, 18> figure_keys{{
    {"core_mhz", Unit::mhz, &Platform::core_mhz},
    {"tsc_mhz", Unit::mhz, &Platform::tsc_mhz},
    {"exit_cycles", Unit::cycles, &Platform::exit_cycles},
    {"rdmsr_cycles", Unit::cycles, &Platform::rdmsr_cycles},
    {"wrmsr_cycles", Unit::cycles, &Platform::wrmsr_cycles},
    {"rdpmc_cycles", Unit::cycles, &Platform::rdpmc_cycles},
    {"free_read_cycles", Unit::cycles, &Platform::free_read_cycles},
    {"open_ns", Unit::ns, &Platform::open_ns},
    {"close_ns", Unit::ns, &Platform::close_ns},
    {"set_period_ns", Unit::ns, &Platform::set_period_ns},
    {"live_set_period_ns", Unit::ns, &Platform::live_set_period_ns},
    {"enable_ns", Unit::ns, &Platform::enable_ns},
    {"disable_ns", Unit::ns, &Platform::disable_ns},
    {"read_ns", Unit::ns, &Platform::read_ns},
    {"live_read_ns", Unit::ns, &Platform::live_read_ns},
    {"signal_ns", Unit::ns, &Platform::signal_ns},
    {"tick_ns", Unit::ns, &Platform::tick_ns},
    {"recreate_scale", Unit::factor, &Platform::recreate_scale},
}};

Figure published(double value, double lo, double hi, std::string source) {
  return {value, lo, hi, Basis::published, std::move(source)};
}
Figure assumed(double value, double lo, double hi, std::string why) {
  return {value, lo, hi, Basis::assumed, "assumed: " + std::move(why)};
}

/// Medians on a host of our own: Linux 6.18, perf software events of a pinned thread, through system calls.
Figure our_host(double lo, double hi) {
  return {(lo + hi) / 2, lo, hi, Basis::measured, "Linux 6.18, perf software events, pinned thread, medians"};
}

/// The same figure on a machine where nobody measured it.
Figure elsewhere(const Figure& here) {
  return assumed(here.value, here.lo / 2, here.hi * 2, "another host's, half to twice its range (" + here.source + ")");
}

constexpr const char* exit_bound = "within what is published, a round trip under 1,500 cycles on recent parts";

Platform generic() {
  Platform p;
  p.name = "generic";
  p.title = "No machine in particular; host calls as measured";
  p.core_mhz = assumed(3000, 2000, 5000, "a server's clock");
  p.tsc_mhz = assumed(3000, 2000, 5000, "the core clock's rate");
  p.exit_cycles = assumed(1400, 1000, 1500, exit_bound);
  // Only their order is published: WRMSR is far dearer than RDPMC. What bounds them: to switch all PMU registers, 12 to
  // 23 WRMSR, 22 RDPMC and 2 RDMSR, is said to add about as much as the exit itself.
  constexpr const char* registers = "all PMU registers switched cost about as much as a VM exit, under 1,500 cycles";
  p.rdmsr_cycles = assumed(60, 40, 200, registers);
  p.wrmsr_cycles = assumed(100, 60, 300, registers);
  p.rdpmc_cycles = assumed(30, 20, 60, registers);
  p.free_read_cycles = published(142, 118, 149, "user-page RDPMC on Ivy Bridge, Haswell, Broadwell-EP and Skylake");
  p.open_ns = our_host(4300 + 1300, 5000 + 1750);
  p.close_ns = our_host(2300, 3400);
  p.set_period_ns = our_host(700, 880);
  p.live_set_period_ns = our_host(1100, 1600);
  p.enable_ns = our_host(1400, 1900);
  p.disable_ns = our_host(1200, 1600);
  p.read_ns = our_host(500, 500);
  p.live_read_ns = our_host(800, 900);
  p.signal_ns = {11000, 11000, 68000, Basis::measured,
                 "Linux 6.18, perf software events, overflow signal to handler, medians"};
  p.tick_ns = assumed(2000, 1000, 5000,
                      "a timer interrupt, its accounting and the EOI; no figure without PMU work is published");
  p.recreate_scale = {1, 1, 1, Basis::assumed, "none: not calibrated"};
  return p;
}

/// A named machine: the generic one with its own clocks (MHz), and nothing measured on it yet.
Platform machine(std::string name, std::string title, Vendor vendor, double base, double turbo,
                 const std::string& clock_source) {
  Platform p = generic();
  p.name = std::move(name);
  p.title = std::move(title);
  p.vendor = vendor;
  p.core_mhz = published(base, base, turbo, clock_source + ": base to maximum turbo");
  p.tsc_mhz = published(base, base, base, clock_source + ": the TSC runs at the base clock");
  for (Figure Platform::* figure : {&Platform::open_ns, &Platform::close_ns, &Platform::set_period_ns,
                                    &Platform::live_set_period_ns, &Platform::enable_ns, &Platform::disable_ns,
                                    &Platform::read_ns, &Platform::live_read_ns, &Platform::signal_ns}) {
    p.*figure = elsewhere(p.*figure);
  }
  p.free_read_cycles = assumed(142, 118, 149, "as on four other Intel cores");
  return p;
}

/// The same for a machine of which the publication does not name the model.
void model_unknown(Platform& p, double lowest, double highest) {
  for (Figure Platform::* clock : {&Platform::core_mhz, &Platform::tsc_mhz}) {
    p.*clock =
        assumed((p.*clock).value, lowest, highest, "model not published; a common one's clock, in its family's range");
  }
}

/// A count read by perf read() and by RDPMC, published in cycles.
void published_reads(Platform& p, double read_cycles, double rdpmc_cycles, const std::string& core) {
  p.live_read_ns =
      published(read_cycles * 1000 / p.core_mhz.value, read_cycles * 1000 / p.core_mhz.hi,
                read_cycles * 1000 / p.core_mhz.lo, "perf read() in cycles on " + core + ", at this clock");
  p.free_read_cycles = published(rdpmc_cycles, rdpmc_cycles, rdpmc_cycles, "user-page RDPMC on " + core);
}

/// CPUID exits a second with the PMU off, in the kernel before the work on cheap emulated events: the whole loop.
void published_exits(Platform& p, double exits_per_second) {
  const double us = 1e6 / exits_per_second;
  p.exit_cycles =
      published(us * p.core_mhz.value, 1000, us * p.core_mhz.hi,
                "CPUID exits a second, PMU off, kernel before (Nov 2023); below: the 1,500 cycle bound's range");
}

std::array<Platform, 8> all_platforms() {
  auto broadwell = machine("e5-2699v4", "Intel Xeon E5-2699 v4 (Broadwell-EP)", Vendor::intel, 2200, 3600, "Intel ARK");
  published_reads(broadwell, 750, 118, "Broadwell-EP");
  broadwell.exit_cycles = assumed(1500, 1000, 2500, "older than the parts of which under 1,500 is published");

  auto ice_lake = machine("ice-lake", "Intel Xeon, Ice Lake server", Vendor::intel, 2300, 3400, "Intel ARK (8380)");
  model_unknown(ice_lake, 2000, 3700);

  auto coffee_lake = machine("e-2136", "Intel Xeon E-2136 (Coffee Lake)", Vendor::intel, 3300, 4500, "Intel ARK");
  published_reads(coffee_lake, 942, 144, "Skylake, of which this is a later stepping of the core");
  published_exits(coffee_lake, 1'553'839);

  auto milan_p = machine("epyc-7443p", "AMD EPYC 7443P (Milan)", Vendor::amd, 2850, 4000, "AMD product page");
  published_exits(milan_p, 1'542'894);

  auto milan = machine("epyc-milan", "AMD EPYC, Milan", Vendor::amd, 2450, 3500, "AMD product page (7763)");
  model_unknown(milan, 2000, 4100);
  milan.exit_cycles = assumed(
      1400, 1000, 1500,
      std::string(exit_bound) + "; VMRUN to exit took 1,344 to 1,376 TSC cycles on an AMD processor (LKML, Dec 2020)");

  auto emerald =
      machine("emerald-rapids", "Intel Xeon, Emerald Rapids", Vendor::intel, 1900, 3900, "Intel ARK (8592+)");
  model_unknown(emerald, 1900, 4200);

  auto turin = machine("turin", "AMD EPYC, Turin", Vendor::amd, 2700, 4100, "AMD product page (9755)");
  model_unknown(turin, 2000, 5000);

  return {generic(),          std::move(broadwell), std::move(ice_lake), std::move(coffee_lake),
          std::move(milan_p), std::move(milan),     std::move(emerald),  std::move(turin)};
}

}  // namespace

std::span<const FigureKey> platform_figures() { return figure_keys; }

std::span<const Platform> platforms() {
  static const std::array<Platform, 8> all = all_platforms();
  return all;
}

const Platform* find_platform(std::string_view name) {
  for (const auto& platform : platforms()) {
    if (platform.name == name) return &platform;
  }
  return nullptr;
}

std::string check(const Platform& platform) {
  if (platform.name.empty()) return "a platform needs a name";
  for (const auto& [key, unit, member] : figure_keys) {
    const Figure& figure = platform.*member;
    const std::string what{key};
    if (!std::isfinite(figure.value) || !std::isfinite(figure.lo) || !std::isfinite(figure.hi)) {
      return what + " is not a number";
    }
    if (figure.source.empty()) return what + " has no source";
    if (figure.lo < 0) return what + " is negative";
    if (figure.value < figure.lo || figure.value > figure.hi) return what + " is outside of its range";
    if (unit == Unit::factor && figure.lo <= 0) return what + " must be above 0";
    // The soft machine counts in whole MHz, and its APIC timer's clock is 25 MHz.
    if (unit == Unit::mhz && (figure.lo < 100 || figure.hi > 10'000)) return what + " must be from 100 to 10,000";
    // What a model multiplies counts by: a second an operation is beyond any machine.
    if (figure.hi > 1e9) return what + " is beyond 1,000,000,000";
  }
  return {};
}

}  // namespace vpmu::model
