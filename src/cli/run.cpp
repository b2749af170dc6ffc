// vpmu run: a guest on the soft machine or on KVM.
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/command.hpp"
#include "cli/output_file.hpp"
#include "cli/run_kvm.hpp"
#include "cli/timeline_file.hpp"
#include "host/model/platform.hpp"
#include "lab/filter_file.hpp"
#include "lab/guest_report.hpp"
#include "lab/guest_run.hpp"

namespace vpmu::cli {
namespace {

// Exit statuses of vpmu run beside those of every subcommand.
constexpr auto guest_crashed = static_cast<ExitStatus>(3);
constexpr auto limit_reached = static_cast<ExitStatus>(4);
constexpr auto interrupted = static_cast<ExitStatus>(130);

constexpr std::size_t largest_file = 256U << 20;

struct Options {
  std::string image;
  Profile profile = find_profile("intel-v2")->profile;
  Policy policy;
  std::string platform = "generic";
  std::string pmu = "virtual";
  std::string backing = "emulated";
  std::string machine = "soft";
  KvmOptions kvm;
  std::optional<std::uint64_t> memory;
  std::string append;
  std::optional<std::uint64_t> max_instructions;
  std::optional<double> timeout;
  std::uint64_t skid = 0;
  std::optional<std::string> filter;
  std::optional<std::string> json;
  TimelineOptions timeline;
  std::string timeline_process;
};

std::atomic<bool> stop_requested{false};
volatile std::sig_atomic_t signalled = 0;

void on_signal(int) {
  signalled = 1;
  stop_requested.store(true, std::memory_order_relaxed);
}

std::vector<std::uint8_t> read_file(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) throw UseError{fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  if (!S_ISREG(status.st_mode)) throw UseError{fmt::format("{} is not a regular file", path)};
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > largest_file) throw UseError{fmt::format("{} is larger than {} MiB", path, largest_file >> 20)};
  std::ifstream file{path, std::ios::binary};
  std::vector<std::uint8_t> bytes(size);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) throw UseError{fmt::format("cannot read {}: {}", path, std::strerror(errno))};
  return bytes;
}

/// Until the guest ends, signals only stop it: what it did is reported.
void catch_signals() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  // A reader of the guest's output that goes away is an error of writing.
  ::signal(SIGPIPE, SIG_IGN);
}

/// Writes what the guest says at the end of each line, so that a reader sees it in time.
void write_output(char c) {
  const bool written = std::putchar(c) != EOF && (c != '\n' || std::fflush(stdout) == 0);
  if (!written) stop_requested.store(true, std::memory_order_relaxed);
}

/// Empty, or what is wrong with a time limit. (CLI11's own check takes NaN.)
std::string check_seconds(const std::string& text) {
  double seconds = 0;
  const bool good = CLI::detail::lexical_cast(text, seconds) && std::isfinite(seconds) && seconds > 0;
  return good ? "" : "a number of seconds above 0 is needed, not " + text;
}

/// Raises the stop flag when the time is over.
class Timeout {
 public:
  explicit Timeout(std::optional<double> seconds) {
    if (!seconds) return;
    thread_ = std::jthread{[this, seconds = *seconds](const std::stop_token& token) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
      while (!token.stop_requested()) {
        if (std::chrono::steady_clock::now() >= end) {
          over_ = true;
          stop_requested.store(true, std::memory_order_relaxed);
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds{5});
      }
    }};
  }
  [[nodiscard]] bool over() const { return over_; }

 private:
  std::atomic<bool> over_{false};
  std::jthread thread_;  // last: it uses the above
};

ExitStatus status_of(const lab::GuestResult& result) {
  switch (result.stopped) {
    case soft::StopReason::guest_exit:
      return result.exit_value == 0 ? ExitStatus::success : ExitStatus::failed;
    case soft::StopReason::shutdown:
    case soft::StopReason::halted:
    case soft::StopReason::stuck:
      return guest_crashed;
    case soft::StopReason::instruction_limit:
      return limit_reached;
    case soft::StopReason::stopped:
      return result.out_of_time ? limit_reached : interrupted;
  }
  return guest_crashed;
}

