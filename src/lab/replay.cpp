#include "lab/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "arch/registers.hpp"
#include "host/model/cost.hpp"
#include "lab/pmu_timeline.hpp"
#include "lab/replay_exit.hpp"
#include "lab/replay_lane.hpp"
#include "lab/replay_work.hpp"
#include "lab/timeline.hpp"
#include "lab/trace_event.hpp"
#include "lab/trace_line.hpp"
#include "lab/trace_profile.hpp"
#include "vpmu/mediated_backing.hpp"

namespace vpmu::lab {
namespace {

/// The synthetic MSRs of Hyper-V, whose indices are those of RDPMC's fixed counters.
constexpr std::uint32_t hyperv_first = 0x40000000;
constexpr std::uint32_t hyperv_last = 0x400001FF;

/// An exit of the trace as a timeline shows it.
struct ShownExit {
  std::size_t reason;  // its place in ReplayResult::exits
  std::uint64_t ns;
  Timeline::Args args;
};

struct Vcpu {
  std::uint32_t number = 0;  // in the order of appearance
  std::vector<std::unique_ptr<ReplayLane>> lanes;
  bool running = false;
  bool exited = false;  // `exit` is that of the last kvm_exit
  bool kernel_seen = false;
  std::uint64_t entered_ns = 0;
  std::uint64_t guest_ns = 0;
  std::uint64_t slice_ns = 0;  // when its time slice began
  std::uint32_t cpu = TraceLine::no_cpu;
  ExitProgress exit;
  std::optional<ShownExit> shown;  // with a timeline
};

std::string excerpt(std::string_view text) {
  constexpr std::size_t limit = 60;
  std::string shown;
  for (const char c : text.substr(0, limit)) shown += c < ' ' || c > '~' ? '?' : c;
  if (text.size() > limit) shown += "...";
  return shown;
}

ReplayLane::Cause exit_cause(std::string_view reason, ExitKind kind) {
  if (kind == ExitKind::rdpmc) return ReplayLane::Cause::rdpmc;
  return is_msr_exit(reason) ? ReplayLane::Cause::msr : ReplayLane::Cause::other;
}

}  // namespace

class Replay::Engine {
 public:
  explicit Engine(ReplayOptions options)
      : options_{std::move(options)},
        work_{options_.mhz.value_or(options_.platform.core_mhz.value),
              options_.mhz.value_or(options_.platform.tsc_mhz.value), options_.ipc},
        profile_{options_.profile.value_or(find_profile("intel-v2")->profile)} {
    result_.platform = options_.platform;
    result_.backing = options_.backing;
    result_.core_mhz = options_.mhz.value_or(options_.platform.core_mhz.value);
    result_.ipc = options_.ipc;
    if (options_.profile) result_.profile_from = ReplayResult::ProfileFrom::option;
    if (options_.timeline == nullptr) return;
    options_.timeline->note("time", "of the trace; the host's work is modelled");
    options_.timeline->note("platform", options_.platform.name);
    recorded_ = options_.timeline->add_process("recorded");
    for (const ReplayPolicy& policy : options_.policies) {
      processes_.push_back(options_.timeline->add_process(policy.name));
    }
  }

  std::expected<void, std::string> take(std::string_view text);
  void finish();
  [[nodiscard]] ReplayResult result() const;

 private:
  using Taken = std::expected<void, std::string>;

  Taken take_event(const TraceLine& line);
  Taken entry(const TraceLine& line);
  Taken exit(const TraceLine& line);
  Taken msr(const TraceLine& line);
  Taken access(Vcpu& vcpu, const KvmMsr& msr);
  void cpuid(const KvmCpuid& cpuid);
  void set_profile(const Profile& profile, ReplayResult::ProfileFrom from);
  void add_lanes(Vcpu& vcpu) const;
  [[nodiscard]] std::unique_ptr<PmuTimeline> timeline_of(const Vcpu& vcpu, std::size_t policy) const;
  /// The exit of this line's vCPU, if a timeline shows it.
  ShownExit* shown_exit(const TraceLine& line);
  /// It ended.
  void show_exit(Vcpu& vcpu);
  static void sched_out(Vcpu& vcpu, std::uint64_t now);
  static void leave(Vcpu& vcpu, ReplayLane::Cause cause);
  Vcpu* find(const TraceLine& line, std::optional<std::uint32_t> vcpu, bool create);
  static std::unexpected<std::string> bad_fields(const TraceLine& line) {
    return std::unexpected{fmt::format("fields of {} not understood: {}", line.event, excerpt(line.fields))};
  }
  static std::unexpected<std::string> too_many_vcpus() {
    return std::unexpected{fmt::format("more than {} vCPUs", max_vcpus)};
  }

