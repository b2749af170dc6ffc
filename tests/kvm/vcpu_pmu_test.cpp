// What the public helper does with exits and PMIs, on a vCPU and a host that are fakes.
#include "vpmu/kvm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/kvm.h>

#include <memory>
#include <vector>

#include "pmu/world.hpp"

namespace vpmu::kvm {
namespace {

using test::before_overflow;
using test::both_rings;
using test::cycles_code;
using test::sampling;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::uint32_t lvt_nmi = 4U << 8;
constexpr std::uint32_t lvt_masked = 1U << 16;
constexpr std::uint64_t patched_rip = 0xFFFFFFFF81000100;

class FakeVcpu final : public VcpuPort {
 public:
  std::uint64_t rip() override { return rip_; }
  std::uint8_t cpl() override {
    ++cpl_questions;
    return 0;
  }
  std::uint32_t lvtpc() override { return lvtpc_; }
  void inject_nmi() override { ++nmis; }
  void inject_vector(std::uint8_t vector) override { vectors.push_back(vector); }

  std::uint64_t rip_ = 0;
  std::uint32_t lvtpc_ = lvt_nmi;
  int nmis = 0;
  int cpl_questions = 0;
  std::vector<std::uint8_t> vectors;
};

class VcpuPmuTest : public testing::Test {
 protected:
  explicit VcpuPmuTest(const char* profile = "intel-v2") : world{profile}, bridge{world.pmu, *run, vcpu, sites} {}

  bool read(std::uint32_t index) { return access(KVM_EXIT_X86_RDMSR, index, 0); }
  bool write(std::uint32_t index, std::uint64_t value) { return access(KVM_EXIT_X86_WRMSR, index, value); }
  bool access(std::uint32_t reason, std::uint32_t index, std::uint64_t value) {
    run->exit_reason = reason;
    run->msr.index = index;
    run->msr.data = value;
    run->msr.error = 0xEE;  // whoever answers says which
    return bridge.on_exit();
  }
  [[nodiscard]] bool faulted() const { return run->msr.error != 0; }

  /// The first counter samples cycles; an overflow happens while the guest runs.
  void overflow(Msr selector, Msr counter) {
    write(index_of(counter), before_overflow(10));
    write(index_of(selector), cycles_or_amd() | both_rings | sampling);
    go(10);
  }
  void go(std::uint64_t cycles) {
    bridge.before_run();
    world.happen(arch::EventKind::cycles, cycles);
    bridge.after_run();
  }
  [[nodiscard]] std::uint64_t cycles_or_amd() const { return world.pmu.profile().is_intel() ? cycles_code : 0x76; }

