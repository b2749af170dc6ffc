#include "lab/trace_event.hpp"

#include "lab/trace_text.hpp"

namespace vpmu::lab {

TraceEventId trace_event_id(std::string_view name) {
  if (!name.starts_with("kvm_")) return TraceEventId::other;
  name.remove_prefix(4);
  if (name == "entry") return TraceEventId::kvm_entry;
  if (name == "exit") return TraceEventId::kvm_exit;
  if (name == "msr") return TraceEventId::kvm_msr;
  if (name == "pio") return TraceEventId::kvm_pio;
  if (name == "cpuid") return TraceEventId::kvm_cpuid;
  if (name == "emulate_insn") return TraceEventId::kvm_emulate_insn;
  return TraceEventId::other;
}

std::optional<KvmEntry> parse_kvm_entry(std::string_view fields) {
  TraceText text{fields};
  KvmEntry entry;
  if (!text.word("vcpu ") || !text.blanks().decimal(entry.vcpu)) return std::nullopt;
  text.word(",");
  if (text.empty()) return entry;
  if (!is_blank(text.rest().front())) return std::nullopt;
  if (text.blanks().word("rip ")) {
    std::uint64_t rip = 0;
    if (!text.blanks().hex(rip)) return std::nullopt;
    entry.rip = rip;
  }
  return entry;
}

std::optional<KvmExit> parse_kvm_exit(std::string_view fields) {
  TraceText text{fields};
  KvmExit exit;
  if (text.word("vcpu ")) {
    std::uint32_t vcpu = 0;
    if (!text.blanks().decimal(vcpu)) return std::nullopt;
    text.word(",");
    text.blanks();
    exit.vcpu = vcpu;
  }
  if (!text.word("reason ")) return std::nullopt;
  constexpr std::string_view rip = " rip ";
  const auto end = text.rest().find(rip);
  if (end == std::string_view::npos) return std::nullopt;
  exit.reason = trimmed(text.rest().substr(0, end));
  TraceText after{text.rest().substr(end + rip.size())};
  if (exit.reason.empty() || !after.blanks().hex(exit.rip)) return std::nullopt;
  if (!after.empty() && !is_blank(after.rest().front())) return std::nullopt;
  return exit;
}

std::optional<KvmMsr> parse_kvm_msr(std::string_view fields) {
  TraceText text{fields};
  KvmMsr msr;
  if (text.word("msr_write ")) {
    msr.write = true;
  } else if (!text.word("msr_read ")) {
    return std::nullopt;
  }
  if (!text.blanks().hex(msr.index) || !text.blanks().word("=") || !text.blanks().hex(msr.value)) return std::nullopt;
  text.blanks();
  msr.fault = text.word("(#GP)");
  if (!text.blanks().empty()) return std::nullopt;
  return msr;
}

std::optional<KvmPio> parse_kvm_pio(std::string_view fields) {
  TraceText text{fields};
  KvmPio pio;
  if (text.word("pio_write ")) {
    pio.write = true;
  } else if (!text.word("pio_read ")) {
    return std::nullopt;
  }
  if (!text.blanks().word("at ") || !text.blanks().hex(pio.port)) return std::nullopt;
  if (!text.blanks().word("size ") || !text.blanks().decimal(pio.size)) return std::nullopt;
  if (!text.blanks().word("count ") || !text.blanks().decimal(pio.count)) return std::nullopt;
  return pio;
}

std::optional<KvmCpuid> parse_kvm_cpuid(std::string_view fields) {
  TraceText text{fields};
  KvmCpuid cpuid;
  if (!text.word("func ") || !text.blanks().hex(cpuid.leaf)) return std::nullopt;
  if (text.blanks().word("idx ") && !text.blanks().hex(cpuid.subleaf)) return std::nullopt;
  const auto value = [&text](std::string_view name, std::uint32_t& to) {
    std::uint64_t wide = 0;
    if (!text.blanks().word(name) || !text.blanks().hex(wide)) return false;
    to = static_cast<std::uint32_t>(wide);
    return true;
  };
  if (!value("rax ", cpuid.eax) || !value("rbx ", cpuid.ebx) || !value("rcx ", cpuid.ecx) ||
      !value("rdx ", cpuid.edx)) {
    return std::nullopt;
  }
  cpuid.other_leaf = fields.ends_with("used max basic");
  return cpuid;
}

std::optional<KvmEmulateInsn> parse_kvm_emulate_insn(std::string_view fields) {
  TraceText text{fields};
  KvmEmulateInsn insn;
  std::uint64_t base = 0;
  if (!text.hex(base) || !text.word(":") || !text.hex(insn.rip) || !text.word(":")) return std::nullopt;
  insn.failed = fields.ends_with(" failed") || fields.ends_with(" FAIL");
  return insn;
}

}  // namespace vpmu::lab
