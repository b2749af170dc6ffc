// Every user-mode integer form against the host processor: same bytes, random operands and flags.
#include <Zydis/Zydis.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>
#include <set>
#include <string>

#include "soft/native.hpp"
#include "soft/rig.hpp"

namespace vpmu::soft::test {
namespace {

struct Form {
  std::vector<u8> bytes;
  ZydisDecodedInstruction z;
  std::array<ZydisDecodedOperand, ZYDIS_MAX_OPERAND_COUNT> operands;
};

/// Instructions that the host itself may not have, or that are not the program's own business.
bool is_tested(const Form& f) {
  switch (f.z.meta.category) {
    case ZYDIS_CATEGORY_SYSTEM:
    case ZYDIS_CATEGORY_SYSCALL:
    case ZYDIS_CATEGORY_SYSRET:
    case ZYDIS_CATEGORY_INTERRUPT:
    case ZYDIS_CATEGORY_IO:
    case ZYDIS_CATEGORY_IOSTRINGOP:
    case ZYDIS_CATEGORY_CALL:
    case ZYDIS_CATEGORY_RET:
    case ZYDIS_CATEGORY_UNCOND_BR:
    case ZYDIS_CATEGORY_COND_BR:
    case ZYDIS_CATEGORY_SEGOP:
    case ZYDIS_CATEGORY_X87_ALU:
    case ZYDIS_CATEGORY_CET:
    case ZYDIS_CATEGORY_XSAVE:
    case ZYDIS_CATEGORY_XSAVEOPT:
    case ZYDIS_CATEGORY_VTX:
    case ZYDIS_CATEGORY_SGX:
    case ZYDIS_CATEGORY_PKU:
    case ZYDIS_CATEGORY_RDRAND:
    case ZYDIS_CATEGORY_RDSEED:
    case ZYDIS_CATEGORY_RDWRFSGS:
    case ZYDIS_CATEGORY_MMX:
    case ZYDIS_CATEGORY_SSE:
      return false;
    default:
      break;
  }
  static const std::set<int> skipped{
      ZYDIS_MNEMONIC_POPF,      ZYDIS_MNEMONIC_POPFD,    ZYDIS_MNEMONIC_POPFQ,     ZYDIS_MNEMONIC_PUSHF,
      ZYDIS_MNEMONIC_PUSHFD,    ZYDIS_MNEMONIC_PUSHFQ,   ZYDIS_MNEMONIC_STI,       ZYDIS_MNEMONIC_CLI,
      ZYDIS_MNEMONIC_RDTSC,     ZYDIS_MNEMONIC_RDTSCP,   ZYDIS_MNEMONIC_CPUID,     ZYDIS_MNEMONIC_RDPID,
      ZYDIS_MNEMONIC_MONITORX,  ZYDIS_MNEMONIC_MWAITX,   ZYDIS_MNEMONIC_CLZERO,    ZYDIS_MNEMONIC_XBEGIN,
      ZYDIS_MNEMONIC_XABORT,    ZYDIS_MNEMONIC_XEND,     ZYDIS_MNEMONIC_XTEST,     ZYDIS_MNEMONIC_LAR,
      ZYDIS_MNEMONIC_LSL,       ZYDIS_MNEMONIC_VERR,     ZYDIS_MNEMONIC_VERW,      ZYDIS_MNEMONIC_ARPL,
      ZYDIS_MNEMONIC_UD0,       ZYDIS_MNEMONIC_UD1,      ZYDIS_MNEMONIC_UD2,       ZYDIS_MNEMONIC_ENQCMD,
      ZYDIS_MNEMONIC_ENQCMDS,   ZYDIS_MNEMONIC_RDPRU,    ZYDIS_MNEMONIC_LLWPCB,    ZYDIS_MNEMONIC_SLWPCB,
      ZYDIS_MNEMONIC_SERIALIZE, ZYDIS_MNEMONIC_MCOMMIT,  ZYDIS_MNEMONIC_UMONITOR,  ZYDIS_MNEMONIC_UMWAIT,
      ZYDIS_MNEMONIC_TPAUSE,    ZYDIS_MNEMONIC_MOVDIRI,  ZYDIS_MNEMONIC_MOVDIR64B, ZYDIS_MNEMONIC_BOUND,
      ZYDIS_MNEMONIC_CRC32,     ZYDIS_MNEMONIC_CLDEMOTE, ZYDIS_MNEMONIC_HRESET,    ZYDIS_MNEMONIC_CLUI,
      ZYDIS_MNEMONIC_STUI,      ZYDIS_MNEMONIC_TESTUI,   ZYDIS_MNEMONIC_UIRET,     ZYDIS_MNEMONIC_SENDUIPI,
  };
  if (skipped.contains(f.z.mnemonic)) return false;
  // Conversions from and to floating point: sse.cpp has those.
  if (std::string_view(ZydisMnemonicGetString(f.z.mnemonic)).starts_with("cvt")) return false;
  switch (f.z.meta.isa_set) {
    case ZYDIS_ISA_SET_LWP:
    case ZYDIS_ISA_SET_TBM:
      return false;
    default:
      break;
  }
  for (unsigned n = 0; n < f.z.operand_count; ++n) {
    const ZydisDecodedOperand& o = f.operands[n];
    if (o.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      switch (ZydisRegisterGetClass(o.reg.value)) {
        case ZYDIS_REGCLASS_GPR8:
        case ZYDIS_REGCLASS_GPR16:
        case ZYDIS_REGCLASS_GPR32:
        case ZYDIS_REGCLASS_GPR64:
        case ZYDIS_REGCLASS_FLAGS:
          break;
        default:
          return false;
      }
    }
  }
  return true;
}

/// SSE, SSE2 and SSE3 on XMM registers, but for approximations, which differ between processors.
bool is_tested_sse(const Form& f) {
  switch (f.z.meta.isa_ext) {
    case ZYDIS_ISA_EXT_SSE:
    case ZYDIS_ISA_EXT_SSE2:
    case ZYDIS_ISA_EXT_SSE3:
      break;
    default:
      return false;
  }
  static const std::set<int> skipped{
      ZYDIS_MNEMONIC_RCPPS,    ZYDIS_MNEMONIC_RCPSS,    ZYDIS_MNEMONIC_RSQRTPS,    ZYDIS_MNEMONIC_RSQRTSS,
      ZYDIS_MNEMONIC_LDMXCSR,  ZYDIS_MNEMONIC_STMXCSR,  ZYDIS_MNEMONIC_MASKMOVDQU, ZYDIS_MNEMONIC_MONITOR,
      ZYDIS_MNEMONIC_MWAIT,    ZYDIS_MNEMONIC_ADDSUBPD, ZYDIS_MNEMONIC_ADDSUBPS,   ZYDIS_MNEMONIC_HADDPD,
      ZYDIS_MNEMONIC_HADDPS,   ZYDIS_MNEMONIC_HSUBPD,   ZYDIS_MNEMONIC_HSUBPS,     ZYDIS_MNEMONIC_FISTTP,
      ZYDIS_MNEMONIC_CVTPI2PS, ZYDIS_MNEMONIC_CVTPI2PD, ZYDIS_MNEMONIC_FXSAVE,     ZYDIS_MNEMONIC_FXRSTOR,
      ZYDIS_MNEMONIC_FXSAVE64, ZYDIS_MNEMONIC_FXRSTOR64};
  if (skipped.contains(f.z.mnemonic)) return false;
  for (unsigned n = 0; n < f.z.operand_count; ++n) {
    const ZydisDecodedOperand& o = f.operands[n];
    if (o.type == ZYDIS_OPERAND_TYPE_REGISTER) {
      switch (ZydisRegisterGetClass(o.reg.value)) {
        case ZYDIS_REGCLASS_GPR32:
        case ZYDIS_REGCLASS_GPR64:
        case ZYDIS_REGCLASS_XMM:
        case ZYDIS_REGCLASS_FLAGS:
          break;
        default:
          return false;
      }
    }
  }
  return true;
}

enum class Subject { integer, sse };

class Generator {
 public:
  Generator(bool wide, Subject subject) : wide_(wide), subject_(subject) {
    ZydisDecoderInit(&decoder_, wide ? ZYDIS_MACHINE_MODE_LONG_64 : ZYDIS_MACHINE_MODE_LONG_COMPAT_32,
                     wide ? ZYDIS_STACK_WIDTH_64 : ZYDIS_STACK_WIDTH_32);
    ZydisDecoderEnableMode(&decoder_, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
    ZydisDecoderEnableMode(&decoder_, ZYDIS_DECODER_MODE_CLDEMOTE, ZYAN_FALSE);
  }

  std::vector<Form> all() {
    const std::vector<std::vector<u8>> prefixes{{}, {0x66}, {0x67}, {0xf0}, {0xf2}, {0xf3}, {0x66, 0xf3}, {0xf0, 0x66}};
    for (const auto& prefix : prefixes) {
      if (subject_ == Subject::sse && prefix.size() + (prefix == std::vector<u8>{0xf0} ? 1 : 0) > 1) continue;
      for (unsigned rex = 0; rex < (wide_ ? 16u : 1u); ++rex) {
        // REX.W with each other bit alone, and without: every register number is reached.
        if (wide_ && rex != 0 && rex != 5 && rex != 8 && rex != 15) continue;
        for (unsigned opcode = 0; opcode < 256; ++opcode) {
          if (is_prefix(opcode)) continue;
          with_modrm(prefix, rex, {static_cast<u8>(opcode)});
        }
        for (unsigned opcode = 0; opcode < 256; ++opcode) {
          if (opcode == 0x38 || opcode == 0x3a) continue;
          with_modrm(prefix, rex, {0x0f, static_cast<u8>(opcode)});
        }
        for (unsigned opcode = 0xf0; opcode < 256; ++opcode) {
          with_modrm(prefix, rex, {0x0f, 0x38, static_cast<u8>(opcode)});
        }
      }
    }
    if (wide_) {
      // BMI1 and BMI2, by VEX: map 2 and 3, L = 0, each pp and W.
      for (unsigned pp = 0; pp < 4; ++pp) {
        for (unsigned w = 0; w < 2; ++w) {
          for (const unsigned vvvv : {0u, 9u}) {
            const u8 last = static_cast<u8>((w << 7) | ((~vvvv & 15) << 3) | pp);
            for (const unsigned opcode : {0xf2u, 0xf3u, 0xf5u, 0xf6u, 0xf7u}) {
              with_modrm({0xc4, 0xe2, last}, 0, {static_cast<u8>(opcode)});
              with_modrm({0xc4, 0x62, last}, 0, {static_cast<u8>(opcode)});
            }
            with_modrm({0xc4, 0xe3, last}, 0, {0xf0});
          }
        }
      }
    }
    return std::move(forms_);
  }

 private:
  [[nodiscard]] bool is_prefix(unsigned opcode) const {
    static const std::set<unsigned> prefixes{0x0f, 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67, 0xf0, 0xf2, 0xf3};
    return prefixes.contains(opcode) || (wide_ && (opcode & 0xf0) == 0x40);
  }

  void with_modrm(const std::vector<u8>& prefix, unsigned rex, const std::vector<u8>& opcode) {
    std::set<std::vector<u8>> seen;
    for (unsigned reg = 0; reg < 8; ++reg) {
      // Registers and: [rbx], [rsi + d8], [rbx + rcx * 4 + d8], [rip + d32] or [d32], [rbp + d32].
      const std::vector<std::vector<u8>> tails{
          {static_cast<u8>(0xc0 | (reg << 3) | 0)},           {static_cast<u8>(0xc0 | (reg << 3) | 1)},
          {static_cast<u8>(0xc0 | (reg << 3) | 4)},           {static_cast<u8>(0xc0 | (reg << 3) | 7)},
          {static_cast<u8>(0x00 | (reg << 3) | 3)},           {static_cast<u8>(0x40 | (reg << 3) | 6), 0x10},
          {static_cast<u8>(0x44 | (reg << 3)), 0x8b, 0xf8},   {static_cast<u8>(0x05 | (reg << 3)), 0, 0, 0, 0},
          {static_cast<u8>(0x85 | (reg << 3)), 0x20, 0, 0, 0}};
      for (const auto& tail : tails) {
        std::vector<u8> bytes = prefix;
        if (rex != 0) bytes.push_back(static_cast<u8>(0x40 | rex));
        bytes.insert(bytes.end(), opcode.begin(), opcode.end());
        bytes.insert(bytes.end(), tail.begin(), tail.end());
        for (const unsigned each : {0x05u, 0x82u, 0x11u, 0x91u, 0x3cu, 0x77u, 0x40u, 0x12u}) {
          bytes.push_back(static_cast<u8>(each));
        }
        bytes.resize(std::min<std::size_t>(bytes.size(), 15));
        Form f;
        if (!ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder_, bytes.data(), bytes.size(), &f.z, f.operands.data()))) {
          continue;
        }
        bytes.resize(f.z.length);
        // RIP-relative and absolute addresses lead into the buffer.
        if (f.z.raw.modrm.mod == 0 && f.z.raw.modrm.rm == 5 && f.z.raw.disp.size == 32) {
          const u64 at = Native::buffer + 0x2000;
          const u32 displacement = static_cast<u32>(wide_ ? at - (Native::target64 + f.z.length) : at);
          std::memcpy(bytes.data() + f.z.raw.disp.offset, &displacement, 4);
        }
        // MOV with a full address as displacement.
        if (f.z.opcode_map == ZYDIS_OPCODE_MAP_DEFAULT && f.z.opcode >= 0xa0 && f.z.opcode <= 0xa3) {
          const u64 at = Native::buffer + 0x2000;
          std::memcpy(bytes.data() + f.z.raw.disp.offset, &at, f.z.raw.disp.size / 8);
        }
        // ENTER with a frame that fits the buffer.
        if (f.z.mnemonic == ZYDIS_MNEMONIC_ENTER) {
          const std::array<u8, 3> frame{0x20, 0, static_cast<u8>(reg * 5)};
          std::copy(frame.begin(), frame.end(), bytes.end() - 3);
        }
        // Predicates and orders of all kinds.
        if (subject_ == Subject::sse && f.z.raw.imm[0].size == 8) bytes.back() = static_cast<u8>(reg * 0x1d + tail[0]);
        if (!seen.insert(bytes).second) continue;
        (void)ZydisDecoderDecodeFull(&decoder_, bytes.data(), bytes.size(), &f.z, f.operands.data());
        f.bytes = bytes;
        const bool wanted = subject_ == Subject::integer ? is_tested(f) : is_tested_sse(f);
        if (wanted) forms_.push_back(std::move(f));
      }
    }
  }

