// vpmu run --machine kvm: its options, and the run itself.
#pragma once

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "vpmu/event_filter.hpp"
#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::cli {

/// Options that the kvm machine alone has.
struct KvmOptions {
  std::string host = "auto";
  bool no_patch_rdpmc = false;
  bool accept_missing_events = false;
  bool verbose = false;
  std::string initrd;
  std::uint32_t cpus = 1;
};
void add_kvm_options(CLI::App& command, KvmOptions& options);

/// What a run on the kvm machine needs, all of which outlives it.
struct KvmRun {
  const KvmOptions& options;
  std::string image_name;
  const std::vector<std::uint8_t>& image;
  const std::vector<std::uint8_t>& initrd;
  const Profile& profile;
  const Policy& policy;
  std::uint64_t memory_mib;  // 0: as much as the image usually needs
  std::string append;
  const EventFilter* filter;
  const std::atomic<bool>& stop;
  void (*output)(char c);  // what the guest writes to its serial line
};

struct KvmOutcome {
  enum class Kind : std::uint8_t { passed, failed, crashed, stopped };
  Kind kind = Kind::stopped;
  std::string text;  // for a person
  std::string json;  // for a program
};

/// The guest's serial line is standard output and, for a Linux guest, standard input. Throws UseError.
KvmOutcome run_on_kvm(const KvmRun& run);

}  // namespace vpmu::cli
