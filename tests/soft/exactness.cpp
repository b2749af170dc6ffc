// Stops, counts and time: exact to the instruction, and the same each time.
#include <gtest/gtest.h>

#include "soft/rig.hpp"

namespace vpmu::soft::test {
namespace {

using model::Event;

/// mov rcx, 5; loop: add rax, rcx; imul rdx, rcx; push rax; pop rbx; dec rcx; jnz loop; call f; hlt; f: ret
constexpr std::initializer_list<unsigned> program{0x48, 0xc7, 0xc1, 0x05, 0,    0,    0,    0x48, 0x01, 0xc8,
                                                  0x48, 0x0f, 0xaf, 0xd1, 0x50, 0x5b, 0x48, 0xff, 0xc9, 0x75,
                                                  0xf2, 0xe8, 0x01, 0,    0,    0,    0xf4, 0xc3};
constexpr u64 program_instructions = 1 + 5 * 6 + 2, program_branches = 5 + 2;
constexpr u64 program_cycles = program_instructions + 5 * 2;  // A multiplication takes three.

TEST(SoftExactness, CountsEveryInstructionBranchAndCycleOnce) {
  Rig rig;
  rig.put(Rig::code, program);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], program_instructions);
  EXPECT_EQ(rig.sink.kernel[Event::branches], program_branches);
  EXPECT_EQ(rig.sink.kernel[Event::cycles], program_cycles);
  EXPECT_EQ(rig.sink.kernel[Event::ref_cycles], program_cycles * 5 / 6);
  EXPECT_EQ(rig.sink.user[Event::instructions], 0u);
}

TEST(SoftExactness, StopsAtExactlyTheInstructionThatOverflows) {
  // The path: where RIP is after each number of instructions, by single steps.
  std::vector<u64> path;
  {
    Rig rig;
    rig.put(Rig::code, program);
    for (u64 n = 1; n <= program_instructions; ++n) {
      rig.cpu.set_instruction_limit(n);
      EXPECT_EQ(rig.cpu.run().reason, ExitReason::instruction_limit);
      path.push_back(rig.cpu.state().rip);
    }
  }
  for (u64 room = 0; room < program_instructions; ++room) {
    Rig rig;
    rig.put(Rig::code, program);
    rig.sink.room.instructions = room;
    const Exit exit = rig.cpu.run();
    EXPECT_EQ(exit.reason, ExitReason::overflow) << room;
    EXPECT_EQ(rig.sink.kernel[Event::instructions], room + 1) << room;
    EXPECT_EQ(rig.cpu.state().rip, path[room]) << room;
    EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
    EXPECT_EQ(rig.sink.kernel[Event::instructions], program_instructions);
  }
}

TEST(SoftExactness, StopsAtExactlyTheBranchThatOverflows) {
  for (u64 room = 0; room < program_branches; ++room) {
    Rig rig;
    rig.put(Rig::code, program);
    rig.sink.room.branches = room;
    EXPECT_EQ(rig.cpu.run().reason, ExitReason::overflow);
    EXPECT_EQ(rig.sink.kernel[Event::branches], room + 1);
  }
}

TEST(SoftExactness, StopsAfterTheInstructionInWhichTheCycleCounterOverflows) {
  for (u64 room = 0; room < program_cycles; ++room) {
    Rig rig;
    rig.put(Rig::code, program);
    rig.sink.room.cycles = room;
    EXPECT_EQ(rig.cpu.run().reason, ExitReason::overflow);
    EXPECT_GT(rig.sink.kernel[Event::cycles], room);
    EXPECT_LE(rig.sink.kernel[Event::cycles], room + 3);
  }
}

TEST(SoftExactness, StopsAtTheDeadline) {
  for (u64 deadline = 1; deadline < program_cycles * 5 / 6; ++deadline) {
    Rig rig;
    rig.put(Rig::code, program);
    rig.cpu.set_deadline(deadline);
    EXPECT_EQ(rig.cpu.run().reason, ExitReason::deadline);
    EXPECT_GE(rig.cpu.tsc(), deadline);
    EXPECT_LE(rig.cpu.tsc(), deadline + 3);
  }
}

