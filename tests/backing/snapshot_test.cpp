// Saving and restoring: the guest sees no difference, wherever it goes on; and bytes that are no snapshot are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "backing/mediated_world.hpp"
#include "pmu/snapshot_bytes.hpp"

namespace vpmu::test {
namespace {

using Kind = SnapshotError::Kind;

constexpr int sequences_a_seed = 500;

const char* const guests[] = {"intel-v1", "intel-v2", "intel-v3", "intel-v4", "intel-v5",
                              "amd-k7",   "amd-core", "amd-v2",   "none",     "amd-none"};

/// A PMU on one of several hosts.
class Place {
 public:
  /// Emulated on a host with or without free reads, or mediated, under a random policy.
  Place(Random& random, const Profile& guest) {
    Policy policy = named_policies().first[random.below(named_policies().count)].policy;
    policy.fold = 0;  // so that PMIs are not late, and compare
    if (random.chance(2)) {
      emulated_ = std::make_unique<World>(guest, policy, random.chance(2));
    } else {
      const Policy::Switch modes[] = {Policy::Switch::write, Policy::Switch::elide, Policy::Switch::ownership};
      policy.mode_switch = random.one_of(modes);
      const Profile host = random.chance(3) ? model::host_for(guest) : like_host(guest);
      mediated_ = std::make_unique<MediatedWorld>(host, guest, policy);
    }
  }

  VirtualPmu& pmu() { return emulated_ ? emulated_->pmu : mediated_->vcpu.pmu; }
  std::uint64_t& pmis() { return emulated_ ? emulated_->pmis : mediated_->vcpu.pmis; }
  Seen play(EventFilter& filter, const Operation& operation) {
    return emulated_ ? test::play(*emulated_, filter, operation) : test::play(mediated_->vcpu, filter, operation);
  }

