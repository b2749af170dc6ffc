// How mediated mode switches the hardware, case by case.
#include <gtest/gtest.h>

#include <string>

#include "backing/mediated_world.hpp"

namespace vpmu::test {
namespace {

using model::AccessCounts;
using model::Mode;
using model::Ring;

constexpr Policy::Switch all_modes[] = {Policy::Switch::write, Policy::Switch::elide, Policy::Switch::ownership};
constexpr std::uint64_t sampled_instructions = instructions | evtsel::interrupt;

AccessCounts difference(const AccessCounts& now, const AccessCounts& before) {
  return {now.rdmsr - before.rdmsr, now.wrmsr - before.wrmsr, now.rdpmc - before.rdpmc};
}

/// What an exit that does nothing costs.
AccessCounts exit_costs(MediatedVcpu& vcpu) {
  const AccessCounts before = vcpu.accesses();
  vcpu.leave();
  vcpu.enter();
  return difference(vcpu.accesses(), before);
}

TEST(MediatedSwitch, ElideReadsEqualCountersInsteadOfWritingThem) {
  MediatedWorld elide{"intel-v2", switching(Policy::Switch::elide)};
  elide.vcpu.enter();
  // Load and put: 11 counters read each time, 8 selectors, GLOBAL_CTRL and FIXED_CTR_CTRL written, status read twice.
  EXPECT_EQ(exit_costs(elide.vcpu), (AccessCounts{.rdmsr = 2, .wrmsr = 10, .rdpmc = 22}));
  MediatedWorld write{"intel-v2", switching(Policy::Switch::write)};
  write.vcpu.enter();
  EXPECT_EQ(exit_costs(write.vcpu), (AccessCounts{.rdmsr = 2, .wrmsr = 21, .rdpmc = 11}));
}

TEST(MediatedSwitch, OwnershipAccessesNothingWhileNobodyElseUsesThePmu) {
  for (const char* guest : {"intel-v2", "intel-v5", "amd-v2"}) {
    MediatedWorld world{guest, switching(Policy::Switch::ownership)};
    const bool intel = profile_named(guest).is_intel();
    EXPECT_TRUE(world.vcpu.write(intel ? ia32_perfevtsel[0] : amd_core_perf_ctl[0], sampled_instructions));
    world.vcpu.enter();
    EXPECT_TRUE(world.vcpu.backing.resident());
    const auto calls = world.vcpu.port.counts();
    for (int i = 0; i < 3; ++i) {
      world.cpu.run(activity_of(1000), Ring::kernel, Mode::guest);
      EXPECT_EQ(exit_costs(world.vcpu), AccessCounts{}) << guest;
    }
    EXPECT_EQ(world.vcpu.port.counts(), calls) << "no field, no LVTPC, no call to the host";
    world.vcpu.leave();
    EXPECT_EQ(world.vcpu.read(intel ? ia32_pmc[0] : amd_core_perf_ctr[0]), 3000);
  }
}

TEST(MediatedSwitch, OwnershipLeavesTheHardwareToOthersUntilACounterCounts) {
  MediatedWorld world{"intel-v2", switching(Policy::Switch::ownership)};
  world.vcpu.enter();
  EXPECT_EQ(world.vcpu.accesses(), AccessCounts{});
  EXPECT_TRUE(world.cpu.has_host_perf());
  EXPECT_EQ(world.vcpu.port.pass(), PassThrough{}) << "what the counters hold is not the guest's";
}

TEST(MediatedSwitch, OwnershipWritesOnlyWhatChanged) {
  MediatedWorld world{"intel-v2", switching(Policy::Switch::ownership)};
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], cycles));
  world.vcpu.entry();
  const AccessCounts before = world.vcpu.accesses();
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[3], cycles));
  world.vcpu.enter();
  // The counter's value under the old selector and the status are taken first.
  EXPECT_EQ(difference(world.vcpu.accesses(), before), (AccessCounts{.rdmsr = 1, .wrmsr = 1, .rdpmc = 1}));
}