  bool wide_;
  Subject subject_;
  ZydisDecoder decoder_;
  std::vector<Form> forms_;
};

class Differential {
 public:
  explicit Differential(bool wide, bool general) : wide_(wide), rig_(options(general), 1024) {
    if (!wide) rig_.compatibility_mode();
    for (u8& each : background_) each = static_cast<u8>(random_());
  }

  void run(const Form& f, unsigned cases) {
    rig_.memory.write(target(), f.bytes.data(), f.bytes.size());
    rig_.put(target() + f.bytes.size(), {0xf4});
    rig_.cpu.memory_changed();
    for (unsigned n = 0; n < cases && failures < 40; ++n) one(f, n);
    ++forms;
    mnemonics.insert(ZydisMnemonicGetString(f.z.mnemonic));
  }

  u64 forms = 0, cases_run = 0, divide_errors = 0, failures = 0;
  std::set<std::string> mnemonics;
  std::map<std::string, unsigned> not_on_host;

 private:
  static CpuOptions options(bool general) {
    CpuOptions o;
    o.general_path_only = general;
    return o;
  }
  [[nodiscard]] u64 target() const { return wide_ ? Native::target64 : Native::target32; }

  u64 random_value() {
    static constexpr std::array<u64, 12> interesting{
        0, 1, ~u64{0}, 0x7f, 0x80, 0x7fff, 0x8000, 0x7fffffff, 0x80000000, 0xffffffff, u64{1} << 63, ~(u64{1} << 63)};
    switch (random_() % 3) {
      case 0:
        return interesting[random_() % interesting.size()];
      case 1:
        return random_() & 0xff;
      default:
        return random_();
    }
  }