 private:
  std::unique_ptr<World> emulated_;
  std::unique_ptr<MediatedWorld> mediated_;
};

std::string difference(const Seen& seen, const Seen& expected, const Operation& operation) {
  if (seen == expected) return {};
  std::ostringstream text;
  text << "kind " << static_cast<int>(operation.kind) << std::hex << " on " << index_of(operation.msr) << " with "
       << operation.value << ": value " << seen.value << " for " << expected.value << ", fault " << seen.fault
       << " for " << expected.fault << ", PMIs " << seen.pmis << " for " << expected.pmis;
  return text.str();
}

/// A guest that stays, and one that moves to another place by `move(from, to)` every now and then.
template <class Move>
void expect_no_difference(Move&& move) {
  std::uint64_t moves = 0;
  for (const std::uint64_t seed : seeds()) {
    Random random{seed};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      const Profile guest = profile_named(random.one_of(guests));
      Policy first = policy_named("before-s0");
      World stays{guest, first};
      EventFilter stays_filter;
      auto place = std::make_unique<Place>(random, guest);
      EventFilter filter;
      bool filtered = false;
      for (Operation operation : random_operations(random, guest)) {
        operation.value = plain_value(guest, operation.msr, operation.value);
        const Seen expected = play(stays, stays_filter, operation);
        const Seen seen = place->play(filter, operation);
        if (operation.kind == Operation::Kind::filter) filtered = (operation.value >> 17 & 1) != 0;
        ASSERT_EQ(difference(seen, expected, operation), "") << again(seed) << ", sequence " << sequence;
        if (!random.chance(10)) continue;
        auto next = std::make_unique<Place>(random, guest);
        if (filtered) next->pmu().set_filter(&filter);
        next->pmis() = place->pmis();
        move(random, *place, *next);
        if (testing::Test::HasFatalFailure()) return;
        place = std::move(next);
        ++moves;
      }
    }
  }
  EXPECT_GT(moves, 1000);
}

TEST(Snapshot, AGuestThatMovesToAnyHostPolicyAndBackingSeesNoDifference) {
  expect_no_difference([](Random&, Place& from, Place& to) {
    const Snapshot snapshot = from.pmu().save();
    ASSERT_TRUE(to.pmu().restore(snapshot).ok());
    EXPECT_EQ(to.pmu().save(), snapshot);
  });
}

TEST(Snapshot, TheSavedGuestItselfGoesOnUndisturbed) {
  for (const std::uint64_t seed : seeds()) {
    Random random{seed ^ 1};
    for (int sequence = 0; sequence < sequences_a_seed; ++sequence) {
      const Profile guest = profile_named(random.one_of(guests));
      World quiet{guest, policy_named("before-s0")};
      Place saved{random, guest};
      EventFilter quiet_filter;
      EventFilter filter;
      for (Operation operation : random_operations(random, guest)) {
        operation.value = plain_value(guest, operation.msr, operation.value);
        const Seen expected = play(quiet, quiet_filter, operation);
        ASSERT_EQ(difference(saved.play(filter, operation), expected, operation), "") << again(seed);
        static_cast<void>(saved.pmu().save());
      }
    }
  }
}

TEST(Snapshot, RegisterByRegisterInAnyOrderIsTheSame) {
  expect_no_difference([](Random& random, Place& from, Place& to) {
    const bool pmi = from.pmu().pmi_pending() || from.pmu().save().bytes[9] != 0;
    const MsrList list = state_msrs(from.pmu().profile());
    std::vector<Msr> order(list.begin(), list.end());
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    for (const Msr msr : order) {
      ASSERT_TRUE(to.pmu().host_write_msr(msr, from.pmu().host_read_msr(msr).value()).ok()) << index_of(msr);
    }
    // What the list cannot carry.
    Snapshot snapshot = to.pmu().save();
    EXPECT_EQ(snapshot.bytes[9], 0);
    if (!pmi) {
      EXPECT_EQ(snapshot, from.pmu().save());
    } else {
      ASSERT_TRUE(to.pmu().restore(from.pmu().save()).ok());
    }
  });
}

// --- By hand ---

constexpr std::uint64_t sampled = instructions | evtsel::interrupt;

TEST(Snapshot, IsTakenMidCountWithAPmiAndAReprogramPending) {
  World from{"intel-v4"};
  from.write(ia32_perfevtsel[0], sampled);
  from.write(ia32_a_pmc[0], before_overflow(100));
  from.run(40);
  World middle{"intel-v4", policy_named("before-s0"), false};
  ASSERT_TRUE(middle.pmu.restore(from.pmu.save()).ok());
  EXPECT_EQ(middle.read(ia32_a_pmc[0]), before_overflow(60));
  middle.enter();
  middle.happen(arch::EventKind::instructions, 60);
  middle.leave();
  middle.write(ia32_perfevtsel[1], cycles);  // not yet in the host
  World to{"intel-v4"};
  ASSERT_TRUE(to.pmu.restore(middle.pmu.save()).ok());
  EXPECT_TRUE(to.pmu.pmi_pending());
  EXPECT_EQ(to.read(Msr::ia32_perf_global_status), 1U);
  to.run(10);
  EXPECT_EQ(to.pmis, 1U);
  EXPECT_EQ(to.read(ia32_a_pmc[0]), 10U);
  EXPECT_EQ(to.read(ia32_a_pmc[1]), 20U);
}

TEST(Snapshot, TakesPostedWritesInAndRestoringDropsThem) {
  World from{"intel-v2"};
  ASSERT_TRUE(from.pmu.post_write(ia32_perfevtsel[0], cycles).ok());
  World to{"intel-v2"};
  ASSERT_TRUE(to.pmu.post_write(ia32_perfevtsel[0], instructions).ok());
  ASSERT_TRUE(to.pmu.restore(from.pmu.save()).ok());
  to.entry();
  EXPECT_EQ(to.read(ia32_perfevtsel[0]), cycles);
}

void put(Snapshot& snapshot, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) snapshot.bytes[at + i] = static_cast<std::uint8_t>(value >> (8 * i));
  seal(snapshot);
}