TEST(MediatedSwitch, AfterTheScheduleOutNothingOfTheGuestIsLeft) {
  for (const Policy::Switch mode : all_modes) {
    MediatedWorld world{"intel-v4", switching(mode)};
    EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[2], sampled_instructions));
    EXPECT_TRUE(world.vcpu.write(Msr::ia32_fixed_ctr_ctrl, 0xBBB));
    EXPECT_TRUE(world.vcpu.write(Msr::ia32_perf_global_ctrl, 0x7000000FF));
    EXPECT_TRUE(world.vcpu.write(ia32_a_pmc[2], width48));
    world.vcpu.run(10);
    world.vcpu.pmu.sched_out();
    const model::HardwarePmu& pmu = world.cpu.pmu();
    for_each_counter(pmu.profile().counters(), [&](CounterId counter) { EXPECT_EQ(pmu.counter_value(counter), 0); });
    EXPECT_EQ(pmu.inspect(ia32_perfevtsel[2]), 0);
    EXPECT_EQ(pmu.inspect(Msr::ia32_fixed_ctr_ctrl), 0);
    EXPECT_EQ(pmu.inspect(Msr::ia32_perf_global_status), 0);
    EXPECT_EQ(pmu.global_ctrl(), 0);
    EXPECT_EQ(world.cpu.lvtpc(), LvtpcOwner::host);
    EXPECT_EQ(world.vcpu.read(ia32_a_pmc[2]), 9);
    EXPECT_EQ(world.vcpu.read(Msr::ia32_perf_global_status), 1 << 2);
  }
}

TEST(MediatedSwitch, AResetTakesTheGuestsValuesOutOfTheHardware) {
  MediatedWorld world{"intel-v2", switching(Policy::Switch::ownership)};
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], instructions));
  world.vcpu.enter();
  world.cpu.run(activity_of(7), Ring::kernel, Mode::guest);
  world.vcpu.port.vm_exit();
  world.vcpu.pmu.reset();
  EXPECT_EQ(world.cpu.pmu().counter_value(CounterId::gp(0)), 0);
  EXPECT_EQ(world.cpu.pmu().inspect(ia32_perfevtsel[0]), 0);
  EXPECT_TRUE(world.cpu.has_host_perf());
}

TEST(MediatedSwitch, ADeniedEventGoesToTheHardwareDisabledAndTheGuestReadsWhatItWrote) {
  MediatedWorld world{"intel-v2"};
  EventFilter filter;
  const FilterRequest request{
      .action = FilterRequest::deny, .fixed_bitmap = 0b010, .events = &instructions_code, .event_count = 1};
  EXPECT_TRUE(filter.load(Vendor::intel, request).ok());
  world.vcpu.pmu.set_filter(&filter);
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], instructions));
  EXPECT_TRUE(world.vcpu.write(Msr::ia32_fixed_ctr_ctrl, 0xBBB));
  EXPECT_TRUE(world.vcpu.write(Msr::ia32_fixed_ctr_ctrl, 0xBB3));  // changes one field; all are filtered
  world.vcpu.enter();
  EXPECT_EQ(world.cpu.pmu().inspect(ia32_perfevtsel[0]), instructions & ~evtsel::enable);
  EXPECT_EQ(world.cpu.pmu().inspect(Msr::ia32_fixed_ctr_ctrl), 0xB03);
  EXPECT_EQ(world.vcpu.guest_read(ia32_perfevtsel[0]).value(), instructions);
  EXPECT_EQ(world.vcpu.guest_read(Msr::ia32_fixed_ctr_ctrl).value(), 0xBB3);
}

TEST(MediatedSwitch, GlobalRegistersAndRdpmcPassOnlyWithTheHostsOwnCountersAndWidths) {
  const auto pass = [](auto change) {
    const Profile host = like_host(profile_named("intel-v2"));
    Profile guest = profile_named("intel-v2");
    change(guest);
    return plan_mediated(host, guest).pass;
  };
  const auto same = pass([](Profile&) {});
  EXPECT_TRUE(same.global && same.rdpmc && same.counters != 0);
  const auto fewer = pass([](Profile& guest) { guest.gp_counters = 4; });
  EXPECT_TRUE(!fewer.global && !fewer.rdpmc && fewer.counters != 0);
  const auto narrow = pass([](Profile& guest) { guest.gp_width = 40; });
  EXPECT_TRUE(narrow.global && !narrow.rdpmc && narrow.counters == 0);
  const auto v1 = pass([](Profile& guest) {
    guest.version = 1;
    guest.fixed_mask = 0;
  });
  EXPECT_TRUE(!v1.global && !v1.rdpmc);

  const Profile guest = profile_named("intel-v5");
  const PassThrough all{.counters = guest.counters(), .global = true, .rdpmc = true};
  for (const Msr msr : {ia32_perfevtsel[0], Msr::ia32_fixed_ctr_ctrl, Msr::ia32_perf_global_status_set,
                        Msr::ia32_perf_global_inuse, Msr::ia32_pebs_enable, ia32_pmc[8]}) {
    EXPECT_FALSE(passes_through(guest, all, msr)) << std::hex << index_of(msr);
  }
  EXPECT_TRUE(passes_through(guest, all, ia32_a_pmc[7]));
}

