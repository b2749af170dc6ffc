#include "soft/native.hpp"

#include <asm/ldt.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <vector>

namespace vpmu::soft::test {

namespace {

constexpr u64 state_at = 0x800;  // In the code page: a pointer or, for 32-bit code, the state itself.
constexpr u64 saved_rsp_at = 0x808;
constexpr u64 saved_rdi_at = 0x810;
constexpr u64 far_pointer_at = 0x820;
constexpr u64 state32_at = 0x900;

sigjmp_buf escape;
volatile int caught = 0;

void on_signal(int signal) {
  caught = signal;
  siglongjmp(escape, 1);
}

class Emitter {
 public:
  explicit Emitter(u64 at) : at_(at) {}
  void bytes(std::initializer_list<unsigned> list) {
    for (const unsigned each : list) *reinterpret_cast<u8*>(at_++) = static_cast<u8>(each);
  }
  void u32_value(u64 value) {
    const u32 low = static_cast<u32>(value);
    std::memcpy(reinterpret_cast<void*>(at_), &low, 4);
    at_ += 4;
  }
  /// One with [RIP + x] for an absolute address.
  void rip_relative(std::initializer_list<unsigned> opcode, u64 address) {
    bytes(opcode);
    u32_value(address - (at_ + 4));
  }
  void with_displacement(std::initializer_list<unsigned> opcode, u64 displacement) {
    bytes(opcode);
    u32_value(displacement);
  }
  void align_to(u64 address) { at_ = address; }
  [[nodiscard]] u64 at() const { return at_; }