TEST(Snapshot, HasTheDocumentedLayout) {
  World world{"intel-v4"};
  world.write(ia32_a_pmc[1], 0x123456789A);
  world.write(ia32_perfevtsel[7], cycles);
  world.write(ia32_fixed_ctr[2], 0x77);
  world.write(Msr::ia32_perf_global_ctrl, 0x70000000F);
  const Snapshot saved = world.pmu.save();
  Snapshot expected;
  const std::uint8_t head[] = {'v', 'P', 'M', 'U', 1, 0, 0x90, 1, 0, 0};
  std::ranges::copy(head, expected.bytes.begin());
  put(expected, 16 + 8 * 1, 0x123456789A);
  put(expected, 16 + 8 * (16 + 7), cycles);
  put(expected, 16 + 8 * (32 + 2), 0x77);
  put(expected, 16 + 8 * 40, 0x70000000F);
  EXPECT_EQ(saved.bytes, expected.bytes);
}

Kind error_of(VirtualPmu& pmu, const Snapshot& snapshot, std::size_t size = Snapshot::size) {
  const Snapshot before = pmu.save();
  const auto result = pmu.restore(snapshot.bytes.data(), size);
  EXPECT_FALSE(result.ok());
  EXPECT_EQ(pmu.save(), before) << "nothing changes";
  return result.ok() ? Kind{0xFF} : result.error().kind;
}

TEST(Snapshot, BytesThatAreNoneAreRefusedAndChangeNothing) {
  World world{"intel-v4"};
  world.write(ia32_perfevtsel[0], sampled);
  world.run(30);
  const Snapshot good = world.pmu.save();
  for (std::size_t size = 0; size < Snapshot::size; ++size) EXPECT_EQ(error_of(world.pmu, good, size), Kind::cut);
  const auto with = [&good](std::size_t at, std::uint8_t value) {
    Snapshot bad = good;
    bad.bytes[at] = value;
    seal(bad);
    return bad;
  };
  EXPECT_EQ(error_of(world.pmu, with(0, 'V')), Kind::not_a_snapshot);
  EXPECT_EQ(error_of(world.pmu, with(4, 0)), Kind::too_old);
  EXPECT_EQ(error_of(world.pmu, with(4, 2)), Kind::too_new);
  EXPECT_EQ(error_of(world.pmu, with(4, 2), 20), Kind::too_new) << "whatever its size";
  EXPECT_EQ(error_of(world.pmu, with(8, 1)), Kind::other_vendor);
  EXPECT_EQ(error_of(world.pmu, with(8, 2)), Kind::damaged);
  EXPECT_EQ(error_of(world.pmu, with(9, 2)), Kind::damaged);
  EXPECT_EQ(error_of(world.pmu, with(15, 1)), Kind::damaged);
  EXPECT_EQ(error_of(world.pmu, with(6, 0)), Kind::damaged);
  for (std::size_t bit = 0; bit < 8 * Snapshot::size; ++bit) {
    Snapshot bad = good;
    bad.bytes[bit / 8] ^= static_cast<std::uint8_t>(1U << bit % 8);
    EXPECT_FALSE(world.pmu.restore(bad).ok()) << "bit " << bit;
  }
  EXPECT_TRUE(world.pmu.restore(good).ok());
}

/// What a snapshot of `from`, after `prepare`, meets at a PMU of another profile.
template <class Prepare>
Status<SnapshotError> moved(const Profile& from, const Profile& to, Prepare&& prepare) {
  World source{from};
  prepare(source);
  World target{to};
  return target.pmu.restore(source.pmu.save());
}

