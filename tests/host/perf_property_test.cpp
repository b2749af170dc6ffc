// Random use of the modelled host's events against a plain reference that knows nothing of registers.
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <random>
#include <vector>

#include "host/model/perf.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::model {
namespace {

/// An event as the port defines it: a count and a distance.
struct Reference {
  HostEvent handle = HostEvent::none;
  HostEventSpec spec{};
  Event event{};
  bool enabled = false;
  std::uint64_t count = 0;
  std::uint64_t period = 0;
  std::uint64_t left = 0;

  /// What it counts of a stretch, worked out cycle by cycle in words: see How.
  [[nodiscard]] std::uint64_t share(const Activity& a) const {
    const std::uint64_t mask = spec.select >> 24 & 0xFF;
    const bool invert = (spec.select & evtsel::invert) != 0 && mask != 0;
    const bool edge = (spec.select & evtsel::edge) != 0;
    const bool always = mask >= 2 && invert;
    const bool never = (mask >= 2 && !invert) || (mask == 1 && invert && event == Event::cycles);
    if (never) return 0;
    if (edge) return a.edges[index_of(always ? Event::cycles : event)];
    if (always) return a[Event::cycles];
    return invert ? a[Event::cycles] - a[event] : a[event];
  }

  /// True if it hints.
  bool happen(std::uint64_t n) {
    count += n;
    const bool passed = n >= left;
    left = passed ? period - (n - left) % period : left - n;
    return passed;
  }
};

struct HostKind {
  const char* profile;
  std::uint8_t width;
  bool full_width;
};

constexpr std::array<HostKind, 9> kinds{{{"intel-v1", 48, true},
                                         {"intel-v2", 48, true},
                                         {"intel-v2", 32, true},
                                         {"intel-v3", 40, false},
                                         {"intel-v4", 32, false},
                                         {"intel-v5", 48, false},
                                         {"amd-k7", 48, true},
                                         {"amd-core", 32, true},
                                         {"amd-v2", 48, true}}};

Profile host_profile(const HostKind& kind) {
  Profile profile = svm_host(find_profile(kind.profile)->profile);
  profile.gp_width = kind.width;
  if (profile.fixed_mask != 0) profile.fixed_width = kind.width;
  if (!kind.full_width) profile.perf_capabilities = 0;
  return profile;
}

class Sequence {
 public:
  Sequence(std::uint64_t seed, const HostKind& kind)
      : random_{seed}, pmu_{host_profile(kind)}, perf_{pmu_, {.free_reads = true, .taken = 0}} {}

  void run() {
    const std::uint64_t operations = 20 + pick(181);
    for (std::uint64_t i = 0; i < operations && !testing::Test::HasFatalFailure(); ++i) {
      step();
      EXPECT_EQ(perf_.hints().load(), expected_hints_) << "after operation " << i;
      if (pick(3) == 0) {
        EXPECT_EQ(perf_.take_hints(), expected_hints_);
        expected_hints_ = 0;
      }
      if (testing::Test::HasFailure()) return;
    }
    while (!events_.empty()) check_and_close(0);
    EXPECT_EQ(perf_.open_events(), 0U);
  }

 private:
  std::uint64_t pick(std::uint64_t bound) { return random_() % bound; }

  /// Small, middling, and beyond what a counter holds.
  std::uint64_t some_period() {
    switch (pick(4)) {
      case 0:
        return 1 + pick(5);
      case 1:
        return 1 + pick(2000);
      case 2:
        return 1 + pick(std::uint64_t{1} << 33);
      default:
        return 1 + pick(std::uint64_t{1} << 62);
    }
  }

  std::uint64_t some_events() {
    switch (pick(8)) {
      case 0:
        return 0;
      case 1:
        return pick(std::uint64_t{1} << 34);
      case 2:
        return pick(std::uint64_t{1} << 30);
      default:
        return pick(3000);
    }
  }

  Activity some_activity() {
    Activity a;
    a[Event::cycles] = some_events();
    for (std::size_t i = 0; i < event_count; ++i) {
      if (i != index_of(Event::cycles)) a.count[i] = std::min(some_events(), a[Event::cycles]);
    }
    for (std::size_t i = 0; i < event_count; ++i) a.edges[i] = pick(a.count[i] / 2 + 2);
    return a;
  }