  /// Bits that often are a float or a double: small whole numbers, special values, anything.
  u64 random_floats() {
    static constexpr std::array<u64, 10> interesting{
        0x3ff0000000000000, 0xbff8000000000000, 0x7ff0000000000000, 0x7ff8000000000001, 0xfff4000000000002,
        0x000fffffffffffff, 0x41dfffffffc00000, 0x43e0000000000000, 0x3f80000040490fdb, 0x7f800000ffc00001};
    switch (random_() % 4) {
      case 0:
        return interesting[random_() % interesting.size()];
      case 1:
        return std::bit_cast<u64>(static_cast<double>(static_cast<s64>(random_()) >> (random_() % 64)));
      case 2: {
        const auto single = [this] {
          return u64{std::bit_cast<u32>(static_cast<float>(static_cast<s64>(random_()) >> (random_() % 64)))};
        };
        return single() | (single() << 32);
      }
      default:
        return random_value();
    }
  }

  static unsigned number_of(ZydisRegister reg) { return static_cast<unsigned>(ZydisRegisterGetId(reg)) & 15; }

  NativeState random_state(const Form& f, std::array<u8, 0x4000>& memory) {
    NativeState s;
    for (u64& each : s.gpr) each = random_value();
    for (auto& each : s.xmm) each = {random_floats(), random_floats()};
    // Any rounding, flushing or not; all exceptions masked.
    s.mxcsr = 0x1f80 | static_cast<u32>(random_() & 0xe07f);
    s.flags = (random_() & flag::arithmetic) | 2;
    if (random_() % 8 == 0) s.flags |= flag::df;
    // New values around the middle, where most accesses go; the rest stays as it was filled once.
    memory = background_;
    for (std::size_t n = 0x1f00; n < 0x2200; n += 8) {
      const u64 value = random_value();
      std::memcpy(memory.data() + n, &value, 8);
    }
    if (f.z.meta.isa_ext == ZYDIS_ISA_EXT_SSE || f.z.meta.isa_ext == ZYDIS_ISA_EXT_SSE2) {
      for (std::size_t n = 0x1f00; n < 0x2200; n += 8) {
        const u64 value = random_floats();
        std::memcpy(memory.data() + n, &value, 8);
      }
    }
    const u64 middle = Native::buffer + 0x2000;
    for (unsigned n = 0; n < f.z.operand_count; ++n) {
      const ZydisDecodedOperand& o = f.operands[n];
      if (o.type != ZYDIS_OPERAND_TYPE_MEMORY) continue;
      const auto set = [&](ZydisRegister reg, u64 value) {
        if (reg == ZYDIS_REGISTER_NONE || reg == ZYDIS_REGISTER_RIP) return;
        s.gpr[number_of(reg)] = value;
      };
      if (o.mem.type == ZYDIS_MEMOP_TYPE_AGEN) continue;
      // Aligned in most cases, for the instructions that insist.
      set(o.mem.index, random_() % 4 == 0 ? random_() % 64 : random_() % 16 * 4 + 2);
      set(o.mem.base, middle + (random_() % 8 == 0 ? random_() % 64 : (random_() % 16) * 16));
    }
    s.gpr[4] = middle + 0x800;
    switch (f.z.mnemonic) {
      case ZYDIS_MNEMONIC_ENTER:
      case ZYDIS_MNEMONIC_LEAVE:
        s.gpr[5] = middle + 0x400;
        break;
      case ZYDIS_MNEMONIC_XLAT:
        s.gpr[3] = middle;
        break;
      case ZYDIS_MNEMONIC_DIV:
      case ZYDIS_MNEMONIC_IDIV:
        if (random_() % 4 != 0) s.gpr[2] = random_() % 4 == 0 ? ~u64{0} : random_() % 3;
        if (random_() % 4 == 0) s.gpr[0] &= 0xff;
        break;
      case ZYDIS_MNEMONIC_BT:
      case ZYDIS_MNEMONIC_BTS:
      case ZYDIS_MNEMONIC_BTR:
      case ZYDIS_MNEMONIC_BTC:
        // A bit offset that stays in the buffer.
        if (f.operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY && f.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER) {
          const unsigned reg = number_of(f.operands[1].reg.value);
          const bool also_address = reg == number_of(f.operands[0].mem.base) &&
                                    f.operands[0].mem.base != ZYDIS_REGISTER_NONE &&
                                    f.operands[0].mem.base != ZYDIS_REGISTER_RIP;
          const bool also_index =
              f.operands[0].mem.index != ZYDIS_REGISTER_NONE && reg == number_of(f.operands[0].mem.index);
          if (!also_address && !also_index && reg != 4) s.gpr[reg] = (random_() % 40000) - 20000;
        }
        break;
      default:
        break;
    }
    if (f.z.meta.category == ZYDIS_CATEGORY_STRINGOP) {
      s.gpr[6] = middle + random_() % 64;
      s.gpr[7] = middle + random_() % 64;
      s.gpr[1] = random_() % 20;
      if (random_() % 2 == 0) std::memset(memory.data() + 0x1f00, 0x55, 0x200);
      if (random_() % 2 == 0) s.gpr[0] = 0x5555555555555555;
    }
    if ((f.z.mnemonic == ZYDIS_MNEMONIC_CMPXCHG8B || f.z.mnemonic == ZYDIS_MNEMONIC_CMPXCHG16B ||
         f.z.mnemonic == ZYDIS_MNEMONIC_CMPXCHG) &&
        random_() % 2 == 0) {
      s.gpr[0] = s.gpr[2] = random_() % 2 == 0 ? 0x5555555555555555 : s.gpr[0];
      if (s.gpr[0] == 0x5555555555555555) std::memset(memory.data(), 0x55, memory.size());
    }
    if (!wide_) {
      for (u64& each : s.gpr) each &= 0xffffffff;
    }
    return s;
  }