  ReplayOptions options_;
  GuestWork work_;
  Profile profile_;
  TraceProfile seen_;
  bool pmu_used_ = false;           // the profile stays from now on
  std::uint64_t exits_before_ = 0;  // PMU accesses before the profile was known; none of those passes through
  bool hyperv_ = false;
  std::optional<TraceTime::Unit> unit_;
  std::optional<std::uint64_t> first_ns_;
  std::uint64_t now_ns_ = 0;
  std::vector<std::unique_ptr<Vcpu>> vcpus_;
  std::unordered_map<std::uint64_t, Vcpu*> by_key_;
  std::uint64_t last_key_ = ~std::uint64_t{0};
  Vcpu* last_vcpu_ = nullptr;
  std::vector<std::uint32_t> vcpu_on_cpu_;
  std::vector<ExitKind> exit_kinds_;  // by the reason's place in result_.exits
  RegisterUses registers_;
  Timeline::Process recorded_{};
  std::vector<Timeline::Process> processes_;  // by policy
  ReplayResult result_;
};

std::expected<void, std::string> Replay::Engine::take(std::string_view text) {
  ++result_.lines;
  const TraceLine line = parse_trace_line(text);
  switch (line.kind) {
    case TraceLine::Kind::skipped:
      return {};
    case TraceLine::Kind::lost:
      ++result_.lost_notes;
      result_.lost_events += line.lost;
      return {};
    case TraceLine::Kind::malformed:
      return std::unexpected{fmt::format("{}: {}", line.why, excerpt(text))};
    case TraceLine::Kind::event:
      break;
  }
  if (unit_ && *unit_ != line.time.unit) return std::unexpected{std::string{"timestamps of another clock than above"}};
  unit_ = line.time.unit;
  now_ns_ = line.time.unit == TraceTime::Unit::ns ? line.time.value : work_.ticks_to_ns(line.time.value);
  if (!first_ns_) first_ns_ = now_ns_;
  if (now_ns_ > *first_ns_) result_.span_ns = std::max(result_.span_ns, now_ns_ - *first_ns_);
  return take_event(line);
}

Replay::Engine::Taken Replay::Engine::take_event(const TraceLine& line) {
  result_.events.add(line.event);
  switch (trace_event_id(line.event)) {
    case TraceEventId::kvm_entry:
      return entry(line);
    case TraceEventId::kvm_exit:
      return exit(line);
    case TraceEventId::kvm_msr:
      return msr(line);
    case TraceEventId::kvm_pio: {
      const auto pio = parse_kvm_pio(line.fields);
      if (!pio) return bad_fields(line);
      if (ShownExit* const shown = shown_exit(line)) shown->args["port"] = hex(pio->port);
      return {};
    }
    case TraceEventId::kvm_cpuid: {
      const auto answer = parse_kvm_cpuid(line.fields);
      if (!answer) return bad_fields(line);
      if (ShownExit* const shown = shown_exit(line)) shown->args["leaf"] = hex(answer->leaf);
      cpuid(*answer);
      return {};
    }
    case TraceEventId::kvm_emulate_insn: {
      const auto insn = parse_kvm_emulate_insn(line.fields);
      if (!insn) return bad_fields(line);
      if (Vcpu* const vcpu = find(line, std::nullopt, false); vcpu != nullptr && vcpu->exited) {
        // A failure is told by a second event for the same instruction.
        if (!insn->failed) {
          ++vcpu->exit.emulated;
        } else if (vcpu->exit.emulated != 0) {
          --vcpu->exit.emulated;
        }
      }
      return {};
    }
    case TraceEventId::other:
      if (line.event == "sched_switch") {
        if (Vcpu* const vcpu = find(line, std::nullopt, false); vcpu != nullptr) sched_out(*vcpu, now_ns_);
      }
      return {};
  }
  return {};
}

Vcpu* Replay::Engine::find(const TraceLine& line, std::optional<std::uint32_t> vcpu, bool create) {
  // A vCPU is known by its thread: vCPU numbers are those of a VM, of which a trace can hold several. Lines without a
  // thread leave its number, or the CPU that it was last seen on.
  constexpr std::size_t max_cpus = 8192;
  std::uint64_t key = line.thread;
  if (line.thread == TraceLine::no_thread) {
    constexpr std::uint64_t by_number = std::uint64_t{1} << 32;
    const bool has_cpu = line.cpu < max_cpus;
    if (has_cpu && vcpu_on_cpu_.size() <= line.cpu) vcpu_on_cpu_.resize(line.cpu + 1, 0);
    if (vcpu) {
      if (has_cpu) vcpu_on_cpu_[line.cpu] = *vcpu;
      key = by_number + *vcpu;
    } else {
      key = by_number + (has_cpu ? vcpu_on_cpu_[line.cpu] : 0);
    }
  }
  if (key == last_key_) return last_vcpu_;
  const auto known = by_key_.find(key);
  Vcpu* found = known != by_key_.end() ? known->second : nullptr;
  if (found == nullptr) {
    if (!create || vcpus_.size() == max_vcpus) return nullptr;
    auto made = std::make_unique<Vcpu>();
    made->number = static_cast<std::uint32_t>(vcpus_.size());
    made->slice_ns = now_ns_;
    add_lanes(*made);
    found = made.get();
    vcpus_.push_back(std::move(made));
    by_key_.emplace(key, found);
  }
  last_key_ = key;
  last_vcpu_ = found;
  return found;
}

void Replay::Engine::add_lanes(Vcpu& vcpu) const {
  vcpu.lanes.clear();
  for (std::size_t i = 0; i < options_.policies.size(); ++i) {
    vcpu.lanes.push_back(std::make_unique<ReplayLane>(profile_, options_.policies[i], options_, timeline_of(vcpu, i)));
  }
}

std::unique_ptr<PmuTimeline> Replay::Engine::timeline_of(const Vcpu& vcpu, std::size_t policy) const {
  if (options_.timeline == nullptr) return nullptr;
  return std::make_unique<PmuTimeline>(
      *options_.timeline, processes_[policy], [this] { return now_ns_; }, vcpu.number * PmuTimeline::places,
      fmt::format("vCPU {}: ", vcpu.number));
}

ShownExit* Replay::Engine::shown_exit(const TraceLine& line) {
  if (options_.timeline == nullptr) return nullptr;
  Vcpu* const vcpu = find(line, std::nullopt, false);
  return vcpu != nullptr && vcpu->shown ? &*vcpu->shown : nullptr;
}

void Replay::Engine::show_exit(Vcpu& vcpu) {
  if (!vcpu.shown) return;
  Timeline& timeline = *options_.timeline;
  const Timeline::Row row = timeline.row(recorded_, vcpu.number, fmt::format("vCPU {}: VM exits", vcpu.number));
  timeline.slice(row, vcpu.shown->ns, now_ns_, result_.exits[vcpu.shown->reason].name, vcpu.shown->args);
  vcpu.shown.reset();
}

void Replay::Engine::finish() {
  if (options_.timeline == nullptr) return;
  for (const auto& vcpu : vcpus_) show_exit(*vcpu);
  options_.timeline->finish(now_ns_);
}

void Replay::Engine::leave(Vcpu& vcpu, ReplayLane::Cause cause) {
  vcpu.running = false;
  for (const auto& lane : vcpu.lanes) lane->exit(cause);
}

void Replay::Engine::sched_out(Vcpu& vcpu, std::uint64_t now) {
  vcpu.slice_ns = now;
  if (vcpu.running) return;
  for (const auto& lane : vcpu.lanes) lane->sched_out();
}

Replay::Engine::Taken Replay::Engine::entry(const TraceLine& line) {
  const auto entry = parse_kvm_entry(line.fields);
  if (!entry) return bad_fields(line);
  Vcpu* const vcpu = find(line, entry->vcpu, true);
  if (vcpu == nullptr) return too_many_vcpus();
  ++result_.entries;
  if (vcpu->running) {
    ++result_.entries_without_exit;
    leave(*vcpu, ReplayLane::Cause::other);
  }
  const std::uint32_t completed =
      vcpu->exited ? completed_instructions(vcpu->exit, entry->rip ? &*entry->rip : nullptr) : 0;
  const std::uint32_t cpl = vcpu->exit.exit_rip >> 63 != 0 || !vcpu->kernel_seen ? 0 : 3;
  result_.retired += completed;
  const bool moved = vcpu->cpu != TraceLine::no_cpu && vcpu->cpu != line.cpu;
  if (moved || (now_ns_ > vcpu->slice_ns && now_ns_ - vcpu->slice_ns >= options_.slice_ns)) sched_out(*vcpu, now_ns_);
  for (const auto& lane : vcpu->lanes) lane->enter(completed, cpl);
  show_exit(*vcpu);
  vcpu->cpu = line.cpu;
  vcpu->exited = false;
  vcpu->running = true;
  vcpu->entered_ns = now_ns_;
  return {};
}

Replay::Engine::Taken Replay::Engine::exit(const TraceLine& line) {
  const auto exit = parse_kvm_exit(line.fields);
  if (!exit) return bad_fields(line);
  Vcpu* const vcpu = find(line, exit->vcpu, true);
  if (vcpu == nullptr) return too_many_vcpus();

  const std::size_t reason = result_.exits.add(exit->reason);
  if (reason == exit_kinds_.size()) exit_kinds_.push_back(exit_kind(exit->reason));
  const ExitKind kind = exit_kinds_[reason];

  const bool high_half = exit->rip >> 63 != 0;
  vcpu->kernel_seen |= high_half;
  if (!vcpu->running) {
    ++result_.exits_without_entry;
  } else {
    std::uint64_t ran = 0;
    if (now_ns_ < vcpu->entered_ns) {
      ++result_.backward_times;
    } else {
      ran = std::min(now_ns_ - vcpu->entered_ns, max_guest_ns - vcpu->guest_ns);
    }
    if (ran != 0) {
      // Before a kernel has mapped itself into the upper half, all that runs is a kernel.
      const model::Ring ring = high_half || !vcpu->kernel_seen ? model::Ring::kernel : model::Ring::user;
      const model::Activity activity = work_.between(vcpu->guest_ns, vcpu->guest_ns + ran);
      for (const auto& lane : vcpu->lanes) lane->run(activity, ring);
      vcpu->guest_ns += ran;
    }
    leave(*vcpu, exit_cause(exit->reason, kind));
  }
  show_exit(*vcpu);
  if (options_.timeline != nullptr) vcpu->shown = ShownExit{.reason = reason, .ns = now_ns_, .args = {}};
  vcpu->exited = true;
  vcpu->exit = {.kind = kind, .exit_rip = exit->rip, .faulted = false, .emulated = 0};
  if (kind == ExitKind::halt) sched_out(*vcpu, now_ns_);
  if (kind == ExitKind::rdpmc) ++result_.untraced_rdpmc;
  return {};
}

Replay::Engine::Taken Replay::Engine::msr(const TraceLine& line) {
  const auto msr = parse_kvm_msr(line.fields);
  if (!msr) return bad_fields(line);
  Vcpu* const vcpu = find(line, std::nullopt, true);
  if (vcpu == nullptr) return too_many_vcpus();
  vcpu->exit.faulted |= msr->fault;
  if (vcpu->shown) {
    vcpu->shown->args = register_args(msr->index);
    vcpu->shown->args["value"] = hex(msr->value);
    if (msr->fault) vcpu->shown->args["answer"] = "#GP";
  }
  if (msr->write && msr->index >= hyperv_first && msr->index <= hyperv_last) hyperv_ = true;
  return access(*vcpu, *msr);
}

Replay::Engine::Taken Replay::Engine::access(Vcpu& vcpu, const KvmMsr& msr) {
  const arch::Register reg = pmu_register(profile_, msr.index);
  const bool constant = is_shared_or_constant(reg);
  if (!pmu_used_ && !options_.profile) {
    if (reg.kind == arch::RegisterKind::perf_capabilities && !msr.write && !msr.fault &&
        seen_.see_capabilities(msr.value)) {
      if (const auto profile = seen_.profile()) set_profile(*profile, ReplayResult::ProfileFrom::cpuid);
    }
    if (reg && !constant && reg.vendor() != profile_.vendor &&
        result_.profile_from == ReplayResult::ProfileFrom::fallback) {
      set_profile(find_profile(reg.vendor() == Vendor::amd ? "amd-v2" : "intel-v2")->profile,
                  ReplayResult::ProfileFrom::registers);
    }
  }
  // RDPMC that a loader turned into RDMSR shows as a read of its index.
  const std::uint32_t pmc_bit = arch::find_pmc(profile_, msr.index);
  const bool pmc = !reg && !msr.write && !(hyperv_ && msr.index >= hyperv_first) && pmc_bit != arch::no_counter;
  if (!pmc && (!reg || reg.vendor() != profile_.vendor)) {
    ++result_.other_msrs;
    return {};
  }
  if (!pmu_used_ && (pmc || !constant)) {
    pmu_used_ = true;
    const char* const why = why_not_mediated(mediated_host_of(profile_), profile_);
    if (options_.backing == ReplayOptions::Backing::mediated && why != nullptr) {
      return std::unexpected{fmt::format("mediated mode cannot serve this guest's PMU: {}", why)};
    }
  }

  RegisterUse& use = pmc ? registers_.of_rdpmc(CounterId::from_bit(pmc_bit)) : registers_.of(msr.index);
  ++(msr.write ? use.writes : use.reads);
  const bool acknowledges =
      reg.kind == arch::RegisterKind::global_ovf_ctrl || reg.kind == arch::RegisterKind::amd_global_status_clr;
  if (acknowledges && msr.write && (msr.value & profile_.counters()) != 0) ++result_.acknowledged;
  std::optional<std::uint64_t> first;
  bool first_faulted = false;
  for (const auto& lane : vcpu.lanes) {
    bool faulted = false;
    std::uint64_t value = 0;
    if (msr.write) {
      faulted = !lane->write_msr(static_cast<Msr>(msr.index), pmu_part(reg, msr.value, profile_)).ok();
    } else {
      const auto read = pmc ? lane->read_pmc(msr.index) : lane->read_msr(static_cast<Msr>(msr.index));
      faulted = !read.ok();
      value = read.value_or(0);
    }
    if (!first) {
      first = value;
      first_faulted = faulted;
    } else if (*first != value || first_faulted != faulted) {
      ++result_.differing_answers;
    }
  }
  if (msr.fault && !first_faulted) ++use.faulted_there;
  if (!msr.fault && first_faulted) ++use.faulted_here;
  return {};
}

void Replay::Engine::cpuid(const KvmCpuid& cpuid) {
  if (pmu_used_ || options_.profile || !seen_.see(cpuid)) return;
  if (const auto profile = seen_.profile()) set_profile(*profile, ReplayResult::ProfileFrom::cpuid);
}

void Replay::Engine::set_profile(const Profile& profile, ReplayResult::ProfileFrom from) {
  result_.profile_from = from;
  if (profile == profile_) return;
  profile_ = profile;
  for (const auto& vcpu : vcpus_) {
    if (!vcpu->lanes.empty()) exits_before_ += vcpu->lanes.front()->pmu_exits();
    add_lanes(*vcpu);
  }
}

ReplayResult Replay::Engine::result() const {
  ReplayResult result = result_;
  result.profile = profile_;
  result.vcpus = vcpus_.size();
  result.registers = registers_.sorted();
  for (const auto& vcpu : vcpus_) result.guest_ns += vcpu->guest_ns;
  for (std::size_t i = 0; i < options_.policies.size(); ++i) {
    PolicyResult policy;
    policy.name = options_.policies[i].name;
    policy.policy = options_.policies[i].policy;
    for (const auto& vcpu : vcpus_) {
      const ReplayLane& lane = *vcpu->lanes[i];
      policy.use += lane.use();
      policy.pmu_exits += lane.pmu_exits();
      policy.pmis += lane.pmis();
      for_each_counter(profile_.counters(), [&](CounterId counter) {
        const Health health = lane.pmu().health(counter);
        if (health != Health::idle && health != Health::counting) ++policy.unhealthy;
      });
    }
    policy.pmu_exits += exits_before_;
    policy.exits_ps = model::Prices{options_.platform}.exits(policy.pmu_exits);
    result.policies.push_back(std::move(policy));
  }
  return result;
}

Replay::Replay(ReplayOptions options) : engine_{std::make_unique<Engine>(std::move(options))} {}
Replay::~Replay() = default;
std::expected<void, std::string> Replay::take(std::string_view line) { return engine_->take(line); }
void Replay::finish() { engine_->finish(); }
ReplayResult Replay::result() const { return engine_->result(); }

std::uint64_t ReplayResult::pmu_accesses() const {
  std::uint64_t total = 0;
  for (const RegisterUse& use : registers) total += use.total();
  return total;
}

}  // namespace vpmu::lab
