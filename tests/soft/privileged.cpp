// Privileged, control-transfer and faulting forms against what the manuals say.
#include <gtest/gtest.h>

#include "soft/rig.hpp"

namespace vpmu::soft::test {
namespace {

/// The frame that an exception left: RIP, CS, RFLAGS, RSP, SS; an error code below them if there is one.
struct Frame {
  u64 vector = 0, error = 0, rip = 0, cs = 0, flags = 0, rsp = 0, ss = 0;
};

/// Runs until a handler halts, and reads its frame.
Frame run_to_exception(Rig& rig) {
  Frame f;
  Exit exit = rig.cpu.run();
  EXPECT_EQ(exit.reason, ExitReason::hlt);
  const CpuState& s = rig.cpu.state();
  EXPECT_GE(s.rip, Rig::handlers);
  EXPECT_LT(s.rip, Rig::handlers + 256 * 16);
  f.vector = (s.rip - Rig::handlers) / 16;
  const bool has_error =
      f.vector == vector::df || (f.vector >= vector::ts && f.vector <= vector::pf) || f.vector == vector::ac;
  u64 at = s.gpr[rsp];
  if (has_error) {
    f.error = rig.get_u64(at);
    at += 8;
  }
  f.rip = rig.get_u64(at);
  f.cs = rig.get_u64(at + 8);
  f.flags = rig.get_u64(at + 16);
  f.rsp = rig.get_u64(at + 24);
  f.ss = rig.get_u64(at + 32);
  return f;
}

constexpr u64 page_entry(u64 megabytes) { return Rig::tables + 0x2000 + megabytes / 2 * 8; }

/// Splits the 2 MiB page at linear 2 MiB into 4 KiB pages with these low bits for the first.
u64 split_second_page(Rig& rig, u64 bits) {
  const u64 table = Rig::tables + 0x3000;
  for (u64 n = 0; n < 512; ++n) rig.put_u64(table + n * 8, (0x200000 + n * 4096) | 7);
  rig.put_u64(table, 0x200000 | bits);
  rig.put_u64(page_entry(2), table | 7);
  rig.cpu.state_changed();
  return 0x200000;
}

TEST(SoftFaults, AFaultSavesItsOwnRipAndSetsRf) {
  Rig rig;
  rig.put(Rig::code, {0x90, 0x0f, 0x0b});
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::ud);
  EXPECT_EQ(f.rip, Rig::code + 1);
  EXPECT_EQ(f.cs, Rig::cs64);
  EXPECT_EQ(f.rsp, Rig::stack);
  EXPECT_EQ(f.ss, Rig::ds);
  EXPECT_EQ(f.flags, flag::rf | flag::fixed_one);
}

TEST(SoftFaults, ATrapSavesTheNextRipAndNoRf) {
  Rig rig;
  rig.put(Rig::code, {0xcc});
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::bp);
  EXPECT_EQ(f.rip, Rig::code + 1);
  EXPECT_EQ(f.flags & flag::rf, 0u);
  EXPECT_EQ(rig.sink.kernel[model::Event::branches], 1u) << "INT3 is a branch that retires";
}

TEST(SoftFaults, DivisionByZeroRaisesDe) {
  Rig rig;
  rig.put(Rig::code, {0x48, 0xf7, 0xf1});
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::de);
  EXPECT_EQ(f.rip, Rig::code);
}