  /// A register that is both an address and a bit offset or string count can lead out of the buffer.
  static bool stays_inside(const Form& f, const NativeState& s) {
    if (f.z.mnemonic == ZYDIS_MNEMONIC_BT || f.z.mnemonic == ZYDIS_MNEMONIC_BTS || f.z.mnemonic == ZYDIS_MNEMONIC_BTR ||
        f.z.mnemonic == ZYDIS_MNEMONIC_BTC) {
      if (f.operands[0].type == ZYDIS_OPERAND_TYPE_MEMORY && f.operands[1].type == ZYDIS_OPERAND_TYPE_REGISTER) {
        if (f.operands[0].size == 16) return true;
        const s64 raw =
            static_cast<s64>(sign_extend(s.gpr[number_of(f.operands[1].reg.value)], f.operands[0].size / 8));
        return raw > -60000 && raw < 60000;
      }
    }
    return true;
  }

  void one(const Form& f, unsigned number) {
    std::array<u8, 0x4000> memory;
    const NativeState before = random_state(f, memory);
    if (!stays_inside(f, before)) return;
    NativeState native = before;
    std::memcpy(Native::memory(), memory.data(), memory.size());
    const Native::Outcome outcome = Native::get().run(f.bytes, native, wide_);
    if (outcome == Native::Outcome::invalid_opcode) {
      ++not_on_host[ZydisMnemonicGetString(f.z.mnemonic)];
      return;
    }
    ++cases_run;

    rig_.memory.write(Native::buffer, memory.data(), memory.size());
    CpuState& s = rig_.cpu.state();
    for (unsigned n = 0; n < 16; ++n) s.gpr[n] = before.gpr[n];
    for (unsigned n = 0; n < 16; ++n) s.xmm[n].q = before.xmm[n];
    s.mxcsr = before.mxcsr;
    s.rip = target();
    s.set_rflags(before.flags);
    const u64 retired = rig_.sink.total(model::Event::instructions);
    const Exit exit = rig_.cpu.run();
    ASSERT_EQ(exit.reason, ExitReason::hlt);

    std::string wrong;
    if (s.rip != target() + f.bytes.size()) {
      // The handlers halt too: their address says which exception it was.
      const u64 which = (s.rip - Rig::handlers) / 16;
      if (outcome == Native::Outcome::divide_error && which == vector::de) {
        ++divide_errors;
        restore();
        return;
      }
      // CMPXCHG16B of an address that is not aligned.
      const bool agree = outcome == Native::Outcome::memory_fault && which == vector::gp;
      if (!agree) wrong = "interpreter raised exception " + std::to_string(which);
      restore();
    } else if (outcome != Native::Outcome::done) {
      wrong = "host faulted";
    } else {
      if (rig_.sink.total(model::Event::instructions) - retired != 1) wrong += "retired more than once ";
      compare(f, before, native, s, wrong);
      if (std::memcmp(rig_.memory.at(Native::buffer), Native::memory(), memory.size()) != 0) wrong += "memory ";
    }
    if (wrong.empty()) return;
    ++failures;
    std::string text;
    for (const u8 each : f.bytes) {
      char hex[4];
      std::snprintf(hex, sizeof hex, "%02x ", each);
      text += hex;
    }
    ADD_FAILURE() << ZydisMnemonicGetString(f.z.mnemonic) << " (" << text << ") case " << number << ": " << wrong;
  }