TEST(Snapshot, WhatTheProfileLacksMustBeZeroAndIsRefusedByName) {
  const Profile big = profile_named("intel-v4");
  Profile small = big;
  small.gp_counters = 4;
  small.fixed_mask = 1;
  // GLOBAL_CTRL is not 0 after RESET.
  EXPECT_TRUE(moved(big, small, [](World& w) { w.write(Msr::ia32_perf_global_ctrl, 0xF); }).ok());
  const auto refused = [&](Msr msr, std::uint64_t value, const Profile& target) -> std::string {
    const auto result = moved(big, target, [&](World& w) {
      w.write(Msr::ia32_perf_global_ctrl, 0xF);
      EXPECT_TRUE(w.write(msr, value));
    });
    if (result.ok()) return "accepted";
    EXPECT_EQ(result.error().kind, Kind::refused);
    return register_name(result.error().reg).text;
  };
  EXPECT_EQ(refused(ia32_perfevtsel[4], cycles, small), "IA32_PERFEVTSEL4");
  EXPECT_EQ(refused(ia32_a_pmc[7], 1, small), "IA32_PMC7");
  EXPECT_EQ(refused(ia32_fixed_ctr[1], 1, small), "IA32_FIXED_CTR1");
  EXPECT_EQ(refused(Msr::ia32_fixed_ctr_ctrl, 0xB0, small), "IA32_FIXED_CTR_CTRL");
  EXPECT_EQ(refused(Msr::ia32_perf_global_ctrl, 0x10, small), "IA32_PERF_GLOBAL_CTRL");
  EXPECT_EQ(refused(Msr::ia32_perf_global_status_set, global_status::asci, profile_named("intel-v3")),
            "IA32_PERF_GLOBAL_STATUS");
  Profile narrow = big;
  narrow.gp_width = 40;
  EXPECT_EQ(refused(ia32_a_pmc[0], 1ULL << 40, narrow), "IA32_PMC0");
  EXPECT_EQ(refused(ia32_a_pmc[0], 0xFFFFFFFFFF, narrow), "accepted");
  EXPECT_EQ(refused(ia32_a_pmc[0], 1, profile_named("none")), "IA32_PMC0");
  EXPECT_EQ(refused(Msr::ia32_debugctl, debugctl::freeze_perfmon_on_pmi, profile_named("intel-v1")),
            "IA32_PERF_GLOBAL_CTRL");
  const auto amd = moved(profile_named("amd-v2"), profile_named("amd-k7"), [](World& w) {
    w.write(Msr::amd_perf_cntr_global_ctl, 0);
    w.write(amd_core_perf_ctl[5], 0x530076);
  });
  ASSERT_FALSE(amd.ok());
  EXPECT_STREQ(register_name(amd.error().reg).text, "PERF_CTL5");
  EXPECT_TRUE(moved(profile_named("amd-core"), profile_named("amd-k7"), [](World& w) {
                w.write(amd_core_perf_ctl[3], 0x530076);
              }).ok());
  const auto pmi = moved(profile_named("intel-v1"), profile_named("none"), [](World& w) {
    w.write(ia32_perfevtsel[0], sampled);
    w.write(ia32_pmc[0], 0xFFFFFFFF);
    w.run(1);
    w.write(ia32_perfevtsel[0], 0);
    w.write(ia32_pmc[0], 0);
  });
  ASSERT_FALSE(pmi.ok());
  EXPECT_EQ(pmi.error().kind, Kind::no_pmi);
}

TEST(RegisterName, IsThatOfTheManuals) {
  EXPECT_STREQ(register_name(ia32_a_pmc[15]).text, "IA32_A_PMC15");
  EXPECT_STREQ(register_name(Msr::ia32_perf_global_inuse).text, "IA32_PERF_GLOBAL_INUSE");
  EXPECT_STREQ(register_name(amd_k7_perf_ctl[3]).text, "PERF_CTL3 (K7)");
  EXPECT_STREQ(register_name(Msr::amd_perf_cntr_global_status_set).text, "PerfCntrGlobalStatusSet");
  EXPECT_STREQ(register_name(Msr{0x10}).text, "?");
}

}  // namespace
}  // namespace vpmu::test