TEST(SoftFaults, PageFaultsTellWhatTheAccessWas) {
  struct Case {
    const char* what;
    u64 bits;
    bool user;
    std::initializer_list<unsigned> code;
    u64 error;
  };
  static constexpr std::initializer_list<unsigned> load{0x48, 0x8b, 0x03}, store{0x48, 0x89, 0x03}, call{0xff, 0xe3};
  const std::vector<Case> cases{
      {"read of a page that is not present", 6, false, load, 0},
      {"write of a page that is not present", 6, false, store, 2},
      {"user read of a page that is not present", 6, true, load, 4},
      {"kernel write of a read-only page", 5, false, store, 3},
      {"user read of a supervisor page", 3, true, load, 5},
      {"user write of a read-only page", 5, true, store, 7},
      {"read through a reserved bit", 7 | u64{1} << 50, false, load, 9},
      {"fetch of a page with NX", 7 | u64{1} << 63, false, call, 0x11},
      {"user fetch of a page with NX", 7 | u64{1} << 63, true, call, 0x15},
      {"user fetch of a supervisor page", 3, true, call, 0x15},
      {"fetch of a page that is not present", 6, false, call, 0x10},
  };
  for (const Case& each : cases) {
    Rig rig;
    if (each.user) rig.user_mode();
    const u64 page = split_second_page(rig, each.bits);
    rig.put(Rig::code, each.code);
    rig.cpu.state().gpr[rbx] = page + 8;
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::pf) << each.what;
    EXPECT_EQ(f.error, each.error) << each.what;
    EXPECT_EQ(rig.cpu.state().cr2, page + 8) << each.what;
    const bool fetch = (each.error & 0x10) != 0;
    EXPECT_EQ(f.rip, fetch ? page + 8 : Rig::code) << each.what;
    EXPECT_EQ(rig.sink.total(model::Event::instructions), fetch ? 1u : 0u) << each.what;
    EXPECT_EQ(f.cs, each.user ? Rig::user_cs64 : Rig::cs64) << each.what;
  }
}

TEST(SoftFaults, WithoutWpTheKernelWritesReadOnlyPages) {
  Rig rig;
  const u64 page = split_second_page(rig, 5);
  rig.cpu.state().cr0 &= ~cr0::wp;
  rig.cpu.state_changed();
  rig.put(Rig::code, {0x48, 0x89, 0x03, 0xf4});
  rig.cpu.state().gpr[rbx] = page;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().rip, Rig::code + 3);
}

TEST(SoftFaults, AccessSetsAccessedAndDirtyBits) {
  Rig rig;
  const u64 page = split_second_page(rig, 7);
  rig.put(Rig::code, {0x48, 0x8b, 0x03, 0x48, 0x89, 0x83, 0x00, 0x10, 0, 0, 0xf4});
  rig.cpu.state().gpr[rbx] = page;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.get_u64(Rig::tables + 0x3000) & 0x60, 0x20u);
  EXPECT_EQ(rig.get_u64(Rig::tables + 0x3008) & 0x60, 0x60u);
}

TEST(SoftFaults, AnAccessOverAPageEdgeFaultsWithTheSecondPagesAddressAndDoesNothing) {
  Rig rig;
  const u64 page = split_second_page(rig, 7);
  rig.put_u64(Rig::tables + 0x3008, 0);
  rig.cpu.state_changed();
  rig.put(Rig::code, {0x48, 0x89, 0x03});
  rig.cpu.state().gpr[rbx] = page + 0xffc;
  rig.cpu.state().gpr[rax] = ~u64{0};
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::pf);
  EXPECT_EQ(rig.cpu.state().cr2, page + 0x1000);
  EXPECT_EQ(rig.get_u64(page + 0xff8) >> 32, 0u);
}

TEST(SoftFaults, AnInstructionOverAPageEdgeFaultsWithTheSecondPagesAddress) {
  Rig rig;
  const u64 page = split_second_page(rig, 7);
  rig.put_u64(Rig::tables + 0x3008, 0);
  rig.cpu.state_changed();
  rig.put(page + 0xffd, {0x90, 0x90, 0xb8});
  rig.cpu.state().rip = page + 0xffd;
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::pf);
  EXPECT_EQ(f.rip, page + 0xfff);
  EXPECT_EQ(f.error, 0x10u);
  EXPECT_EQ(rig.cpu.state().cr2, page + 0x1000);
}

TEST(SoftFaults, NonCanonicalAddressesRaiseGpAndOnTheStackSs) {
  {
    Rig rig;
    rig.put(Rig::code, {0x48, 0x8b, 0x03});
    rig.cpu.state().gpr[rbx] = u64{1} << 47;
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::gp);
    EXPECT_EQ(f.error, 0u);
  }
  {
    Rig rig;
    rig.gate(vector::ss, Rig::handlers + vector::ss * 16, 0x8e, 1);
    rig.put(Rig::code, {0x50});
    rig.cpu.state().gpr[rsp] = u64{1} << 47 | 0x100;
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::ss);
    EXPECT_EQ(f.rip, Rig::code);
    EXPECT_EQ(f.rsp, u64{1} << 47 | 0x100);
  }
  {
    Rig rig;
    rig.put(Rig::code, {0xff, 0xe3});
    rig.cpu.state().gpr[rbx] = u64{1} << 50;
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::gp);
    EXPECT_EQ(f.rip, Rig::code);
  }
}