  void restore() {
    if (wide_) {
      rig_.start64();
    } else {
      rig_.start64();
      rig_.compatibility_mode();
    }
    rig_.cpu.state_changed();
  }

  void compare(const Form& f, const NativeState& before, const NativeState& native, const CpuState& s,
               std::string& wrong) {
    char text[160];
    for (unsigned n = 0; n < (wide_ ? 16u : 8u); ++n) {
      if (s.gpr[n] == native.gpr[n]) continue;
      std::snprintf(text, sizeof text, "r%u: before %llx host %llx interpreter %llx; ", n,
                    static_cast<unsigned long long>(before.gpr[n]), static_cast<unsigned long long>(native.gpr[n]),
                    static_cast<unsigned long long>(s.gpr[n]));
      wrong += text;
    }
    for (unsigned n = 0; n < 16; ++n) {
      if (s.xmm[n].q == native.xmm[n]) continue;
      std::snprintf(text, sizeof text, "xmm%u: host %016llx %016llx interpreter %016llx %016llx; ", n,
                    static_cast<unsigned long long>(native.xmm[n][1]),
                    static_cast<unsigned long long>(native.xmm[n][0]), static_cast<unsigned long long>(s.xmm[n].q[1]),
                    static_cast<unsigned long long>(s.xmm[n].q[0]));
      wrong += text;
    }
    if (s.mxcsr != native.mxcsr) {
      std::snprintf(text, sizeof text, "mxcsr: before %x host %x interpreter %x; ", before.mxcsr, native.mxcsr,
                    s.mxcsr);
      wrong += text;
    }
    u64 defined = flag::arithmetic | flag::df;
    if (f.z.cpu_flags != nullptr) defined &= ~u64{f.z.cpu_flags->undefined};
    // A count of zero leaves all flags; one above 1 leaves OF undefined.
    switch (f.z.mnemonic) {
      case ZYDIS_MNEMONIC_SHL:
      case ZYDIS_MNEMONIC_SHR:
      case ZYDIS_MNEMONIC_SAR:
      case ZYDIS_MNEMONIC_ROL:
      case ZYDIS_MNEMONIC_ROR:
      case ZYDIS_MNEMONIC_RCL:
      case ZYDIS_MNEMONIC_RCR:
      case ZYDIS_MNEMONIC_SHLD:
      case ZYDIS_MNEMONIC_SHRD:
        shift_flags(f, before, defined);
        break;
      default:
        break;
    }
    if (((s.rflags() ^ native.flags) & defined) != 0) {
      std::snprintf(text, sizeof text, "flags: before %llx host %llx interpreter %llx; ",
                    static_cast<unsigned long long>(before.flags), static_cast<unsigned long long>(native.flags),
                    static_cast<unsigned long long>(s.rflags()));
      wrong += text;
    }
  }

