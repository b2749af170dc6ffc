// S3: what the mediated mode's switch of the PMU adds to a VM exit.
#include <fmt/format.h>

#include <array>
#include <memory>

#include "host/model/cost.hpp"
#include "host/model/hardware_port.hpp"
#include "host/model/memory_hardware.hpp"
#include "lab/experiments/costs.hpp"
#include "lab/experiments/experiment.hpp"
#include "lab/experiments/measure.hpp"
#include "lab/experiments/published.hpp"
#include "vpmu/event_select.hpp"
#include "vpmu/mediated_backing.hpp"
#include "vpmu/virtual_pmu.hpp"

namespace vpmu::lab {
namespace {

constexpr std::array policies{"before-s3", "before-s3,switch=elide", "best", "best,switch=ownership"};

/// How the guest uses its PMU.
enum class Use : std::uint8_t { off, unused, one, all };
constexpr std::array<const char*, 4> use_names{"off", "unused", "1 counts cycles", "all count"};
constexpr std::array uses{Use::off, Use::unused, Use::one, Use::all};
const char* name_of(Use use) { return use_names[static_cast<std::size_t>(use)]; }

Profile profile_of(Vendor vendor, Use use) {
  const bool intel = vendor == Vendor::intel;
  if (use == Use::off) return find_profile(intel ? "intel-none" : "amd-none")->profile;
  return find_profile(intel ? "intel-v5" : "amd-v2")->profile;
}
Profile host_of(Vendor vendor) { return model::svm_host(profile_of(vendor, Use::unused)); }

/// Counters count cycles, from values that are not 0.
void start(VirtualPmu& pmu, Use use) {
  if (use == Use::off || use == Use::unused) return;
  const Profile& profile = pmu.profile();
  const bool intel = profile.is_intel();
  constexpr std::uint64_t flags = evtsel::user | evtsel::kernel | evtsel::enable | evtsel::interrupt;
  const std::uint64_t select = (intel ? 0x3C : 0x76) | flags;
  const std::uint32_t counters = use == Use::one ? 1 : profile.gp_counters;
  for (std::uint32_t n = 0; n < counters; ++n) {
    static_cast<void>(pmu.write_msr(intel ? ia32_perfevtsel[n] : amd_core_perf_ctl[n], select));
    static_cast<void>(pmu.write_msr(intel ? ia32_a_pmc[n] : amd_core_perf_ctr[n], 0x1000 + n));
  }
  if (use == Use::all && intel) {
    static_cast<void>(pmu.write_msr(Msr::ia32_fixed_ctr_ctrl, 0x333));
    for (std::uint32_t n = 0; n < 3; ++n) static_cast<void>(pmu.write_msr(ia32_fixed_ctr[n], 0x2000 + n));
  }
  static_cast<void>(
      pmu.write_msr(intel ? Msr::ia32_perf_global_ctrl : Msr::amd_perf_cntr_global_ctl, profile.counters()));
}

/// Register accesses of one CPUID exit with the entry after it.
struct ExitAccesses {
  double rdmsr = 0;
  double wrmsr = 0;
  double rdpmc = 0;
  double lvtpc = 0;