  test::World world;
  std::unique_ptr<kvm_run> run = std::make_unique<kvm_run>();
  FakeVcpu vcpu;
  std::vector<RdpmcSite> sites{{.rip = patched_rip, .physical = 0x1000100}};
  VcpuPmu bridge;
};

class AmdVcpuPmuTest : public VcpuPmuTest {
 protected:
  AmdVcpuPmuTest() : VcpuPmuTest{"amd-v2"} {}
};

// --- Exits ---

TEST_F(VcpuPmuTest, AnswersTheGuestsPmuMsrs) {
  EXPECT_TRUE(write(index_of(ia32_perfevtsel[1]), cycles_code | both_rings));
  EXPECT_FALSE(faulted());
  EXPECT_TRUE(read(index_of(ia32_perfevtsel[1])));
  EXPECT_FALSE(faulted());
  EXPECT_EQ(run->msr.data, cycles_code | both_rings);
  EXPECT_EQ(bridge.counts().msr_accesses, 2U);
}

TEST_F(VcpuPmuTest, AnswersWithGpWhatTheProfileRefuses) {
  EXPECT_TRUE(write(index_of(Msr::ia32_perf_global_status), 0));
  EXPECT_TRUE(faulted());
  EXPECT_TRUE(read(index_of(Msr::amd_perf_cntr_global_ctl)));
  EXPECT_TRUE(faulted()) << "the other vendor's";
  EXPECT_EQ(bridge.counts().faults, 2U);
}

TEST_F(VcpuPmuTest, LeavesOtherExitsAlone) {
  EXPECT_FALSE(read(0x10)) << "the TSC";
  EXPECT_FALSE(write(0xC0000080, 0)) << "EFER";
  run->exit_reason = KVM_EXIT_IO;
  EXPECT_FALSE(bridge.on_exit());
  EXPECT_EQ(run->msr.error, 0xEE);
}

TEST_F(AmdVcpuPmuTest, LeavesDebugctlToKvmOnAmd) { EXPECT_FALSE(read(index_of(Msr::ia32_debugctl))); }

TEST_F(VcpuPmuTest, CountsTheInstructionThatItCompletesAfterItsEffectAndNoFault) {
  write(index_of(ia32_perfevtsel[0]), test::instructions);
  write(index_of(ia32_pmc[0]), 0x1000);
  read(index_of(ia32_pmc[0]));
  EXPECT_EQ(run->msr.data, 0x1001U) << "the WRMSR retires behind its own effect";
  write(index_of(Msr::ia32_perf_global_status), 1);
  read(index_of(ia32_pmc[0]));
  EXPECT_EQ(run->msr.data, 0x1002U) << "the RDMSR, and not the WRMSR that faulted";
  EXPECT_EQ(vcpu.cpl_questions, 0) << "user and kernel count alike";
}

TEST_F(VcpuPmuTest, SaysThatStringsAreFastBesideThePmusOwnBits) {
  read(index_of(Msr::ia32_misc_enable));
  EXPECT_EQ(run->msr.data & 1, 1U);
  EXPECT_EQ(run->msr.data >> 7 & 1, 1U);
  const std::uint64_t value = run->msr.data;
  write(index_of(Msr::ia32_misc_enable), value);
  EXPECT_FALSE(faulted());
}

// --- RDPMC ---

TEST_F(VcpuPmuTest, AnswersRdmsrAtAPatchedSiteAsRdpmc) {
  write(index_of(ia32_pmc[1]), 0x55);
  write(index_of(ia32_fixed_ctr[0]), 0x66);
  vcpu.rip_ = patched_rip;
  EXPECT_TRUE(read(1));
  EXPECT_EQ(run->msr.data, 0x55U);
  EXPECT_TRUE(read(0x40000000));
  EXPECT_EQ(run->msr.data, 0x66U);
  EXPECT_TRUE(read(9));
  EXPECT_TRUE(faulted()) << "there are 8 counters";
  EXPECT_EQ(bridge.counts().rdpmcs, 3U);
}

TEST_F(VcpuPmuTest, AnswersRdmsrElsewhereAsRdmsr) {
  write(index_of(ia32_pmc[1]), 0x55);
  vcpu.rip_ = patched_rip + 1;
  EXPECT_TRUE(read(1));
  EXPECT_FALSE(faulted());
  EXPECT_EQ(run->msr.data, 0U) << "IA32_P5_MC_TYPE";
  EXPECT_TRUE(read(2));
  EXPECT_TRUE(faulted());
  EXPECT_TRUE(read(0x40000001));
  EXPECT_TRUE(faulted());
  EXPECT_EQ(bridge.counts().unpatched_rdmsrs, 3U);
}

// --- PMIs ---

TEST_F(VcpuPmuTest, InjectsAnNmiOnce) {
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  EXPECT_EQ(vcpu.nmis, 0) << "not before the next entry";
  go(0);
  go(0);
  EXPECT_EQ(vcpu.nmis, 1);
  EXPECT_EQ(bridge.counts().pmis, 1U);
}

TEST_F(VcpuPmuTest, InjectsTheVectorOfAFixedLvtpc) {
  vcpu.lvtpc_ = 0xEC;
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  go(0);
  EXPECT_THAT(vcpu.vectors, ElementsAre(0xEC));
  EXPECT_EQ(vcpu.nmis, 0);
}

TEST_F(VcpuPmuTest, DropsAPmiWhileLvtpcIsMaskedAndKeepsItsStatus) {
  vcpu.lvtpc_ = lvt_nmi | lvt_masked;
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  go(0);
  vcpu.lvtpc_ = lvt_nmi;
  go(0);
  EXPECT_EQ(vcpu.nmis, 0);
  EXPECT_EQ(bridge.counts().pmis_masked, 1U);
  read(index_of(Msr::ia32_perf_global_status));
  EXPECT_EQ(run->msr.data, 1U);
}

TEST_F(VcpuPmuTest, DropsAPmiForModesThatAreNone) {
  for (const std::uint32_t lvtpc : {2U << 8, 5U << 8, 7U << 8, 0x0FU}) {
    vcpu.lvtpc_ = lvtpc;
    overflow(ia32_perfevtsel[0], ia32_pmc[0]);
    go(0);
  }
  EXPECT_EQ(vcpu.nmis, 0);
  EXPECT_THAT(vcpu.vectors, IsEmpty());
}

TEST_F(VcpuPmuTest, HoldsTheNextPmiUntilTheGuestAcknowledges) {
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  go(0);
  overflow(ia32_perfevtsel[1], ia32_pmc[1]);
  go(0);
  EXPECT_EQ(vcpu.nmis, 1);
  EXPECT_EQ(bridge.counts().pmis_held, 1U);
  write(index_of(Msr::ia32_perf_global_ovf_ctrl), 1);
  go(0);
  EXPECT_EQ(vcpu.nmis, 2) << "the second counter's status is left";
}

TEST_F(VcpuPmuTest, DropsAHeldPmiWhoseStatusTheHandlerHasSeenAlready) {
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  go(0);
  overflow(ia32_perfevtsel[1], ia32_pmc[1]);
  go(0);
  write(index_of(Msr::ia32_perf_global_ovf_ctrl), 3);
  go(0);
  EXPECT_EQ(vcpu.nmis, 1);
}

TEST_F(VcpuPmuTest, ARefusedAcknowledgementIsNone) {
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  go(0);
  overflow(ia32_perfevtsel[1], ia32_pmc[1]);
  write(index_of(Msr::ia32_perf_global_ovf_ctrl), 1ULL << 20);
  EXPECT_TRUE(faulted());
  go(0);
  EXPECT_EQ(vcpu.nmis, 1);
}

TEST_F(VcpuPmuTest, AResetForgetsWhatWasHeld) {
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  go(0);
  overflow(ia32_perfevtsel[1], ia32_pmc[1]);
  go(0);
  world.pmu.reset();
  bridge.reset();
  go(0);
  EXPECT_EQ(vcpu.nmis, 1);
  overflow(ia32_perfevtsel[0], ia32_pmc[0]);
  go(0);
  EXPECT_EQ(vcpu.nmis, 2);
}

TEST_F(AmdVcpuPmuTest, HoldsNothingOnAmd) {
  write(index_of(Msr::amd_perf_cntr_global_ctl), 0x3F);
  overflow(amd_core_perf_ctl[0], amd_core_perf_ctr[0]);
  go(0);
  overflow(amd_core_perf_ctl[1], amd_core_perf_ctr[1]);
  go(0);
  EXPECT_EQ(vcpu.nmis, 2);
}

}  // namespace
}  // namespace vpmu::kvm