TEST(SoftFaults, PrivilegedInstructionsFaultInUserMode) {
  const std::vector<std::vector<u8>> all{{0xf4},
                                         {0xfa},
                                         {0xfb},
                                         {0x0f, 0x32},
                                         {0x0f, 0x30},
                                         {0x0f, 0x20, 0xc0},
                                         {0x0f, 0x22, 0xd8},
                                         {0x0f, 0x01, 0x13},
                                         {0x0f, 0x01, 0x3b},
                                         {0x0f, 0x09},
                                         {0x0f, 0x06},
                                         {0xe4, 0x10},
                                         {0xee},
                                         {0x0f, 0x00, 0xd8},
                                         {0x0f, 0x01, 0xf8},
                                         {0x0f, 0x21, 0xf8},
                                         {0x48, 0x0f, 0x07},
                                         {0x6c},
                                         {0x6e}};
  for (const auto& bytes : all) {
    Rig rig;
    rig.user_mode();
    rig.memory.write(Rig::code, bytes.data(), bytes.size());
    rig.cpu.state().gpr[rbx] = Rig::data;
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::gp) << std::hex << unsigned{bytes[0]} << " " << unsigned{bytes.back()};
    EXPECT_EQ(f.error, 0u);
    EXPECT_EQ(f.rip, Rig::code);
    EXPECT_EQ(rig.sink.total(model::Event::instructions), 0u);
  }
}

TEST(SoftFaults, UserModeEntersTheKernelOnItsStackFromTheTss) {
  Rig rig;
  rig.user_mode();
  rig.put(Rig::code, {0x0f, 0x0b});
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(rig.cpu.state().cpl, 0u);
  EXPECT_EQ(rig.cpu.state().gpr[rsp], 0x38000u - 40);
  EXPECT_EQ(rig.cpu.state().segment(Seg::ss).selector, 0u) << "a null selector with RPL 0";
  EXPECT_EQ(f.cs, Rig::user_cs64);
  EXPECT_EQ(f.ss, Rig::user_ds);
  EXPECT_EQ(f.rsp, Rig::stack);
}

TEST(SoftFaults, AnIstStackIsUsedWhateverThePrivilege) {
  Rig rig;
  rig.gate(vector::ud, Rig::handlers + vector::ud * 16, 0x8e, 1);
  rig.put(Rig::code, {0x0f, 0x0b});
  (void)run_to_exception(rig);
  EXPECT_EQ(rig.cpu.state().gpr[rsp], 0x3a000u - 40);
}

TEST(SoftFaults, TheFrameIsAlignedToSixteenBytes) {
  Rig rig;
  rig.put(Rig::code, {0x0f, 0x0b});
  rig.cpu.state().gpr[rsp] = Rig::stack - 5;
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(rig.cpu.state().gpr[rsp], Rig::stack - 16 - 40);
  EXPECT_EQ(f.rsp, Rig::stack - 5);
}

TEST(SoftFaults, SoftwareInterruptsHonourTheGatesPrivilege) {
  {
    Rig rig;
    rig.user_mode();
    rig.put(Rig::code, {0xcd, 0x40});
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::gp);
    EXPECT_EQ(f.error, 0x40u << 3 | 2) << "an IDT entry, not external";
    EXPECT_EQ(f.rip, Rig::code);
    EXPECT_EQ(rig.sink.user[model::Event::instructions], 0u);
  }
  {
    Rig rig;
    rig.gate(0x40, Rig::handlers + 0x40 * 16, 0xee, 0);
    rig.user_mode();
    rig.put(Rig::code, {0xcd, 0x40});
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, 0x40u);
    EXPECT_EQ(f.rip, Rig::code + 2);
    EXPECT_EQ(rig.sink.user[model::Event::branches], 1u);
  }
}