  void step() {
    switch (pick(10)) {
      case 0:
      case 1:
        return open();
      case 2:
        if (!events_.empty()) check_and_close(pick(events_.size()));
        return;
      case 3:
        return with_any([&](Reference& r) {
          r.period = r.left = some_period();
          EXPECT_TRUE(perf_.set_period(r.handle, r.period).ok());
        });
      case 4:
        return with_any([&](Reference& r) {
          EXPECT_TRUE(perf_.enable(r.handle).ok());
          r.enabled = true;
        });
      case 5:
        return with_any([&](Reference& r) {
          EXPECT_TRUE(perf_.disable(r.handle).ok());
          r.enabled = false;
        });
      case 6:
        return with_any([&](Reference& r) {
          EXPECT_EQ(perf_.read(r.handle).value(), r.count);
          EXPECT_EQ(perf_.peek(r.handle).value(), r.count);
        });
      default:
        return advance();
    }
  }

  template <class Use>
  void with_any(Use&& use) {
    if (!events_.empty()) use(events_[pick(events_.size())]);
  }

  void open() {
    const Vendor vendor = pmu_.profile().vendor;
    Reference r;
    r.spec.vendor = vendor;
    r.spec.user = pick(4) != 0;
    r.spec.kernel = pick(4) != 0;
    if (vendor == Vendor::intel && pick(3) == 0) {
      const auto n = static_cast<std::uint32_t>(pick(3));
      r.spec.counter = CounterId::fixed(n);
      r.event = arch::fixed_events[n];
    } else {
      const auto& known = arch::event_codes[pick(arch::event_codes.size())];
      if (known.vendor != vendor) return;
      r.spec.counter = CounterId::gp(static_cast<std::uint32_t>(pick(max_gp_counters)));
      r.event = known.kind;
      r.spec.select = known.select;
      if (pick(2) == 0) r.spec.select |= random_() & (evtsel::edge | evtsel::invert | 3U << 24);
    }
    r.period = r.left = some_period();
    const auto handle = perf_.open(r.spec, r.period);
    if (!handle.ok()) {
      EXPECT_EQ(handle.error(), HostError::no_counter);
      EXPECT_GE(events_.size(), pmu_.profile().gp_counters);
      return;
    }
    r.handle = handle.value();
    events_.push_back(r);
  }

  void check_and_close(std::uint64_t which) {
    EXPECT_EQ(perf_.read(events_[which].handle).value(), events_[which].count);
    perf_.close(events_[which].handle);
    events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void advance() {
    const Activity activity = some_activity();
    const Ring ring = pick(2) == 0 ? Ring::kernel : Ring::user;
    const Mode mode = pick(5) == 0 ? Mode::host : Mode::guest;
    CounterSet hinted = 0;
    for (auto& r : events_) {
      if (mode == Mode::host || !r.enabled || !(ring == Ring::kernel ? r.spec.kernel : r.spec.user)) continue;
      if (r.happen(r.share(activity))) hinted |= r.spec.counter.mask();
    }
    EXPECT_EQ(perf_.advance(activity, ring, mode), hinted);
    expected_hints_ |= hinted;
  }

  std::mt19937_64 random_;
  HardwarePmu pmu_;
  PerfModel perf_;
  std::vector<Reference> events_;
  CounterSet expected_hints_ = 0;
};

void run_sequences(std::uint64_t first_seed, std::uint64_t count) {
  for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Sequence{seed, kinds[seed % kinds.size()]}.run();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PerfModelProperty, TenThousandSequencesCountAndHintAsAPlainReference) { run_sequences(1, 10'000); }

TEST(PerfModelProperty, SoDoSequencesWithFreshSeeds) {
  const std::uint64_t seed = std::uint64_t{std::random_device{}()} << 20;
  RecordProperty("first_seed", std::to_string(seed));
  std::cout << "first seed: " << seed << '\n';
  run_sequences(seed, 1'000);
}

}  // namespace
}  // namespace vpmu::model
