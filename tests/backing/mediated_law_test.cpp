// Law 1 in mediated mode: how the hardware is switched changes cost, never what the guest sees; and the guest sees what
// it sees in emulated mode.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "backing/mediated_world.hpp"

namespace vpmu::test {
namespace {

constexpr int sequences_a_seed = 1000;

const char* const guests[] = {"intel-v1", "intel-v2", "intel-v3", "intel-v4", "intel-v5",
                              "amd-k7",   "amd-core", "amd-v2",   "none",     "amd-none"};

struct Way {
  const char* name;
  Policy::Switch mode;
  Trust trust;
};

class MediatedLaw1 : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(EveryWay, MediatedLaw1,
                         testing::Values(Way{"write", Policy::Switch::write, Trust::remembered},
                                         Way{"elide", Policy::Switch::elide, Trust::remembered},
                                         Way{"ownership", Policy::Switch::ownership, Trust::remembered},
                                         Way{"verified", Policy::Switch::ownership, Trust::verified}),
                         [](const auto& param) { return param.param.name; });

/// A host with what the guest has, or with more: then GLOBAL_* and RDPMC exit.
Profile random_host(Random& random, const Profile& guest) {
  return random.chance(3) ? model::host_for(guest) : like_host(guest);
}

/// A guest of fewer counters, or narrower ones, at times.
Profile random_guest(Random& random) {
  Profile guest = profile_named(random.one_of(guests));
  if (!guest.present()) return guest;
  if (random.chance(4)) guest.gp_counters = static_cast<std::uint8_t>(1 + random.below(guest.gp_counters));
  if (guest.is_intel() && random.chance(6)) {
    guest.gp_width = 40;
    guest.fixed_width = guest.fixed_mask != 0 ? 40 : 0;
  }
  return guest;
}

/// A guest in emulated mode and the same guest in mediated mode.
class Twins {
 public:
  Twins(Random& random, const Policy& policy, Trust trust)
      : random_{random},
        guest_{random_guest(random)},
        operations_{random_operations(random, guest_)},
        emulated_{std::make_unique<World>(guest_, switching(Policy::Switch::elide))},
        mediated_{std::make_unique<MediatedWorld>(random_host(random, guest_), guest_, policy, trust)} {
    mediated_->cpu.set_pmi_latency(static_cast<std::uint32_t>(random.below(3)));
  }

  [[nodiscard]] std::size_t size() const { return operations_.size(); }
  MediatedVcpu& vcpu() { return mediated_->vcpu; }

  /// Where they differ after operation i; empty if they don't.
  std::string play(std::size_t i) {
    Operation& operation = operations_[i];
    operation.value = plain_value(guest_, operation.msr, operation.value);
    const bool in_guest = is_access(operation) && random_.chance(2);
    const Seen expected = play_emulated(*emulated_, emulated_filter_, operation, in_guest);
    const Seen seen = play_mediated(vcpu(), mediated_filter_, operation, in_guest);
    if (seen == expected) return {};
    std::ostringstream text;
    text << "operation " << i << " of kind " << static_cast<int>(operation.kind) << std::hex << " on "
         << index_of(operation.msr) << " with " << operation.value << (in_guest ? ", in the guest" : "") << ": value "
         << seen.value << " for " << expected.value << ", fault " << seen.fault << " for " << expected.fault
         << ", PMIs " << seen.pmis << " for " << expected.pmis;
    return text.str();
  }

 private:
  Random& random_;
  Profile guest_;
  std::vector<Operation> operations_;
  std::unique_ptr<World> emulated_;
  std::unique_ptr<MediatedWorld> mediated_;
  EventFilter emulated_filter_;
  EventFilter mediated_filter_;
};

TEST_P(MediatedLaw1, ReadsStatusAndPmisAreThoseOfEmulatedMode) {
  std::uint64_t passed = 0;
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      Twins twins{random, switching(GetParam().mode), GetParam().trust};
      for (std::size_t i = 0; i < twins.size(); ++i) {
        ASSERT_EQ(twins.play(i), "") << again(seed) << ", sequence " << sequence;
      }
      ASSERT_EQ(twins.vcpu().port.faults(), 0) << again(seed) << ", sequence " << sequence;
      ASSERT_EQ(twins.vcpu().backing.broken_promises(), 0) << again(seed) << ", sequence " << sequence;
      passed += twins.vcpu().passed;
    }
  }
  EXPECT_GT(passed, 1000) << "the guests were hardly ever left alone with their registers";
}

TEST(MediatedPolicy, ARunningGuestMayChangeHowItIsSwitched) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed ^ 2};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      Twins twins{random, switching(Policy::Switch::elide), Trust::remembered};
      for (std::size_t i = 0; i < twins.size(); ++i) {
        if (random.chance(4)) {
          const Policy::Switch modes[] = {Policy::Switch::write, Policy::Switch::elide, Policy::Switch::ownership};
          twins.vcpu().pmu.set_policy(switching(random.one_of(modes)));
        }
        ASSERT_EQ(twins.play(i), "") << again(seed) << ", sequence " << sequence;
      }
    }
  }
}

}  // namespace
}  // namespace vpmu::test