TEST(SoftFaults, AbsentGatesRaiseNpAndBadOnesGp) {
  {
    Rig rig;
    rig.gate(0x41, Rig::handlers, 0x0e, 0);
    rig.put(Rig::code, {0xcd, 0x41});
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::np);
    EXPECT_EQ(f.error, 0x41u << 3 | 2);
  }
  {
    Rig rig;
    rig.gate(vector::ud, Rig::handlers, 0x0e, 0);
    rig.put(Rig::code, {0x0f, 0x0b});
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::np);
    EXPECT_EQ(f.error, u64{vector::ud} << 3 | 3) << "external: no INT n asked for it";
    EXPECT_EQ(f.rip, Rig::code);
  }
}

TEST(SoftFaults, SegmentLoadsCheckTheDescriptor) {
  struct Case {
    u16 selector;
    std::initializer_list<unsigned> code;
    u8 vector;
    u64 error;
  };
  static constexpr std::initializer_list<unsigned> ds{0x8e, 0xd8}, ss{0x8e, 0xd0};
  const std::vector<Case> cases{{0x1234, ds, vector::gp, 0x1234}, {Rig::tss_selector, ds, vector::gp, 0x40},
                                {Rig::cs64, ss, vector::gp, 8},   {Rig::user_ds, ss, vector::gp, 0x20},
                                {0x38, ds, vector::np, 0x38},     {0x38, ss, vector::ss, 0x38}};
  for (const Case& each : cases) {
    Rig rig;
    rig.put_u64(Rig::gdt + 0x38, Rig::flat(0x13, 0xc));
    rig.put(Rig::code, each.code);
    rig.cpu.state().gpr[rax] = each.selector;
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, each.vector) << each.selector;
    EXPECT_EQ(f.error, each.error) << each.selector;
  }
}

TEST(SoftFaults, ContributoryFaultsMakeADoubleFaultAndThenShutdown) {
  {
    Rig rig;
    rig.gate(vector::gp, Rig::handlers, 0x0e, 0);  // #GP's gate is absent: #NP on top of #GP.
    rig.put(Rig::code, {0x0f, 0x32});
    rig.cpu.state().gpr[rcx] = 0x9999;
    EXPECT_EQ(rig.cpu.run().reason, ExitReason::rdmsr);
    EXPECT_FALSE(rig.cpu.emulate());
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, vector::df);
    EXPECT_EQ(f.error, 0u);
    EXPECT_EQ(f.rip, Rig::code);
  }
  {
    Rig rig;
    rig.gate(vector::gp, Rig::handlers, 0x0e, 0);
    rig.gate(vector::df, Rig::handlers, 0x0e, 0);
    rig.put(Rig::code, {0x48, 0x8b, 0x03});
    rig.cpu.state().gpr[rbx] = u64{1} << 63;
    EXPECT_EQ(rig.cpu.run().reason, ExitReason::shutdown);
  }
}

TEST(SoftFaults, EndlessExceptionsEnd) {
  // An exception handler whose first instruction raises it again, on the same IST stack.
  Rig rig;
  rig.gate(vector::ud, Rig::code, 0x8e, 1);
  rig.put(Rig::code, {0x0f, 0x0b});
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::stuck);
}

TEST(SoftFaults, ASingleStepTrapsAfterEachInstruction) {
  Rig rig;
  rig.put(Rig::code, {0x90, 0x90});
  rig.cpu.state().system_flags |= flag::tf;
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::db);
  EXPECT_EQ(f.rip, Rig::code + 1);
  EXPECT_EQ(f.flags & (flag::tf | flag::rf), flag::tf);
  EXPECT_EQ(rig.cpu.state().dr[6] & 0x4000, 0x4000u);
  EXPECT_EQ(rig.cpu.state().system_flags & flag::tf, 0u);
}