  [[nodiscard]] double cycles(const model::Platform& platform, double model::Figure::* bound) const {
    // An access to LVTPC is taken for a WRMSR, as in x2APIC mode.
    return platform.exit_cycles.*bound + rdmsr * platform.rdmsr_cycles.*bound +
           (wrmsr + lvtpc) * platform.wrmsr_cycles.*bound + rdpmc * platform.rdpmc_cycles.*bound;
  }
};

ExitAccesses accesses_of(Vendor vendor, const Policy& policy, Use use) {
  constexpr int exits = 100;
  model::HardwareCpu cpu{host_of(vendor)};
  model::HardwarePort port{cpu};
  MediatedBacking<model::HardwarePort> backing{port, host_of(vendor)};
  VirtualPmu pmu{profile_of(vendor, use), backing, policy};
  start(pmu, use);
  static_cast<void>(pmu.enter());
  port.vm_entry();
  const model::AccessCounts before = cpu.pmu().accesses();
  const std::uint64_t lvtpc_before = port.counts().lvtpc_writes;
  for (int i = 0; i < exits; ++i) {
    port.vm_exit();
    pmu.leave();
    pmu.retire(EmulatedEvent::instruction, [] { return 0; });
    static_cast<void>(pmu.enter());
    port.vm_entry();
  }
  const model::AccessCounts now = cpu.pmu().accesses();
  const auto each = [](std::uint64_t from, std::uint64_t to) { return static_cast<double>(to - from) / exits; };
  return {.rdmsr = each(before.rdmsr, now.rdmsr),
          .wrmsr = each(before.wrmsr, now.wrmsr),
          .rdpmc = each(before.rdpmc, now.rdpmc),
          .lvtpc = each(lvtpc_before, port.counts().lvtpc_writes)};
}

/// The switch on registers that are memory: our own code alone.
class OwnCode {
 public:
  OwnCode(const char* policy, Use use)
      : backing_{hardware_, host_of(Vendor::intel)}, pmu_{profile_of(Vendor::intel, use), backing_, policy_of(policy)} {
    start(pmu_, use);
    static_cast<void>(pmu_.enter());
  }
  void exits(std::uint64_t times) {
    for (std::uint64_t i = 0; i < times; ++i) {
      pmu_.leave();
      static_cast<void>(pmu_.enter());
      // The registers are read and written each time.
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
  }

 private:
  model::MemoryHardware hardware_;
  MediatedBacking<model::MemoryHardware> backing_;
  VirtualPmu pmu_;
};

/// The same exits by a guest on the soft machine, in core cycles.
GuestJob exits_job(const model::Platform& platform, const char* policy, Use use) {
  const char* pmu = use == Use::off || use == Use::unused ? "off" : "idle";
  return {.image = "exits",
          .append = fmt::format("kind=cpuid ring=kernel count=2000 pmu={} counters={}", pmu,
                                use == Use::all ? max_gp_counters : 1),
          .profile = profile_of(platform.vendor, use),
          .policy = policy_of(policy),
          .platform = platform,
          .pmu = use == Use::off ? GuestOptions::Pmu::emulated : GuestOptions::Pmu::mediated};
}
double exit_cycles(const GuestFigures& figures, const model::Platform& platform) {
  const FigureLine& line = figures.line("exits");
  return line.number("elapsed") / line.number("count") * platform.core_mhz.value / platform.tsc_mhz.value;
}

// --- Against emulated mode ---

struct Mode {
  const char* name;
  const char* policy;
  GuestOptions::Pmu pmu;
};
constexpr std::array modes_compared{
    Mode{"emulated: best", "best", GuestOptions::Pmu::emulated},
    Mode{"emulated: best,events=keep", "best,events=keep", GuestOptions::Pmu::emulated},
    Mode{"mediated: best", "best", GuestOptions::Pmu::mediated},
    Mode{"mediated: switch=ownership", "best,switch=ownership", GuestOptions::Pmu::mediated},
};

/// What a guest that samples pays for each PMI, and for each exit between PMIs, in each mode.
Chart break_even(const Bench& bench, const model::Platform& platform) {
  constexpr double period = 100'000;  // cycles
  const auto sampling = [&](const Mode& mode) {
    return GuestJob{.image = "sampling",
                    .append = fmt::format("only=configured event=cycles way=global period={:.0f} samples=100", period),
                    .profile = profile_of(platform.vendor, Use::one),
                    .policy = policy_of(mode.policy),
                    .platform = platform,
                    .pmu = mode.pmu};
  };
  const auto exits = [&](const Mode& mode) {
    GuestJob job = exits_job(platform, mode.policy, Use::one);
    job.pmu = mode.pmu;
    return job;
  };
  const std::vector<GuestFigures> sampled = bench.pool.run(jobs_for(modes_compared, sampling));
  const std::vector<GuestFigures> other = bench.pool.run(jobs_for(modes_compared, exits));
  Chart chart{.key = "break-even-" + platform.name,
              .title = "One PMI and the exits before the next: which mode is ahead, " + platform.title,
              .shape = Chart::Shape::lines,
              .scale = Chart::Scale::logarithmic,
              .x_title = "other exits for each PMI",
              .y_title = "core cycles",
              .labels = {},
              .series = {}};
  constexpr std::array counts{0, 1, 3, 10, 30, 100, 300, 1000};
  for (const int count : counts) chart.labels.push_back(fmt::format("{}", count));
  for (std::size_t m = 0; m < modes_compared.size(); ++m) {
    const FigureLine& line = sampled[m].line("sampling");
    // What does not go to the events themselves goes to the PMI.
    const double a_pmi =
        line.number("elapsed") * platform.core_mhz.value / platform.tsc_mhz.value / line.number("samples") -
        line.number("events") / line.number("samples");
    const double an_exit = exit_cycles(other[m], platform);
    chart.series.push_back({.name = modes_compared[m].name, .values = {}});
    for (const int count : counts) chart.series.back().values.emplace_back(a_pmi + count * an_exit);
  }
  return chart;
}

std::string measured_name(const char* policy, Use use) { return fmt::format("{}/{}", policy, name_of(use)); }

}  // namespace

void measure_switch(Measurements& out, const std::atomic<bool>& stop) {
  std::vector<Way> ways;
  for (const char* policy : policies) {
    for (const Use use : uses) {
      auto guest = std::make_shared<OwnCode>(policy, use);
      constexpr std::uint64_t times = 20'000;
      ways.push_back(
          {.name = measured_name(policy, use), .work = [guest](std::uint64_t n) { guest->exits(n); }, .times = times});
    }
  }
  measure_ways(out, ways, stop);
}

std::vector<SweepGuest> switch_guests(const LabOptions& options) {
  const model::Platform platform = options.platform_or(published::switch_cycles.front().platform);
  const auto cycles = [platform](const GuestFigures& figures) { return exit_cycles(figures, platform); };
  std::vector<SweepGuest> guests;
  for (const auto& [name, use] : {std::pair{"unused", Use::unused}, {"one", Use::one}, {"all", Use::all}}) {
    guests.push_back({.name = name, .job = exits_job(platform, "best", use), .figures = {{"exit_cycles", cycles}}});
  }
  return guests;
}

Section run_switch(const Bench& bench) {
  Section section{.key = "switch"};
  section.summary =
      "The mediated mode on modelled hardware: register accesses of a CPUID exit with the entry after it, at the "
      "platform's prices.";
  Table table{.key = "exit",
              .title = "A CPUID exit in mediated mode, core cycles",
              .columns = {{"platform", "platform"},
                          {"pmu", "guest's PMU"},
                          {"policy", "policy"},
                          {"rdmsr", "RDMSR", Origin::modelled, 0},
                          {"wrmsr", "WRMSR", Origin::modelled, 0},
                          {"rdpmc", "RDPMC", Origin::modelled, 0},
                          {"lvtpc", "LVTPC", Origin::modelled, 0},
                          {"cycles", "cycles", Origin::modelled},
                          {"range", "range", Origin::modelled},
                          {"guest", "guest's", Origin::modelled},
                          {"gain", "gain", Origin::modelled, 2, "x"},
                          {"own_ns", "own code, ns", Origin::measured, 1},
                          {"published", "cycles", Origin::published},
                          {"published_gain", "gain", Origin::published, 2, "x"},
                          {"error", "error", Origin::modelled, 0, " %"}},
              .rows = {}};
  std::vector<Chart> even;
  std::array<double, policies.size()> unused{};  // cycles, on the first platform
  for (const published::SwitchCycles& told : published::switch_cycles) {
    const model::Platform platform = bench.platform(told.platform);
    std::vector<GuestJob> jobs;
    for (const Use use : uses) {
      const auto more = jobs_for(policies, [&](const char* policy) { return exits_job(platform, policy, use); });
      jobs.insert(jobs.end(), more.begin(), more.end());
    }
    const std::vector<GuestFigures> figures = bench.pool.run(jobs);
    auto guest = figures.begin();
    even.push_back(break_even(bench, platform));
    Chart chart{.key = "exit-" + platform.name,
                .title = "A CPUID exit in mediated mode, " + platform.title,
                .shape = Chart::Shape::bars,
                .x_title = "the guest's PMU",
                .y_title = "core cycles",
                .labels = {use_names.begin(), use_names.end()},
                .series = {}};
    for (const char* policy : policies) {
      // Best is the switch alone here, and would hide it.
      if (policy != std::string_view{"best"}) chart.series.push_back({.name = policy, .values = {}});
    }
    chart.series.push_back({.name = "published before", .origin = Origin::published, .values = {}});
    chart.series.push_back({.name = "published after", .origin = Origin::published, .values = {}});
    for (const Use use : uses) {
      double before = 0;
      std::size_t series = 0;
      std::size_t policy_number = 0;
      for (const char* policy : policies) {
        const ExitAccesses accesses = accesses_of(platform.vendor, policy_of(policy), use);
        const double cycles = accesses.cycles(platform, &model::Figure::value);
        if (policy == policies.front()) before = cycles;
        if (use == Use::unused && section.charts.empty()) unused[policy_number++] = cycles;
        const bool is_before = policy == policies.front();
        const bool is_after = policy == policies[1];
        Cell published;
        if (use == Use::unused && is_before) published = told.before;
        if (use == Use::unused && is_after) published = told.after;
        table.rows.push_back({platform.name, name_of(use), policy, accesses.rdmsr, accesses.wrmsr, accesses.rdpmc,
                              accesses.lvtpc, cycles,
                              with_commas(accesses.cycles(platform, &model::Figure::lo), 0) + " to " +
                                  with_commas(accesses.cycles(platform, &model::Figure::hi), 0),
                              exit_cycles(*guest++, platform), times_less(before, cycles),
                              bench.measured.get(measured_name(policy, use)), published,
                              times_less(told.before, published), percent_off(cycles, published)});
        if (policy != std::string_view{"best"}) chart.series[series++].values.emplace_back(cycles);
      }
      chart.series[series++].values.push_back(use == Use::unused ? Cell{told.before} : Cell{});
      chart.series[series].values.push_back(use == Use::unused ? Cell{told.after} : Cell{});
    }
    section.charts.push_back(std::move(chart));
    if (bench.options.platform) break;
  }
  section.tables.push_back(std::move(table));
  section.charts.insert(section.charts.end(), even.begin(), even.end());
  section.headline = {.what = "A CPUID exit in mediated mode, PMU unused",
                      .unit = "cycles",
                      .modelled = {unused[0], unused[2]},
                      .measured = {bench.measured.get(measured_name("before-s3", Use::unused)),
                                   bench.measured.get(measured_name("best", Use::unused))},
                      .published = {published::switch_cycles[0].before, published::switch_cycles[0].after}};
  section.notes.emplace_back(
      "Guest's: the time that guest 'exits' sees on the soft machine, with the CPUID itself; 'all' there is the "
      "general-purpose counters. Break-even: elapsed time of guest 'sampling' for each PMI, less the events' own, and "
      "of 'exits' for each exit, with one counter of cycles running.");
  section.notes.emplace_back(
      "Error: the model has the exit and the PMU's registers at assumed prices (WRMSR 60 to 300 cycles, RDPMC 20 to "
      "60), and no other work of KVM's on the way; a published total minus ours is that, or dearer registers. The "
      "saving is WRMSR less RDPMC for each equal counter, which is under-determined by those two.");
  section.notes.emplace_back(
      "Measured: the switch with memory in place of registers, 8 + 3 counters; RDMSR and WRMSR need ring 0.");
  return section;
}

}  // namespace vpmu::lab
