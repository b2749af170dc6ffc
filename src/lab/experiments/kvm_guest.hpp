// The experiments' guests on Linux KVM: measured, where there is one.
#pragma once

#include <atomic>
#include <cstdint>
#include <expected>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lab/experiments/experiment.hpp"
#include "machine/kvm/guest_host.hpp"

namespace vpmu::lab {

struct KvmGuest {
  std::string image;  // of guest_image()
  std::string append;
  Policy policy;
};

struct KvmFigures {
  std::vector<FigureLine> lines;
  kvm::HostKind host = kvm::HostKind::clock;
  std::uint64_t system_calls = 0;  // of the host events, in the whole run

  /// The guest's TSC ticks, which are this machine's, to ns.
  [[nodiscard]] static double ns(double ticks);
};

/// Runs one, with perf hardware events below its PMU if this system has them, else with the clock. Or why there are no
/// figures, in one line. Throws Interrupted.
std::expected<KvmFigures, std::string> run_on_kvm(const KvmGuest& guest, const std::atomic<bool>& stop);

/// `sampling` with a counter of cycles, a PMI each 20 ms: longer than most disturbances.
KvmGuest kvm_sampling(const char* policy, std::uint64_t samples);
/// Its PMI handler's median, ns.
double kvm_handler_ns(const KvmFigures& figures);

/// `exits` by OUT, which the VMM completes and counts. `pmu`: off, idle or counting.
KvmGuest kvm_exits(const char* policy, const char* pmu);
/// One of its exits, ns.
double kvm_exit_ns(const KvmFigures& figures);

/// What to measure, under this name.
struct KvmReading {
  std::string name;
  KvmGuest guest;
  double (*ns)(const KvmFigures&);  // throws LabError if the guest did not print it

  /// Or why there is none, in one line.
  [[nodiscard]] std::expected<double, std::string> of(const KvmFigures& figures) const;
};
/// Puts medians of runs in turns, or why none of them gave a figure.
void measure_on_kvm(Measurements& out, std::span<const KvmReading> readings, const std::atomic<bool>& stop);

}  // namespace vpmu::lab