TEST(SoftExactness, CountsLongRunsWithoutLoss) {
  Rig rig;
  rig.put(Rig::code, {0x48, 0xff, 0xc9, 0x75, 0xfb, 0xf4});  // dec rcx; jnz; hlt
  rig.cpu.state().gpr[rcx] = 5'000'000;
  rig.sink.room.instructions = 7'654'321;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::overflow);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 7'654'322u);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 10'000'000u);
  EXPECT_EQ(rig.sink.kernel[Event::branches], 5'000'000u);
}

TEST(SoftExactness, RepeatedStringInstructionsRetireOnce) {
  Rig rig;
  rig.put(Rig::code, {0xf3, 0xa4, 0xf3, 0xaa, 0xf4});  // rep movsb; rep stosb; hlt
  CpuState& s = rig.cpu.state();
  s.gpr[rcx] = 100'000;  // Runs over pages, and in several portions.
  s.gpr[rsi] = 0x200000;
  s.gpr[rdi] = 0x300000;
  *rig.memory.at(0x200000 + 99'999) = 7;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 2u);
  EXPECT_EQ(s.gpr[rcx], 0u);
  EXPECT_EQ(*rig.memory.at(0x300000 + 99'999), 7);
}

TEST(SoftExactness, FaultingInstructionsDoNotRetire) {
  Rig rig;
  rig.put(Rig::code, {0x90, 0x0f, 0x0b});  // nop; ud2
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 1u);
  EXPECT_EQ(rig.sink.kernel[Event::branches], 0u);
}

TEST(SoftExactness, AmdCountsExceptionsAndInterruptsAsBranches) {
  CpuOptions options;
  options.exceptions_are_branches = true;
  Rig rig(options);
  rig.put(Rig::code, {0x90, 0x0f, 0x0b});
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 1u);
  EXPECT_EQ(rig.sink.kernel[Event::branches], 1u);
}

TEST(SoftExactness, SystemCallsCountAtTheLevelAtWhichTheyBegan) {
  Rig rig;
  rig.user_mode();
  rig.put(Rig::code, {0x0f, 0x05, 0xf4});  // syscall (user); then hlt faults there
  rig.put(0x50000, {0x48, 0x0f, 0x07});    // sysret (kernel)
  CpuState& s = rig.cpu.state();
  s.lstar = 0x50000;
  s.star = (u64{0x1b} << 48) | (u64{0x08} << 32);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);  // In the #GP handler.
  EXPECT_EQ(rig.sink.user[Event::instructions], 1u);
  EXPECT_EQ(rig.sink.user[Event::branches], 1u);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 1u);
  EXPECT_EQ(rig.sink.kernel[Event::branches], 1u);
  EXPECT_EQ(s.rip, Rig::handlers + vector::gp * 16);
}

TEST(SoftExactness, InstructionsThatExitAreTheMachinesToCount) {
  Rig rig;
  rig.put(Rig::code, {0x90, 0x0f, 0xa2, 0x90, 0xf4});  // nop; cpuid; nop; hlt
  rig.cpu.state().gpr[rax] = 41;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::cpuid);
  EXPECT_EQ(rig.cpu.state().rip, Rig::code + 1);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 1u);
  EXPECT_TRUE(rig.cpu.emulate());
  EXPECT_EQ(rig.cpu.state().gpr[rax], 42u);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 2u);
  EXPECT_EQ(rig.cpu.state().rip, Rig::code + 4);
}

TEST(SoftExactness, AnMsrThatFaultsIsDeliveredAndNotRetired) {
  Rig rig;
  rig.put(Rig::code, {0x0f, 0x32});  // rdmsr
  rig.cpu.state().gpr[rcx] = 0x9999;
  const Exit exit = rig.cpu.run();
  EXPECT_EQ(exit.reason, ExitReason::rdmsr);
  EXPECT_EQ(exit.index, 0x9999u);
  EXPECT_FALSE(rig.cpu.emulate());
  EXPECT_EQ(rig.cpu.state().rip, Rig::handlers + vector::gp * 16);
}