 private:
  u64 at_;
};

constexpr u64 gpr_at(unsigned reg) { return offsetof(NativeState, gpr) + reg * 8; }
constexpr u64 xmm_at(unsigned reg) { return offsetof(NativeState, xmm) + reg * 16; }
constexpr unsigned number_of_rsp = 4, number_of_rdi = 7;

}  // namespace

const Native& Native::get() {
  static const Native native;
  return native;
}

Native::Native() {
  const auto map = [this](u64 at, u64 bytes, int protection) {
    void* got =
        mmap(reinterpret_cast<void*>(at), bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != reinterpret_cast<void*>(at)) problem_ = "cannot map test memory at its fixed address below 1 GiB";
  };
  map(buffer, buffer_bytes, PROT_READ | PROT_WRITE);
  map(code64, code_bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
  map(code32, code_bytes, PROT_READ | PROT_WRITE | PROT_EXEC);
  if (!problem_.empty()) return;

  static std::vector<char> alternate(1 << 16);
  stack_t stack{};
  stack.ss_sp = alternate.data();
  stack.ss_size = alternate.size();
  sigaltstack(&stack, nullptr);
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_ONSTACK | SA_NODEFER;
  for (const int each : {SIGFPE, SIGILL, SIGSEGV, SIGBUS, SIGTRAP}) sigaction(each, &action, nullptr);

  emit64();
  // Probe: is there a 32-bit code segment, Linux's own or one of ours, and does it come back?
  user_desc segment{};
  segment.limit = 0xfffff;
  segment.seg_32bit = 1;
  segment.contents = MODIFY_LDT_CONTENTS_CODE;
  segment.limit_in_pages = 1;
  segment.useable = 1;
  syscall(SYS_modify_ldt, 1, &segment, sizeof segment);
  for (const u16 selector : {u16{0x23}, u16{0x07}}) {
    emit32(selector);
    NativeState state;
    state.gpr[0] = 41;
    state.gpr[number_of_rsp] = buffer + 0x4000;
    const std::array<u8, 1> inc_eax{0x40};
    if (run(inc_eax, state, false) == Outcome::done && state.gpr[0] == 42) return;
  }
  problem32_ = "this host runs no 32-bit code: a far jump to selector 0x23, and to one made by modify_ldt, faults";
}

void Native::emit64() {
  Emitter e(code64);
  for (const unsigned each : {0x53u, 0x55u}) e.bytes({each});                      // push rbx, rbp
  for (const unsigned each : {0x54u, 0x55u, 0x56u, 0x57u}) e.bytes({0x41, each});  // push r12 to r15
  e.rip_relative({0x48, 0x89, 0x25}, code64 + saved_rsp_at);
  e.rip_relative({0x48, 0x89, 0x3d}, code64 + state_at);
  e.with_displacement({0x0f, 0xae, 0x97}, offsetof(NativeState, mxcsr));  // ldmxcsr
  for (unsigned n = 0; n < 16; ++n) {
    if (n >= 8) e.bytes({0x44});
    e.with_displacement({0x0f, 0x10, 0x87 | ((n & 7) << 3)}, xmm_at(n));
  }
  e.with_displacement({0xff, 0xb7}, offsetof(NativeState, flags));  // push flags
  e.bytes({0x9d});                                                  // popfq
  for (unsigned n = 0; n < 16; ++n) {
    if (n != number_of_rdi) e.with_displacement({n >= 8 ? 0x4cu : 0x48u, 0x8b, 0x87 | ((n & 7) << 3)}, gpr_at(n));
  }
  e.with_displacement({0x48, 0x8b, 0xbf}, gpr_at(number_of_rdi));
  e.bytes({0xe9});
  e.u32_value(target64 - (e.at() + 4));

  // After the instructions under test, a jump leads here.
  e.align_to(code64 + 0x200);
  e.rip_relative({0x48, 0x89, 0x3d}, code64 + saved_rdi_at);
  e.rip_relative({0x48, 0x8b, 0x3d}, code64 + state_at);
  for (unsigned n = 0; n < 16; ++n) {
    if (n != number_of_rdi) e.with_displacement({n >= 8 ? 0x4cu : 0x48u, 0x89, 0x87 | ((n & 7) << 3)}, gpr_at(n));
  }
  e.rip_relative({0x48, 0x8b, 0x05}, code64 + saved_rdi_at);
  e.with_displacement({0x48, 0x89, 0x87}, gpr_at(number_of_rdi));
  for (unsigned n = 0; n < 16; ++n) {
    if (n >= 8) e.bytes({0x44});
    e.with_displacement({0x0f, 0x11, 0x87 | ((n & 7) << 3)}, xmm_at(n));
  }
  e.with_displacement({0x0f, 0xae, 0x9f}, offsetof(NativeState, mxcsr));  // stmxcsr
  e.rip_relative({0x48, 0x8b, 0x25}, code64 + saved_rsp_at);
  e.bytes({0x9c});
  e.with_displacement({0x8f, 0x87}, offsetof(NativeState, flags));
  e.bytes({0xfc});
  for (const unsigned each : {0x5fu, 0x5eu, 0x5du, 0x5cu}) e.bytes({0x41, each});
  e.bytes({0x5d, 0x5b, 0xc3});
}

void Native::emit32(u16 selector) {
  // In 64-bit mode: save, then jump far to 32-bit code. The state is in the page itself.
  const u64 state = code32 + state32_at;
  Emitter e(code32);
  for (const unsigned each : {0x53u, 0x55u}) e.bytes({each});
  for (const unsigned each : {0x54u, 0x55u, 0x56u, 0x57u}) e.bytes({0x41, each});
  e.rip_relative({0x48, 0x89, 0x25}, code32 + saved_rsp_at);
  e.rip_relative({0xff, 0x35}, state + offsetof(NativeState, flags));
  e.bytes({0x9d});
  e.rip_relative({0xff, 0x2d}, code32 + far_pointer_at);  // jmp far
  // 32-bit: the registers, then the target. Nothing here changes flags.
  const u64 begin32 = code32 + 0x100;
  e.align_to(begin32);
  for (unsigned n = 0; n < 8; ++n) e.with_displacement({0x8b, 0x05 | (n << 3)}, state + gpr_at(n));
  e.bytes({0xe9});
  e.u32_value(target32 - (e.at() + 4));
  e.align_to(code32 + 0x200);
  for (unsigned n = 0; n < 8; ++n) e.with_displacement({0x89, 0x05 | (n << 3)}, state + gpr_at(n));
  e.bytes({0xea});  // jmp far back
  e.u32_value(code32 + 0x300);
  e.bytes({0x33, 0x00});
  e.align_to(code32 + 0x300);
  e.rip_relative({0x48, 0x8b, 0x25}, code32 + saved_rsp_at);
  e.bytes({0x9c});
  e.rip_relative({0x8f, 0x05}, state + offsetof(NativeState, flags));
  e.bytes({0xfc});
  for (const unsigned each : {0x5fu, 0x5eu, 0x5du, 0x5cu}) e.bytes({0x41, each});
  e.bytes({0x5d, 0x5b, 0xc3});
  Emitter pointer(code32 + far_pointer_at);
  pointer.u32_value(begin32);
  pointer.bytes({selector, 0x00});
}

Native::Outcome Native::run(std::span<const u8> bytes, NativeState& state, bool wide) const {
  const u64 target = wide ? target64 : target32;
  std::memcpy(reinterpret_cast<void*>(target), bytes.data(), bytes.size());
  Emitter e(target + bytes.size());
  e.bytes({0xe9});
  e.u32_value((wide ? code64 : code32) + 0x200 - (e.at() + 4));
  caught = 0;
  const u32 own_mxcsr = __builtin_ia32_stmxcsr();
  if (sigsetjmp(escape, 0) == 0) {
    if (wide) {
      reinterpret_cast<void (*)(NativeState*)>(code64)(&state);
    } else {
      std::memcpy(reinterpret_cast<void*>(code32 + state32_at), &state, sizeof state);
      reinterpret_cast<void (*)()>(code32)();
      std::memcpy(&state, reinterpret_cast<const void*>(code32 + state32_at), sizeof state);
      for (unsigned n = 0; n < 8; ++n) state.gpr[n] &= 0xffffffff;
    }
    __builtin_ia32_ldmxcsr(own_mxcsr);
    return Outcome::done;
  }
  __builtin_ia32_ldmxcsr(own_mxcsr);
  switch (caught) {
    case SIGFPE:
      return Outcome::divide_error;
    case SIGILL:
      return Outcome::invalid_opcode;
    default:
      return Outcome::memory_fault;
  }
}

}  // namespace vpmu::soft::test