lab::GuestOptions::Pmu pmu_of(const Options& options) {
  using Pmu = lab::GuestOptions::Pmu;
  const bool physical = options.pmu == "physical";
  if (options.backing == "emulated") return physical ? Pmu::physical : Pmu::emulated;
  if (physical) throw UseError{"--backing mediated is for a virtual PMU: leave out --pmu physical"};
  if (const char* why = lab::why_not_mediated_run(options.profile); why != nullptr) {
    throw UseError{
        fmt::format("--backing mediated runs on hardware like the guest's profile, and {}; intel-v4, "
                    "intel-v5 and amd-v2 will do",
                    why)};
  }
  return Pmu::mediated;
}

ExitStatus status_of(KvmOutcome::Kind kind, bool timed_out) {
  switch (kind) {
    case KvmOutcome::Kind::passed:
      return ExitStatus::success;
    case KvmOutcome::Kind::failed:
      return ExitStatus::failed;
    case KvmOutcome::Kind::crashed:
      return guest_crashed;
    case KvmOutcome::Kind::stopped:
      return timed_out ? limit_reached : interrupted;
  }
  return guest_crashed;
}

std::optional<EventFilter> read_filter(const Options& options) {
  if (!options.filter) return std::nullopt;
  const auto text = read_file(*options.filter);
  const auto parsed =
      lab::parse_filter(options.profile.vendor, {reinterpret_cast<const char*>(text.data()), text.size()});
  if (!parsed) throw UseError{fmt::format("{}: {}", *options.filter, parsed.error())};
  return *parsed;
}

std::optional<OutputFile> create_json(const Options& options) {
  if (!options.json) return std::nullopt;
  auto created = OutputFile::create(*options.json);
  if (!created) throw UseError{created.error()};
  return std::move(*created);
}

void write_json(std::optional<OutputFile>& file, const std::string& json) {
  if (!file) return;
  file->write(json);
  if (const auto done = file->commit(); !done) throw UseError{done.error()};
}

ExitStatus run_kvm(const Options& options) {
  const std::optional<EventFilter> filter = read_filter(options);
  const std::vector<std::uint8_t> image = read_file(options.image);
  const std::vector<std::uint8_t> initrd =
      options.kvm.initrd.empty() ? std::vector<std::uint8_t>{} : read_file(options.kvm.initrd);
  catch_signals();
  std::optional<OutputFile> json = create_json(options);
  const Timeout timeout{options.timeout};
  const KvmOutcome outcome = run_on_kvm({.options = options.kvm,
                                         .image_name = options.image,
                                         .image = image,
                                         .initrd = initrd,
                                         .profile = options.profile,
                                         .policy = options.policy,
                                         .memory_mib = options.memory.value_or(0),
                                         .append = options.append,
                                         .filter = filter ? &*filter : nullptr,
                                         .stop = stop_requested,
                                         .output = write_output});
  fmt::print(stderr, "{}", outcome.text);
  write_json(json, outcome.json);
  return status_of(outcome.kind, timeout.over() && signalled == 0);
}

ExitStatus run_soft(const Options& options) {
  lab::GuestOptions guest;
  guest.image_name = options.image;
  guest.profile = options.profile;
  guest.policy = options.policy;
  guest.append = options.append;
  if (options.memory) guest.memory_mib = *options.memory;
  guest.skid = options.skid;
  if (options.max_instructions) guest.max_instructions = *options.max_instructions;
  guest.pmu = pmu_of(options);
  if (guest.pmu == lab::GuestOptions::Pmu::physical && !options.timeline.path.empty()) {
    throw UseError{"--timeline shows a virtual PMU: leave out --pmu physical"};
  }
  const model::Platform* platform = model::find_platform(options.platform);
  if (platform == nullptr) throw UseError{fmt::format("unknown platform {}; vpmu info lists them", options.platform)};
  guest.platform = *platform;
  const std::optional<EventFilter> filter = read_filter(options);
  if (filter) guest.filter = &*filter;
  const std::vector<std::uint8_t> image = read_file(options.image);
  catch_signals();
  std::optional<OutputFile> json = create_json(options);
  const std::unique_ptr<TimelineFile> timeline = TimelineFile::create(options.timeline);
  if (timeline != nullptr) {
    guest.timeline = &timeline->timeline();
    guest.timeline_process = options.timeline_process;
  }
  guest.output = write_output;
  guest.stop = &stop_requested;

  lab::GuestRun machine{guest};
  if (const std::string error = machine.load(image); !error.empty()) {
    throw UseError{fmt::format("{}: {}", options.image, error)};
  }
  const Timeout timeout{options.timeout};
  const auto began = std::chrono::steady_clock::now();
  lab::GuestResult result = machine.run();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw UseError{fmt::format("cannot write to standard output: {}", std::strerror(errno))};
  }
  result.out_of_time = timeout.over() && signalled == 0;
  const lab::WallFigures wall{.seconds = took.count()};
  fmt::print(stderr, "{}", lab::guest_text(guest, result, wall));
  write_json(json, lab::guest_json(guest, result, wall));
  if (timeline != nullptr) timeline->commit();
  return status_of(result);
}