TEST(MediatedSwitch, AGuestThatTheHostCannotServeIsRefusedWithTheReasonAndCountsNothing) {
  Profile host = like_host(profile_named("intel-v2"));
  host.version = 3;
  EXPECT_STREQ(why_not_mediated(host, profile_named("intel-v2")), "the host's perfmon is older than version 4");
  EXPECT_EQ(why_not_mediated(like_host(profile_named("amd-v2")), profile_named("amd-v2")), nullptr);
  MediatedWorld world{host, profile_named("intel-v2")};
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], instructions));
  world.vcpu.run(5);
  EXPECT_EQ(world.vcpu.accesses(), AccessCounts{});
  EXPECT_EQ(world.vcpu.pmu.health(CounterId::gp(0)), Health::unsupported);
}

TEST(MediatedSwitch, TheHostDecidesWhetherCountersStopInSmm) {
  for (const std::uint64_t host : {std::uint64_t{0}, debugctl::freeze_while_smm}) {
    MediatedWorld world{"intel-v4"};
    world.vcpu.port.set_host_debugctl(host | debugctl::branch_trap);
    EXPECT_TRUE(world.vcpu.write(Msr::ia32_debugctl, debugctl::freeze_lbrs_on_pmi));
    world.vcpu.enter();
    EXPECT_EQ(world.vcpu.port.entry_debugctl(), host | debugctl::freeze_lbrs_on_pmi);
  }
}

TEST(MediatedSwitch, ANarrowerCounterOverflowsAtItsOwnWidth) {
  Profile guest = profile_named("intel-v2");
  guest.gp_width = 40;
  for (const Policy::Switch mode : all_modes) {
    MediatedWorld world{like_host(profile_named("intel-v2")), guest, switching(mode)};
    EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], sampled_instructions));
    EXPECT_TRUE(world.vcpu.write(ia32_a_pmc[0], (1ULL << 40) - 5));
    world.vcpu.run(7);
    EXPECT_EQ(world.vcpu.read(ia32_a_pmc[0]), 2);
    EXPECT_EQ(world.vcpu.read(Msr::ia32_perf_global_status), 1);
    world.vcpu.enter();
    EXPECT_EQ(world.vcpu.pmis, 1);
  }
}

TEST(MediatedSwitch, AnEmulatedInstructionCountsOnWhatTheGuestItselfWrote) {
  for (const Policy::Switch mode : all_modes) {
    MediatedWorld world{"intel-v2", switching(mode)};
    EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], sampled_instructions));
    world.vcpu.enter();
    EXPECT_TRUE(world.vcpu.guest_write(ia32_a_pmc[0], width48).ok());
    EXPECT_EQ(world.vcpu.passed, 1);
    world.vcpu.leave();
    world.vcpu.emulate();
    EXPECT_TRUE(world.vcpu.pmu.pmi_pending()) << "the wrap raises it at once";
    world.vcpu.enter();
    EXPECT_EQ(world.vcpu.pmis, 1);
    EXPECT_EQ(world.cpu.pmu().counter_value(CounterId::gp(0)), 0);
    EXPECT_EQ(world.cpu.pmu().inspect(Msr::ia32_perf_global_status), 1);
  }
}

TEST(MediatedSwitch, AnOverflowOfACounterWhoseStatusBitIsStillSetInterruptsAgain) {
  for (const Policy::Switch mode : all_modes) {
    MediatedWorld world{"amd-v2", switching(mode)};
    EXPECT_TRUE(world.vcpu.write(amd_core_perf_ctl[0], 0xC0 | both_rings | sampling));
    for (std::uint64_t n = 1; n <= 3; ++n) {
      EXPECT_TRUE(world.vcpu.write(amd_core_perf_ctr[0], width48));
      world.vcpu.run(1);
      world.vcpu.entry();
      EXPECT_EQ(world.vcpu.pmis, n);
    }
  }
}

TEST(MediatedSwitch, AVectorThatComesAfterItsPmiWasReportedIsNotASecondOne) {
  MediatedWorld world{"intel-v2", switching(Policy::Switch::ownership)};
  world.cpu.set_pmi_latency(1000);
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], sampled_instructions));
  EXPECT_TRUE(world.vcpu.write(ia32_a_pmc[0], width48));
  world.vcpu.enter();
  world.cpu.run(activity_of(1), Ring::kernel, Mode::guest);
  world.vcpu.port.vm_exit();
  world.vcpu.pmu.leave();
  EXPECT_EQ(world.vcpu.read(Msr::ia32_perf_global_status), 1);
  world.vcpu.enter();
  EXPECT_EQ(world.vcpu.pmis, 1);
  world.cpu.settle();
  EXPECT_TRUE(world.cpu.guest_vector_waits());
  world.vcpu.leave();
  world.vcpu.entry();
  EXPECT_EQ(world.vcpu.pmis, 1);
}

