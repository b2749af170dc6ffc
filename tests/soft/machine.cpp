// The local APIC, the devices, the loader, and the machine that ties them together.
#include "machine/soft/machine.hpp"

#include <gtest/gtest.h>

#include "soft/images.hpp"
#include "soft/rig.hpp"

namespace vpmu::soft::test {
namespace {

LocalApic enabled_apic() {
  LocalApic apic({.masks_on_pmi = true, .timer_ratio = 10});
  apic.write(LocalApic::svr, 0x1ff, 0);
  return apic;
}

TEST(SoftApic, MasksLvtpcWhenItAcceptsAPmiOnIntelOnly) {
  for (const bool intel : {true, false}) {
    LocalApic apic({.masks_on_pmi = intel, .timer_ratio = 10});
    apic.write(LocalApic::svr, 0x1ff, 0);
    apic.write(LocalApic::lvt_performance, 0x400, 0);
    apic.deliver_pmi();
    EXPECT_TRUE(apic.take_nmi());
    EXPECT_EQ(apic.read(LocalApic::lvt_performance, 0), intel ? 0x10400u : 0x400u);
    apic.deliver_pmi();
    EXPECT_EQ(apic.take_nmi(), !intel) << "a masked one is dropped";
  }
}

TEST(SoftApic, DeliversPmisAsVectorsToo) {
  LocalApic apic = enabled_apic();
  apic.write(LocalApic::lvt_performance, 0x33, 0);
  apic.deliver_pmi();
  EXPECT_FALSE(apic.take_nmi());
  EXPECT_EQ(apic.pending_vector(), 0x33);
}

TEST(SoftApic, HonoursPriorities) {
  LocalApic apic = enabled_apic();
  apic.write(LocalApic::icr_low, 0x40000 | 0x45, 0);
  apic.write(LocalApic::icr_low, 0x40000 | 0x52, 0);
  EXPECT_EQ(apic.pending_vector(), 0x52);
  apic.acknowledge(0x52);
  EXPECT_EQ(apic.pending_vector(), std::nullopt) << "0x52 is in service";
  apic.write(LocalApic::eoi, 0, 0);
  EXPECT_EQ(apic.pending_vector(), 0x45);
  apic.set_task_priority(4);
  EXPECT_EQ(apic.pending_vector(), std::nullopt);
  apic.set_task_priority(3);
  EXPECT_EQ(apic.pending_vector(), 0x45);
}

TEST(SoftApic, SendsItselfNmisAndPhysicalInterrupts) {
  LocalApic apic = enabled_apic();
  apic.write(LocalApic::icr_low, 0x40400, 0);
  EXPECT_TRUE(apic.take_nmi());
  apic.write(LocalApic::icr_high, 0, 0);
  apic.write(LocalApic::icr_low, 0x61, 0);
  EXPECT_EQ(apic.pending_vector(), 0x61);
  apic.write(LocalApic::icr_high, 5u << 24, 0);
  apic.write(LocalApic::icr_low, 0x71, 0);
  EXPECT_EQ(apic.pending_vector(), 0x61) << "nobody has ID 5";
}

TEST(SoftApic, RunsTheTimerOnceAndPeriodically) {
  LocalApic apic = enabled_apic();
  apic.write(LocalApic::divide, 0xb, 0);  // By 1.
  apic.write(LocalApic::lvt_timer, 0x40, 0);
  apic.write(LocalApic::initial_count, 100, 1000);
  EXPECT_EQ(apic.next_deadline(), 2000u);
  EXPECT_EQ(apic.read(LocalApic::current_count, 1500), 50u);
  apic.tick(1999);
  EXPECT_EQ(apic.pending_vector(), std::nullopt);
  apic.tick(2000);
  EXPECT_EQ(apic.pending_vector(), 0x40);
  EXPECT_EQ(apic.next_deadline(), LocalApic::no_deadline);

  apic.acknowledge(0x40);
  apic.write(LocalApic::eoi, 0, 0);
  apic.write(LocalApic::lvt_timer, 0x20040, 3000);
  apic.write(LocalApic::initial_count, 100, 3000);
  apic.tick(4000);
  EXPECT_EQ(apic.pending_vector(), 0x40);
  EXPECT_EQ(apic.next_deadline(), 5000u);
  apic.tick(7500);
  EXPECT_EQ(apic.next_deadline(), 8000u);
}

TEST(SoftApic, StopsATimerThatTheTscCannotReach) {
  constexpr u64 last = ~u64{0};
  LocalApic apic = enabled_apic();
  apic.write(LocalApic::divide, 0xb, 0);  // By 1.
  apic.write(LocalApic::lvt_timer, 0x20040, 0);
  apic.tick(last);
  EXPECT_EQ(apic.pending_vector(), std::nullopt) << "it was never started";
  apic.write(LocalApic::initial_count, 100, last - 5000);
  EXPECT_EQ(apic.next_deadline(), last - 4000);
  apic.tick(last - 10);
  EXPECT_EQ(apic.pending_vector(), 0x40);
  EXPECT_EQ(apic.next_deadline(), LocalApic::no_deadline);
}

TEST(SoftApic, FiresAtTheTscDeadline) {
  LocalApic apic = enabled_apic();
  EXPECT_TRUE(apic.write_msr(LocalApic::deadline_msr, 500, 0));
  EXPECT_EQ(apic.read_msr(LocalApic::deadline_msr, 0), 0u) << "ignored in other modes";
  apic.write(LocalApic::lvt_timer, 0x40040, 0);
  EXPECT_TRUE(apic.write_msr(LocalApic::deadline_msr, 500, 0));
  EXPECT_EQ(apic.next_deadline(), 500u);
  apic.tick(500);
  EXPECT_EQ(apic.pending_vector(), 0x40);
  EXPECT_EQ(apic.read_msr(LocalApic::deadline_msr, 0), 0u);
}

TEST(SoftApic, AnswersMsrsInX2apicModeAlone) {
  LocalApic apic = enabled_apic();
  EXPECT_EQ(apic.read_msr(0x802, 0), std::nullopt);
  EXPECT_TRUE(apic.set_base(LocalApic::default_base | 0xd00));
  EXPECT_EQ(apic.page(), std::nullopt);
  EXPECT_EQ(apic.read_msr(0x802, 0), 0u);
  EXPECT_TRUE(apic.write_msr(0x83f, 0x55, 0));
  EXPECT_EQ(apic.pending_vector(), 0x55);
  EXPECT_TRUE(apic.write_msr(0x80b, 0, 0));
  EXPECT_FALSE(apic.write_msr(0x80b, 1, 0)) << "EOI takes only 0";
  EXPECT_FALSE(apic.write_msr(0x802, 0, 0)) << "read-only";
  EXPECT_FALSE(apic.set_base(LocalApic::default_base | 0x900)) << "back to xAPIC without disabling";
  EXPECT_TRUE(apic.set_base(LocalApic::default_base));
  EXPECT_FALSE(apic.set_base(LocalApic::default_base | 0xc00)) << "x2APIC straight from disabled";
}

TEST(SoftApic, RecordsErrors) {
  LocalApic apic = enabled_apic();
  apic.write(LocalApic::icr_low, 0x40005, 0);
  EXPECT_EQ(apic.read(LocalApic::esr, 0), 0u);
  apic.write(LocalApic::esr, 0, 0);
  EXPECT_EQ(apic.read(LocalApic::esr, 0), 0x20u);
}

TEST(SoftDevices, SerialFwCfgAndExitPort) {
  std::string text;
  Devices devices([&](char c) { text += c; }, 64 << 20, 2'500'000'000, [] { return u64{0}; });
  EXPECT_EQ(devices.in(0x3fd, 1) & 0x20, 0x20u);
  devices.out(0x3f8, 1, 'h');
  devices.out(0x3fb, 1, 0x80);
  devices.out(0x3f8, 1, 1);  // The divisor, not text.
  devices.out(0x3fb, 1, 3);
  devices.out(0x3f8, 1, 'i');
  EXPECT_EQ(text, "hi");
  devices.out(0x510, 2, 0);
  EXPECT_EQ(devices.in(0x511, 4), 0x554d4551u);  // "QEMU"
  devices.out(0x510, 2, 5);
  EXPECT_EQ(devices.in(0x511, 1), 1u);
  EXPECT_EQ(devices.in(0x511, 1), 0u);
  EXPECT_EQ(devices.in(0x1234, 4), 0xffffffffu);
  EXPECT_EQ(devices.exit_value(), std::nullopt);
  devices.out(0xf4, 4, 0x12345678);
  EXPECT_EQ(devices.exit_value(), 0x12345678u);
}

// --- the loader ---

TEST(SoftLoader, LoadsImagesByAddressFields) {
  Memory memory(4);
  const std::array<u8, 2> code{0x90, 0xf4};
  const LoadedImage loaded = load_multiboot(memory, flat_image(code, 0x100000, 64), "a=1 b");
  ASSERT_TRUE(loaded.ok()) << loaded.error;
  EXPECT_EQ(loaded.entry, 0x100020u);
  EXPECT_EQ(*memory.at(0x100021), 0xf4);
  const u32 flags = memory.read_u32(loaded.information);
  EXPECT_EQ(flags & 0x45, 0x45u);
  EXPECT_EQ(memory.read_u32(loaded.information + 8), 3072u);
  EXPECT_STREQ(reinterpret_cast<const char*>(memory.at(memory.read_u32(loaded.information + 16))), "a=1 b");
}

TEST(SoftLoader, LoadsElf32AndElf64) {
  {
    Memory memory(4);
    auto p = good_segment<Elf32_Phdr>();
    p.p_vaddr = 0xc0100000;
    const auto image = elf_image<Elf32_Ehdr>(ELFCLASS32, EM_386, p, 0xc01000f0);
    const LoadedImage loaded = load_multiboot(memory, image, "");
    ASSERT_TRUE(loaded.ok()) << loaded.error;
    EXPECT_EQ(loaded.entry, 0x1000f0u) << "the physical address of the entry";
    EXPECT_EQ(*memory.at(loaded.entry), 0xf4);
  }
  {
    Memory memory(4);
    const auto image = elf_image<Elf64_Ehdr>(ELFCLASS64, EM_X86_64, good_segment<Elf64_Phdr>(), 0x1000f0);
    EXPECT_TRUE(load_multiboot(memory, image, "").ok());
  }
}

TEST(SoftLoader, RefusesHostileImagesWithALine) {
  const auto refused = [](const std::vector<u8>& image, const char* why) {
    Memory memory(4);
    const LoadedImage loaded = load_multiboot(memory, image, "");
    EXPECT_EQ(loaded.error, why);
  };
  refused({}, "image is empty");
  refused(std::vector<u8>(64), "no multiboot header in the image's first 8192 bytes");
  const std::array<u8, 1> code{0xf4};
  std::vector<u8> image = flat_image(code);
  image.resize(40 - 8);
  refused(image, "image is cut off");
  refused(flat_image(code, 0x3fffff0), "image does not fit the machine's 4 MiB of memory");
  refused(flat_image(code, 0x100000, 0x10000000), "image does not fit the machine's 4 MiB of memory");

  auto p = good_segment<Elf64_Phdr>();
  p.p_offset = ~u64{0} - 10;
  refused(elf_image<Elf64_Ehdr>(ELFCLASS64, EM_X86_64, p, 0x100000), "ELF segment is cut off");
  p = good_segment<Elf64_Phdr>();
  p.p_filesz = 0x300;
  refused(elf_image<Elf64_Ehdr>(ELFCLASS64, EM_X86_64, p, 0x100000),
          "ELF segment has more bytes in the file than in memory");
  p = good_segment<Elf64_Phdr>();
  p.p_paddr = ~u64{0} - 0x80;
  refused(elf_image<Elf64_Ehdr>(ELFCLASS64, EM_X86_64, p, 0x100000),
          "image does not fit the machine's 4 MiB of memory");
  p = good_segment<Elf64_Phdr>();
  refused(elf_image<Elf64_Ehdr>(ELFCLASS64, EM_X86_64, p, 0x500000), "image's entry lies outside of it");
  refused(elf_image<Elf64_Ehdr>(ELFCLASS64, EM_AARCH64, p, 0x100000), "ELF image is not for x86");
}

// --- the machine ---

struct MachineRig {
  explicit MachineRig(const std::vector<u8>& code, MachineConfig config = {})
      : machine(config, sink, pmu, [this](char c) { text += c; }) {
    loaded = machine.load(flat_image(code), "");
  }
  CountingSink sink;
  NoPmu pmu;
  std::string text;
  Machine machine;
  LoadedImage loaded;
};

TEST(SoftMachine, StartsAsMultibootSaysAndStopsByTheExitPort) {
  // mov dx, 0xf4; out dx, eax
  MachineRig rig({0x66, 0xba, 0xf4, 0x00, 0xef});
  ASSERT_TRUE(rig.loaded.ok());
  EXPECT_EQ(rig.machine.run(), StopReason::guest_exit);
  EXPECT_EQ(rig.machine.exit_value(), 0x2badb002u);
}

TEST(SoftMachine, WritesToTheSerialLine) {
  // mov edx, 0x3f8; mov al, 'x'; out dx, al; mov dl, 0xf4; mov dh, 0; out dx, al
  MachineRig rig({0xba, 0xf8, 0x03, 0, 0, 0xb0, 'x', 0xee, 0xb2, 0xf4, 0xb6, 0x00, 0xee});
  EXPECT_EQ(rig.machine.run(), StopReason::guest_exit);
  EXPECT_EQ(rig.text, "x");
  EXPECT_EQ(rig.machine.exits()[static_cast<std::size_t>(ExitReason::port)], 2u);
}

TEST(SoftMachine, KnowsWhenAHaltIsForEver) {
  MachineRig rig({0xf4});
  EXPECT_EQ(rig.machine.run(), StopReason::halted);
}

TEST(SoftMachine, ShutsDownOnATripleFault) {
  MachineRig rig({0x0f, 0x0b});  // With no IDT.
  EXPECT_EQ(rig.machine.run(), StopReason::shutdown);
  EXPECT_EQ(rig.machine.cpu().state().rip, 0x100020u);
}

TEST(SoftMachine, HonoursItsInstructionLimit) {
  MachineConfig config;
  config.instruction_limit = 12345;
  MachineRig rig({0xeb, 0xfe}, config);
  EXPECT_EQ(rig.machine.run(), StopReason::instruction_limit);
  EXPECT_EQ(rig.machine.cpu().totals().instructions, 12345u);
}

TEST(SoftMachine, ContainsAllOfMsrSpace) {
  // Long mode with handlers that halt, on a machine that answers MSRs: each access ends, in an answer or in #GP.
  MachineRig rig({0xf4});
  Rig world;
  std::memcpy(rig.machine.memory().at(0), world.memory.at(0), 4 << 20);
  Cpu& cpu = rig.machine.cpu();
  const CpuState fresh = world.cpu.state();
  constexpr std::array<u8, 4> code{0x0f, 0x32, 0x0f, 0x30};  // rdmsr; wrmsr
  rig.machine.memory().write(Rig::code, code.data(), code.size());
  cpu.memory_changed();
  u64 answered = 0;
  u64 refused = 0;
  for (const u32 base : {0u, 0x40000000u, 0x80000000u, 0xc0000000u, 0xc0010000u, 0xffffc000u}) {
    for (u32 n = 0; n < 0x4000; ++n) {
      for (const u64 offset : {0, 2}) {
        cpu.state() = fresh;
        cpu.state().rip = Rig::code + offset;
        cpu.state().gpr[rcx] = base + n;
        cpu.state().gpr[rax] = n * 0x9e3779b9u;
        cpu.state_changed();
        const Exit exit = cpu.run();
        ASSERT_EQ(exit.reason, offset == 0 ? ExitReason::rdmsr : ExitReason::wrmsr);
        ++(cpu.emulate() ? answered : refused);
      }
    }
  }
  EXPECT_GT(answered, 20u);
  EXPECT_GT(refused, 0x4000u * 6);
}

TEST(SoftMachine, TwoRunsAreIdentical) {
  const auto run = [] {
    MachineConfig config;
    config.instruction_limit = 100'000;
    // loop: rdtsc; cpuid; jmp loop
    MachineRig rig({0x0f, 0x31, 0x0f, 0xa2, 0xeb, 0xfa}, config);
    EXPECT_EQ(rig.machine.run(), StopReason::instruction_limit);
    return std::make_tuple(rig.machine.cpu().tsc(), rig.machine.cpu().totals().cycles, rig.machine.cpu().state().gpr);
  };
  EXPECT_EQ(run(), run());
}

}  // namespace
}  // namespace vpmu::soft::test