/// Options that the other machine alone has.
void refuse_others_options(const CLI::App& command, const std::string& machine) {
  constexpr std::array soft_only{"--platform", "--pmu", "--backing", "--max-instructions", "--skid", "--timeline"};
  constexpr std::array kvm_only{"--host",  "--accept-missing-events", "--no-patch-rdpmc", "--verbose", "--cpus",
                                "--initrd"};
  const bool on_kvm = machine == "kvm";
  const auto refuse = [&](const char* name) {
    if (command.count(name) != 0) {
      throw UseError{fmt::format("{} is for --machine {}: leave it out", name, on_kvm ? "soft" : "kvm")};
    }
  };
  if (on_kvm) std::ranges::for_each(soft_only, refuse);
  if (!on_kvm) std::ranges::for_each(kvm_only, refuse);
}

std::string timeline_process(const CLI::App& command, const Options& options) {
  const auto given = [&command](const char* name, const char* otherwise) {
    return command.count(name) != 0 ? command[name]->as<std::string>() : otherwise;
  };
  return fmt::format("{}: {}, {}, {}", std::filesystem::path{options.image}.filename().string(),
                     given("--profile", "intel-v2"), given("--policy", "best"), options.backing);
}

}  // namespace

void add_run(CLI::App& app, ExitStatus& status) {
  CLI::App* command = app.add_subcommand("run", "Run a bare-metal multiboot image, or on KVM a Linux kernel");
  command->footer(
      "The guest's serial output goes to standard output, a table about the run to standard error.\n"
      "Exit status: 0 the guest wrote 0 to port 0xF4, 1 any other value, 2 bad usage or image,\n"
      "3 the guest crashed or halted for ever, 4 a limit was reached, 130 interrupted.");
  auto options = std::make_shared<Options>();
  command->add_option("image", options->image, "Multiboot image, ELF32 or ELF64; on KVM also bzImage or vmlinux")
      ->required();
  command->add_option("--machine", options->machine, "soft: an interpreter, exact; kvm: Linux KVM")
      ->check(CLI::IsMember({"soft", "kvm"}))
      ->capture_default_str();
  add_profile_option(*command, options->profile);
  add_policy_option(*command, options->policy);
  command->add_option("--platform", options->platform, "Whose costs are modelled; vpmu info lists them")
      ->capture_default_str();
  command->add_option("--pmu", options->pmu, "virtual, or physical: the guest is the hypervisor")
      ->check(CLI::IsMember({"virtual", "physical"}))
      ->capture_default_str();
  command
      ->add_option("--backing", options->backing,
                   "What makes a virtual PMU's counters count: emulated, on events of the modelled host, or mediated, "
                   "on the modelled hardware's own counters while the guest runs")
      ->check(CLI::IsMember({"emulated", "mediated"}))
      ->capture_default_str();
  command->add_option("--memory", options->memory, "Guest memory, MiB, up to 3072; without it 64, for Linux 256")
      ->check(CLI::Range(soft::Memory::min_mib, soft::Memory::max_mib));
  command->add_option("--append", options->append, "The guest's command line");
  command->add_option("--max-instructions", options->max_instructions, "Stop after that many instructions")
      ->check(CLI::Range(std::uint64_t{1}, ~std::uint64_t{0} >> 1));
  command->add_option("--timeout", options->timeout, "Stop after that many seconds")->check(check_seconds);
  command->add_option("--skid", options->skid, "Instructions from an overflow to its PMI")
      ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{1000000}))
      ->capture_default_str();
  command->add_option("--event-filter", options->filter, "JSON file with the events that the guest may count");
  command->add_option("--json", options->json, "Also write the figures to this file");
  add_timeline_options(*command, options->timeline);
  add_kvm_options(*command, options->kvm);
  command->callback([command, options, &status] {
    refuse_others_options(*command, options->machine);
    options->timeline_process = timeline_process(*command, *options);
    status = options->machine == "kvm" ? run_kvm(*options) : run_soft(*options);
  });
}

}  // namespace vpmu::cli