TEST(SoftFaults, UnalignedUserAccessesTrapIfTheyAreToBeChecked) {
  Rig rig;
  rig.cpu.state().cr0 |= cr0::am;
  rig.cpu.state().system_flags |= flag::ac;
  rig.user_mode();
  rig.put(Rig::code, {0x48, 0x8b, 0x03});
  rig.cpu.state().gpr[rbx] = Rig::data + 4;
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::ac);
  EXPECT_EQ(f.error, 0u);
}

TEST(SoftFaults, UnknownInstructionsAreNamed) {
  Rig rig;
  rig.put(Rig::code, {0x0f, 0x01, 0xd0});  // xgetbv, without OSXSAVE
  EXPECT_EQ(run_to_exception(rig).vector, vector::ud);
  ASSERT_EQ(rig.cpu.unknown().size(), 1u);
  EXPECT_EQ(rig.cpu.unknown()[0].text, "xgetbv (0f 01 d0)");
  EXPECT_EQ(rig.cpu.unknown()[0].rip, Rig::code);
}

TEST(SoftTransfers, IretGoesToUserModeWithItsFlags) {
  Rig rig;
  rig.put(Rig::code, {0x48, 0xcf});
  rig.put(0x50000, {0xf4});  // Faults in user mode.
  const std::array<u64, 5> frame{0x50000, Rig::user_cs64, flag::if_ | flag::rf | flag::cf | 2, 0x36000, Rig::user_ds};
  CpuState& s = rig.cpu.state();
  s.gpr[rsp] = Rig::stack - 40;
  rig.memory.write(Rig::stack - 40, frame.data(), sizeof frame);
  s.segment(Seg::fs).usable = true;
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::gp);
  EXPECT_EQ(f.rip, 0x50000u);
  EXPECT_EQ(f.cs, Rig::user_cs64);
  EXPECT_EQ(f.ss, Rig::user_ds);
  EXPECT_EQ(f.rsp, 0x36000u);
  EXPECT_EQ(f.flags, flag::if_ | flag::rf | flag::cf | flag::fixed_one);
  EXPECT_EQ(rig.sink.kernel[model::Event::instructions], 1u) << "counted where it began";
  EXPECT_EQ(rig.sink.user[model::Event::instructions], 0u);
  EXPECT_FALSE(s.segment(Seg::ds).usable) << "kernel data segments are dropped";
}

TEST(SoftTransfers, IretChecksItsTarget) {
  struct Case {
    u64 cs, ss, rip;
    u8 vector;
    u64 error;
  };
  const std::vector<Case> cases{{0, Rig::ds, 0x50000, vector::gp, 0},
                                {Rig::ds, Rig::ds, 0x50000, vector::gp, Rig::ds},
                                {Rig::cs64 | 3, Rig::user_ds, 0x50000, vector::gp, Rig::cs64},
                                {Rig::user_cs64, Rig::ds, 0x50000, vector::gp, Rig::ds},
                                {Rig::user_cs64, 0, 0x50000, vector::gp, 0},
                                {Rig::cs64, Rig::ds, u64{1} << 60, vector::gp, 0}};
  for (const Case& each : cases) {
    Rig rig;
    rig.put(Rig::code, {0x48, 0xcf});
    const std::array<u64, 5> frame{each.rip, each.cs, 2, 0x36000, each.ss};
    rig.cpu.state().gpr[rsp] = Rig::stack - 40;
    rig.memory.write(Rig::stack - 40, frame.data(), sizeof frame);
    const Frame f = run_to_exception(rig);
    EXPECT_EQ(f.vector, each.vector) << each.cs << " " << each.ss;
    EXPECT_EQ(f.error, each.error) << each.cs << " " << each.ss;
    EXPECT_EQ(f.rip, Rig::code);
    EXPECT_EQ(rig.sink.kernel[model::Event::instructions], 0u);
  }
}

TEST(SoftTransfers, FarReturnsSwitchToCompatibilityModeAndBack) {
  Rig rig;
  // push cs32; push target; retfq. There: inc eax (as 40); jmp far cs64:back. Back: hlt.
  rig.put(Rig::code, {0x6a, Rig::cs32, 0x68, 0x00, 0x00, 0x05, 0x00, 0x48, 0xcb});
  rig.put(0x50000, {0x40, 0xea, 0x00, 0x10, 0x05, 0x00, Rig::cs64, 0x00});
  rig.put(0x51000, {0xf4});
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().rip, 0x51000u);
  EXPECT_EQ(rig.cpu.state().gpr[rax], 1u);
  EXPECT_TRUE(rig.cpu.state().code64());
  EXPECT_EQ(rig.sink.kernel[model::Event::branches], 2u);
}