TEST(SoftExactness, WithoutInterceptionAWrmsrCountsAfterItTookEffect) {
  CpuOptions options;
  options.intercept_msrs = false;
  Rig rig(options);
  rig.put(Rig::code, {0x90, 0x0f, 0x30, 0xf4});  // nop; wrmsr; hlt
  rig.cpu.state().gpr[rcx] = ScriptedEnvironment::known_msr;
  rig.cpu.state().gpr[rax] = 5;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.environment.msr_value, 5u);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 2u);
  EXPECT_EQ(rig.sink.advances, 2u) << "one before it took effect, one after";
}

TEST(SoftExactness, AnAccessThatPassesDoesNotExit) {
  Rig rig;
  // wrmsr; rdmsr; rdpmc; then a wrmsr that does not pass
  rig.put(Rig::code, {0x0f, 0x30, 0x0f, 0x32, 0x31, 0xc9, 0x0f, 0x33, 0xb9, 0x99, 0x99, 0, 0, 0x0f, 0x30});
  rig.environment.passed_msr = ScriptedEnvironment::known_msr;
  rig.environment.rdpmc_passes = true;
  rig.cpu.state().gpr[rcx] = ScriptedEnvironment::known_msr;
  rig.cpu.state().gpr[rax] = 5;
  const Exit exit = rig.cpu.run();
  EXPECT_EQ(exit.reason, ExitReason::wrmsr);
  EXPECT_EQ(exit.index, 0x9999u);
  EXPECT_EQ(rig.environment.msr_value, 5u);
  EXPECT_EQ(rig.cpu.state().gpr[rax], 77u);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], 5u) << "they retire on the CPU";
}

TEST(SoftExactness, EventModelsChangeNoOtherCount) {
  Rig rig;
  rig.put(Rig::code, program);
  rig.sink.used[model::index_of(Event::llc_misses)] = true;
  rig.sink.used[model::index_of(Event::branch_misses)] = true;
  rig.sink.edges = true;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::instructions], program_instructions);
  EXPECT_EQ(rig.sink.kernel[Event::branches], program_branches);
  EXPECT_EQ(rig.sink.kernel[Event::cycles], program_cycles);
  EXPECT_GT(rig.sink.kernel[Event::llc_misses], 0u);
  EXPECT_GT(rig.sink.kernel[Event::branch_misses], 0u);
  EXPECT_LE(rig.sink.kernel[Event::branch_misses], program_branches);
  // The cycle before: idle at the start and during each multiplication.
  EXPECT_EQ(rig.sink.kernel.edges[model::index_of(Event::instructions)], 1u + 5u);
}

TEST(SoftExactness, AFlushedLineMissesTheCacheAgain) {
  Rig rig;
  // mov rax,[rbx] three times, the last after a clflush
  rig.put(Rig::code, {0x48, 0x8b, 0x03, 0x48, 0x8b, 0x03, 0x0f, 0xae, 0x3b, 0x48, 0x8b, 0x03, 0xf4});
  rig.cpu.state().gpr[rbx] = Rig::data;
  rig.sink.used[model::index_of(Event::llc_misses)] = true;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.sink.kernel[Event::llc_misses], 2u);
}

TEST(SoftExactness, TwoRunsAreIdentical) {
  const auto run = [] {
    Rig rig;
    rig.put(Rig::code, program);
    rig.sink.used[model::index_of(Event::branch_misses)] = true;
    std::vector<u64> seen;
    for (u64 room = 3; room < 20; room += 4) {
      rig.sink.room.instructions = room;
      (void)rig.cpu.run();
      seen.push_back(rig.cpu.state().rip);
      seen.push_back(rig.cpu.tsc());
      for (const u64 each : rig.sink.kernel.count) seen.push_back(each);
    }
    return seen;
  };
  EXPECT_EQ(run(), run());
}

TEST(SoftExactness, HostTimeMovesTheTscAndNothingElse) {
  Rig rig;
  rig.put(Rig::code, {0x0f, 0x31, 0xf4});  // rdtsc
  rig.cpu.advance_host_time(1000);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().gpr[rax], 1000u + 20 * 5 / 6);
  EXPECT_EQ(rig.sink.kernel[Event::cycles], 20u);
}

}  // namespace
}  // namespace vpmu::soft::test
