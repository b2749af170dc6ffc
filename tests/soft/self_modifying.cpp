// Code that changes code takes effect at the next instruction: in its page, in its own block, ahead by one.
#include <gtest/gtest.h>

#include "soft/rig.hpp"

namespace vpmu::soft::test {
namespace {

TEST(SoftSelfModifyingCode, ChangesTheVeryNextInstruction) {
  Rig rig;
  // mov byte [rip + 1], 0x43 (over the ModRM of what follows...): inc eax becomes inc ebx.
  // c6 05 disp32 imm8: 7 bytes; then ff c0 -> ff c3; hlt
  rig.put(Rig::code, {0xc6, 0x05, 0x01, 0, 0, 0, 0xc3, 0xff, 0xc0, 0xf4});
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().gpr[rax], 0u);
  EXPECT_EQ(rig.cpu.state().gpr[rbx], 1u);
  EXPECT_EQ(rig.sink.kernel[model::Event::instructions], 2u);
}

TEST(SoftSelfModifyingCode, ChangesABlockThatRanBefore) {
  Rig rig;
  // f at 0x10100: inc eax; ret. Called, rewritten to dec eax, called again.
  rig.put(Rig::code + 0x100, {0xff, 0xc0, 0xc3});
  rig.put(Rig::code, {0xe8, 0xfb, 0, 0, 0,              // call f
                      0xc6, 0x05, 0xf5, 0, 0, 0, 0xc8,  // mov byte [f + 1], 0xc8
                      0xe8, 0xef, 0, 0, 0,              // call f
                      0xf4});
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().gpr[rax], 0u);
}

TEST(SoftSelfModifyingCode, WorksThroughAnotherMapping) {
  Rig rig;
  // Linear 2 MiB + x maps to the first 2 MiB as well.
  rig.put_u64(Rig::tables + 0x2000 + 8, 0xe7);
  rig.put(Rig::code + 0x100, {0xff, 0xc0, 0xc3});
  rig.put(Rig::code, {0xe8, 0xfb, 0, 0, 0, 0xc6, 0x03, 0xc8, 0xe8, 0xf3, 0, 0, 0, 0xf4});
  rig.cpu.state().gpr[rbx] = 0x200000 + Rig::code + 0x101;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().gpr[rax], 0u);
}

TEST(SoftSelfModifyingCode, StringStoresRewriteWhatFollows) {
  Rig rig;
  // rep stosb over 16 bytes just behind it: nops become incs of eax? 0x90 -> 0x90; then hlt stays.
  rig.put(Rig::code, {0xf3, 0xaa});
  for (u64 n = 0; n < 16; ++n) rig.put(Rig::code + 2 + n, {0xf4});
  rig.put(Rig::code + 18, {0xf4});
  CpuState& s = rig.cpu.state();
  s.gpr[rdi] = Rig::code + 2;
  s.gpr[rcx] = 16;
  s.gpr[rax] = 0x90;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(s.rip, Rig::code + 18);
  EXPECT_EQ(rig.sink.kernel[model::Event::instructions], 17u);
}

TEST(SoftSelfModifyingCode, DataBesideCodeIsWrittenWithoutDroppingIt) {
  Rig rig;
  // loop: inc qword [rip + 0x100]; dec rcx; jnz; hlt
  rig.put(Rig::code, {0x48, 0xff, 0x05, 0x00, 0x01, 0, 0, 0x48, 0xff, 0xc9, 0x75, 0xf4, 0xf4});
  rig.cpu.state().gpr[rcx] = 1000;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.get_u64(Rig::code + 7 + 0x100), 1000u);
}

TEST(SoftSelfModifyingCode, AnInstructionAcrossPagesSeesBothChange) {
  Rig rig;
  // mov eax, imm32 with its last two bytes in the next page; run, patch the second page, run again.
  rig.put(0x10ffd, {0xb8, 0x11, 0x22, 0x33, 0x44, 0xc3});
  rig.put(Rig::code, {0xe8, 0xf8, 0x0f, 0, 0, 0x89, 0xc2, 0xc6, 0x03, 0x55, 0xe8, 0xee, 0x0f, 0, 0, 0xf4});
  rig.cpu.state().gpr[rbx] = 0x11001;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().gpr[rdx], 0x44332211u);
  EXPECT_EQ(rig.cpu.state().gpr[rax], 0x55332211u);
}

TEST(SoftSelfModifyingCode, APageTableChangeAndInvlpgChangeTheCode) {
  Rig rig;
  // Linear 2 MiB: first the page of f, then that of g.
  rig.put(0x400000, {0xff, 0xc0, 0xc3});
  rig.put(0x600000, {0xff, 0xc3, 0xc3});
  rig.put_u64(Rig::tables + 0x2000 + 8, 0x4000e7);
  // call rbx; mov [rdx], rsi; invlpg [rbx]; call rbx; hlt
  rig.put(Rig::code, {0xff, 0xd3, 0x48, 0x89, 0x32, 0x0f, 0x01, 0x3b, 0xff, 0xd3, 0xf4});
  CpuState& s = rig.cpu.state();
  s.gpr[rbx] = 0x200000;
  s.gpr[rdx] = Rig::tables + 0x2000 + 8;
  s.gpr[rsi] = 0x6000e7;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(s.gpr[rax], 1u);
  EXPECT_EQ(s.gpr[rbx], 0x200001u);
}

}  // namespace
}  // namespace vpmu::soft::test