TEST(MediatedSwitch, APmiOfTheHostThatComesDuringTheLoadIsNotTheGuests) {
  MediatedWorld world{"intel-v2"};
  model::HardwarePmu& pmu = world.cpu.pmu();
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], sampled_instructions));
  EXPECT_TRUE(world.vcpu.pmu.host_write_msr(Msr::ia32_perf_global_status, 1).ok());
  pmu.preset(ia32_perfevtsel[1], sampled_instructions);
  pmu.preset(ia32_a_pmc[1], width48);
  pmu.preset(Msr::ia32_perf_global_ctrl, 0b10);
  world.cpu.set_pmi_latency(6);
  world.cpu.run(activity_of(1), Ring::kernel, Mode::host);
  world.vcpu.entry();
  world.vcpu.entry();
  EXPECT_EQ(world.vcpu.pmis, 0);
  EXPECT_EQ(world.vcpu.read(Msr::ia32_perf_global_status), 1);
}

TEST(MediatedSwitch, AVectorThatNoStatusBitExplainsIsNotTheGuests) {
  MediatedWorld world{"intel-v2"};
  model::HardwarePmu& pmu = world.cpu.pmu();
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], sampled_instructions));
  pmu.preset(ia32_perfevtsel[1], sampled_instructions);
  pmu.preset(ia32_a_pmc[1], width48);
  pmu.preset(Msr::ia32_perf_global_ctrl, 0b10);
  world.cpu.set_pmi_latency(1000);
  world.cpu.run(activity_of(1), Ring::kernel, Mode::host);
  world.vcpu.enter();
  world.cpu.settle();
  EXPECT_TRUE(world.cpu.guest_vector_waits());
  world.vcpu.leave();
  world.vcpu.entry();
  EXPECT_EQ(world.vcpu.pmis, 0);
}

TEST(MediatedSwitch, AGuestWithoutAStatusHasEachOverflowSeenWithoutItsVector) {
  MediatedWorld world{"intel-v1"};
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], sampled_instructions));
  EXPECT_TRUE(world.vcpu.write(ia32_a_pmc[0], width48));
  world.vcpu.emulate();
  world.vcpu.entry();
  EXPECT_EQ(world.vcpu.pmis, 1);
  world.cpu.set_pmi_latency(1000);
  EXPECT_TRUE(world.vcpu.write(ia32_a_pmc[0], width48));
  world.vcpu.enter();
  world.cpu.run(activity_of(1), Ring::kernel, Mode::guest);
  world.vcpu.port.vm_exit();
  world.vcpu.pmu.leave();
  world.vcpu.enter();
  EXPECT_EQ(world.vcpu.pmis, 2);
}

TEST(MediatedSwitch, AStatusBitThatCannotBeLoadedIsKeptAndTheRegisterExits) {
  MediatedWorld world{"intel-v4"};
  const std::uint64_t status = global_status::condition_changed | 1;
  EXPECT_TRUE(world.vcpu.pmu.host_write_msr(Msr::ia32_perf_global_status, status).ok());
  world.vcpu.enter();
  EXPECT_EQ(world.vcpu.port.faults(), 0);
  EXPECT_EQ(world.vcpu.guest_read(Msr::ia32_perf_global_status).value(), status);
  EXPECT_TRUE(world.vcpu.guest_write(Msr::ia32_perf_global_ovf_ctrl, status).ok());
  EXPECT_EQ(world.vcpu.guest_read(Msr::ia32_perf_global_status).value(), 0);
  EXPECT_TRUE(world.vcpu.port.pass().global);
}

TEST(MediatedSwitch, VerifiedOwnershipFindsWhatTheHostWasNotToDo) {
  MediatedWorld world{"intel-v2", switching(Policy::Switch::ownership), Trust::verified};
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], instructions));
  world.vcpu.run(5);
  world.vcpu.entry();
  EXPECT_EQ(world.vcpu.backing.broken_promises(), 0);
  world.cpu.pmu().preset(ia32_perfevtsel[0], 0);
  world.vcpu.run(5);
  EXPECT_EQ(world.vcpu.backing.broken_promises(), 1);
  EXPECT_EQ(world.vcpu.pmu.health(CounterId::gp(0)), Health::lost);
  EXPECT_EQ(world.vcpu.read(ia32_a_pmc[0]), 10) << "written anew";
}

TEST(MediatedSwitch, OwnershipNoticesAnotherOwnerThatDidNotAsk) {
  MediatedWorld world{"intel-v2", switching(Policy::Switch::ownership)};
  EXPECT_TRUE(world.vcpu.write(ia32_perfevtsel[0], instructions));
  world.vcpu.run(5);
  world.vcpu.port.return_host_perf();
  world.vcpu.entry();
  EXPECT_EQ(world.vcpu.backing.broken_promises(), 1);
}

}  // namespace
}  // namespace vpmu::test