  static void shift_flags(const Form& f, const NativeState& before, u64& defined) {
    const bool doubled = f.z.mnemonic == ZYDIS_MNEMONIC_SHLD || f.z.mnemonic == ZYDIS_MNEMONIC_SHRD;
    const ZydisDecodedOperand& by = f.operands[doubled ? 2 : 1];
    const unsigned bits = f.operands[0].size;
    const u64 given = by.type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? by.imm.value.u : before.gpr[1];
    const u64 count = given & (bits == 64 ? 63 : 31);
    const bool rotates = f.z.mnemonic == ZYDIS_MNEMONIC_ROL || f.z.mnemonic == ZYDIS_MNEMONIC_ROR ||
                         f.z.mnemonic == ZYDIS_MNEMONIC_RCL || f.z.mnemonic == ZYDIS_MNEMONIC_RCR;
    defined = flag::arithmetic | flag::df;
    if (count == 0) return;
    if (!rotates) defined &= ~flag::af;
    if (count != 1) defined &= ~flag::of;
    // CF is undefined if the count reaches the width (SHL, SHR; SDM Vol. 2B).
    if (!rotates && f.z.mnemonic != ZYDIS_MNEMONIC_SAR && count >= bits) defined &= ~flag::cf;
    if (doubled && count > bits) defined = flag::df;
  }