TEST(SoftTransfers, SyscallMasksFlagsAndSavesRipAndFlags) {
  Rig rig;
  rig.user_mode();
  CpuState& s = rig.cpu.state();
  s.system_flags |= flag::if_;
  s.lstar = 0x50000;
  s.fmask = flag::if_ | flag::df;
  s.star = (u64{0x1b} << 48) | (u64{8} << 32);
  rig.put(Rig::code, {0x0f, 0x05});
  rig.put(0x50000, {0xf4});
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(s.rip, 0x50000u);
  EXPECT_EQ(s.cpl, 0u);
  EXPECT_EQ(s.gpr[rcx], Rig::code + 2);
  EXPECT_EQ(s.gpr[r11], flag::if_ | flag::fixed_one);
  EXPECT_EQ(s.system_flags & flag::if_, 0u);
  EXPECT_EQ(s.segment(Seg::cs).selector, 8u);
  EXPECT_EQ(s.segment(Seg::ss).selector, 16u);
}

TEST(SoftTransfers, PopfInUserModeKeepsIfAndIopl) {
  Rig rig;
  rig.user_mode();
  rig.cpu.state().system_flags |= flag::if_;
  rig.cpu.state().gpr[rax] = flag::iopl | flag::cf | flag::id;
  rig.put(Rig::code, {0x50, 0x9d, 0xf4});
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.flags & ~flag::rf, flag::if_ | flag::cf | flag::id | flag::fixed_one);
}

TEST(SoftInterrupts, AreTakenAtTheNextInstructionOnceAllowed) {
  Rig rig;
  rig.environment.vector = 0x50;
  rig.put(Rig::code, {0x90, 0xfb, 0x90, 0x90, 0xf4});  // nop; sti; nop (in its shadow); nop
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, 0x50u);
  EXPECT_EQ(f.rip, Rig::code + 3);
  EXPECT_EQ(f.flags & (flag::if_ | flag::rf), flag::if_);
  EXPECT_EQ(rig.cpu.state().system_flags & flag::if_, 0u) << "an interrupt gate";
  EXPECT_EQ(rig.sink.kernel[model::Event::branches], 0u);
}

TEST(SoftInterrupts, AMovToSsShadowsTheNextInstruction) {
  Rig rig;
  rig.cpu.state().system_flags |= flag::if_;
  rig.put(Rig::code, {0x8e, 0xd0, 0x90, 0x90, 0xf4});
  rig.cpu.state().gpr[rax] = Rig::ds;
  rig.cpu.set_instruction_limit(1);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::instruction_limit);
  rig.environment.vector = 0x50;
  rig.cpu.request_nmi();
  rig.cpu.set_instruction_limit(~u64{0});
  const Frame f = run_to_exception(rig);
  EXPECT_EQ(f.vector, vector::nmi);
  EXPECT_EQ(f.rip, Rig::code + 3);
}

TEST(SoftInterrupts, NmisWaitForIret) {
  Rig rig;
  // The NMI handler: nop; nop; iretq.
  rig.put(Rig::handlers + vector::nmi * 16, {0x90, 0x90, 0x48, 0xcf});
  rig.put(Rig::code, {0x90, 0x90, 0xf4});
  rig.cpu.request_nmi();
  rig.cpu.set_instruction_limit(1);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::instruction_limit);
  EXPECT_EQ(rig.cpu.state().rip, Rig::handlers + vector::nmi * 16 + 1);
  rig.cpu.request_nmi();
  rig.cpu.set_instruction_limit(3);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::instruction_limit);
  EXPECT_EQ(rig.cpu.state().rip, Rig::code) << "after its IRET";
  EXPECT_TRUE(rig.cpu.nmi_pending());
  rig.cpu.set_instruction_limit(4);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::instruction_limit);
  EXPECT_EQ(rig.cpu.state().rip, Rig::handlers + vector::nmi * 16 + 1);
  EXPECT_EQ(rig.cpu.totals().nmis, 2u);
}