  bool wide_;
  Rig rig_;
  std::mt19937_64 random_{20240501};
  std::array<u8, 0x4000> background_{};
};

void report(const char* name, const Differential& d) {
  std::printf("[  forms   ] %s: %llu forms of %zu mnemonics, %llu cases, %llu of them divide errors\n", name,
              static_cast<unsigned long long>(d.forms), d.mnemonics.size(),
              static_cast<unsigned long long>(d.cases_run), static_cast<unsigned long long>(d.divide_errors));
  for (const auto& [mnemonic, times] : d.not_on_host) {
    std::printf("[  forms   ] not on this host: %s\n", mnemonic.c_str());
  }
}

bool result_is_undefined(const Form& f) {
  // A 16-bit double shift by more than 16.
  return (f.z.mnemonic == ZYDIS_MNEMONIC_SHLD || f.z.mnemonic == ZYDIS_MNEMONIC_SHRD) && f.operands[0].size == 16;
}

void run_all(bool wide, bool general, const char* name, Subject subject = Subject::integer) {
  if (!Native::get().problem().empty()) GTEST_SKIP() << Native::get().problem();
  if (!wide && !Native::get().problem32().empty()) GTEST_SKIP() << Native::get().problem32();
  const std::vector<Form> forms = Generator(wide, subject).all();
  Differential d(wide, general);
  for (const Form& each : forms) {
    if (result_is_undefined(each)) continue;
    d.run(each, 3);
    if (d.failures >= 40 || testing::Test::HasFatalFailure()) break;
  }
  report(name, d);
  EXPECT_GT(d.forms, subject == Subject::sse ? 2000u : wide ? 5000u : 1000u);
  EXPECT_GT(d.cases_run, d.forms * 2);
}

TEST(SoftDifferential, Forms64BitAgreeWithTheHostThroughHandlers) { run_all(true, false, "64-bit, handlers"); }
TEST(SoftDifferential, Forms64BitAgreeWithTheHostThroughTheGeneralPath) { run_all(true, true, "64-bit, general"); }
TEST(SoftDifferential, Forms32BitAgreeWithTheHostThroughHandlers) { run_all(false, false, "32-bit, handlers"); }
TEST(SoftDifferential, Forms32BitAgreeWithTheHostThroughTheGeneralPath) { run_all(false, true, "32-bit, general"); }

TEST(SoftDifferential, SseFormsAgreeWithTheHost) { run_all(true, false, "64-bit, SSE to SSE3", Subject::sse); }

}  // namespace
}  // namespace vpmu::soft::test