TEST(SoftInterrupts, AnOverflowStopsBeforeAFetchFaultThatFollows) {
  Rig rig;
  const u64 page = split_second_page(rig, 6);
  rig.put(Rig::code, {0xff, 0xe3});
  rig.cpu.state().gpr[rbx] = page;
  rig.sink.room.instructions = 0;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::overflow);
  EXPECT_EQ(rig.cpu.state().rip, page);
  EXPECT_EQ(run_to_exception(rig).vector, vector::pf);
}

TEST(SoftSystem, ControlRegistersRefuseWhatTheCpuDoesNotHave) {
  struct Case {
    std::initializer_list<unsigned> code;
    u64 value;
  };
  static constexpr std::initializer_list<unsigned> to_cr0{0x0f, 0x22, 0xc0}, to_cr4{0x0f, 0x22, 0xe0},
      to_cr8{0x44, 0x0f, 0x22, 0xc0}, to_cr3{0x0f, 0x22, 0xd8};
  const std::vector<Case> cases{{to_cr0, cr0::pg}, {to_cr0, u64{1} << 32 | cr0::pe},
                                {to_cr4, 0},       {to_cr4, cr4::pae | cr4::vmxe},
                                {to_cr8, 16},      {to_cr3, u64{1} << 45}};
  for (const Case& each : cases) {
    Rig rig;
    rig.put(Rig::code, each.code);
    rig.cpu.state().gpr[rax] = each.value;
    EXPECT_EQ(run_to_exception(rig).vector, vector::gp);
  }
}

TEST(SoftSystem, ReadsOutsideOfMemoryGiveOnesAndWritesGoNowhere) {
  Rig rig;
  // The second GiB-table entry maps beyond the 16 MiB of the rig.
  rig.put(Rig::code, {0x48, 0x89, 0x0b, 0x48, 0x8b, 0x03, 0xf4});
  rig.cpu.state().gpr[rbx] = 0x20000000;
  rig.cpu.state().gpr[rcx] = 5;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().gpr[rax], ~u64{0});
}

TEST(SoftSystem, PageTablesMayReferToThemselves) {
  Rig rig;
  rig.put_u64(Rig::tables + 511 * 8, Rig::tables | 3);
  rig.put(Rig::code, {0x48, 0x8b, 0x03, 0x48, 0x89, 0x03, 0xf4});
  rig.cpu.state().gpr[rbx] = 0xfffffffffffff000;  // The top table, through itself four times.
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.cpu.state().gpr[rax] & page_mask, Rig::tables + 0x1000);
}

TEST(SoftSystem, MmioExitsBeforeTheInstructionAndIsCompletedOnce) {
  Rig rig;
  rig.cpu.set_mmio_page(0x400000);
  rig.put(Rig::code, {0x90, 0x89, 0x0b, 0x8b, 0x03, 0xf4});
  rig.cpu.state().gpr[rbx] = 0x4000b0;
  rig.cpu.state().gpr[rcx] = 7;
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::mmio);
  EXPECT_EQ(rig.cpu.state().rip, Rig::code + 1);
  EXPECT_TRUE(rig.environment.mmio.empty());
  EXPECT_TRUE(rig.cpu.emulate());
  EXPECT_EQ(rig.environment.mmio_value, 7u);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::mmio);
  EXPECT_TRUE(rig.cpu.emulate());
  EXPECT_EQ(rig.cpu.state().gpr[rax], 7u);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::hlt);
  EXPECT_EQ(rig.environment.mmio.size(), 2u);
  EXPECT_EQ(rig.sink.kernel[model::Event::instructions], 1u);
}

TEST(SoftSystem, TheStopFlagEndsAnEndlessLoop) {
  Rig rig;
  rig.put(Rig::code, {0xeb, 0xfe});
  std::atomic<bool> stop{true};
  rig.cpu.set_stop_flag(&stop);
  EXPECT_EQ(rig.cpu.run().reason, ExitReason::stop);
}

}  // namespace
}  // namespace vpmu::soft::test
