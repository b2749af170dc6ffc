// A decoded instruction, twice: in full for the general path, and as the compact operation that dispatch runs.
#pragma once

#include <array>
#include <cstddef>

#include "machine/soft/types.hpp"

namespace vpmu::soft {

struct Core;
struct Insn;

/// Register operands are byte offsets into the register file, so that AH is just 1. Past the sixteen registers
/// stands one that is always zero: the base or index of an address that has none.
inline constexpr u8 zero_register = 16 * 8;

enum class Seg : u8 { es, cs, ss, ds, fs, gs };
inline constexpr std::size_t seg_count = 6;

struct Operand {
  enum class Kind : u8 { none, reg, mem, imm, xmm, seg, cr, dr, far, unsupported };
  Kind kind = Kind::none;
  u8 bytes = 0;  ///< Width.
  u8 reg = 0;    ///< Byte offset for `reg`, number for the others.
};

enum class Rep : u8 { none, repe, repne };

using GeneralForm = void (*)(Core&, const Insn&);

/// An instruction with all that the general path may ask about it.
struct Insn {
  GeneralForm form = nullptr;
  u64 imm = 0;   ///< Sign-extended; for a relative branch the target.
  u64 disp = 0;  ///< Displacement; for RIP-relative addressing the address.
  u64 next = 0;  ///< The address of the instruction that follows.
  u32 imm2 = 0;  ///< ENTER's second operand, or a far pointer's selector.
  u16 mnemonic = 0;
  std::array<Operand, 4> op{};
  u8 base = zero_register;
  u8 index = zero_register;
  u8 scale = 0;  ///< As a shift count.
  Seg seg = Seg::ds;
  u8 length = 0;
  u8 operand_bytes = 4;
  u8 address_bytes = 8;
  u8 stack_bytes = 8;
  Rep rep = Rep::none;
  bool lock = false;
  u8 opcode = 0;
  u8 modrm_reg = 0;
  bool register_form = false;  ///< ModRM.mod is 3.
  std::array<u8, 15> bytes{};
};

// The forms which have a handler of their own in dispatch.cpp. Groups of four are one per operand size, in order.
// clang-format off: it makes stairs of lists of macro calls
#define VPMU_SOFT_SIZES(X, name) X(name##_u8) X(name##_u16) X(name##_u32) X(name##_u64)
#define VPMU_SOFT_ALU(X, name) \
  VPMU_SOFT_SIZES(X, name##_rr) VPMU_SOFT_SIZES(X, name##_ri) VPMU_SOFT_SIZES(X, name##_rm) \
  VPMU_SOFT_SIZES(X, name##_mr) VPMU_SOFT_SIZES(X, name##_mi)
#define VPMU_SOFT_SHIFT(X, name) VPMU_SOFT_SIZES(X, name##_ri) VPMU_SOFT_SIZES(X, name##_rc)
#define VPMU_SOFT_CONDS(X, name) \
  X(name##_o) X(name##_no) X(name##_b) X(name##_nb) X(name##_z) X(name##_nz) X(name##_be) X(name##_nbe) \
  X(name##_s) X(name##_ns) X(name##_p) X(name##_np) X(name##_l) X(name##_nl) X(name##_le) X(name##_nle)
// Comparison and jump in one: the conditions that follow comparisons in practice, at the two common sizes.
#define VPMU_SOFT_FUSED(X, name) \
  X(name##_b) X(name##_nb) X(name##_z) X(name##_nz) X(name##_be) X(name##_nbe) X(name##_l) X(name##_nl) \
  X(name##_le) X(name##_nle)
#define VPMU_SOFT_FORMS(X) \
  X(general) X(general_end) X(fall) X(stop) X(nop) VPMU_SOFT_ALU(X, add) VPMU_SOFT_ALU(X, or_) \
  VPMU_SOFT_ALU(X, adc) VPMU_SOFT_ALU(X, sbb) VPMU_SOFT_ALU(X, and_) VPMU_SOFT_ALU(X, sub) VPMU_SOFT_ALU(X, xor_) \
  VPMU_SOFT_ALU(X, cmp) VPMU_SOFT_ALU(X, test) VPMU_SOFT_SIZES(X, mov_rr) VPMU_SOFT_SIZES(X, mov_ri) \
  VPMU_SOFT_SIZES(X, mov_rm) VPMU_SOFT_SIZES(X, mov_mr) VPMU_SOFT_SIZES(X, mov_mi) X(movzx_rr_u8) X(movzx_rr_u16) \
  X(movzx_rm_u8) X(movzx_rm_u16) X(movsx32_rr_u8) X(movsx32_rr_u16) X(movsx32_rm_u8) X(movsx32_rm_u16) \
  X(movsx64_rr_u8) X(movsx64_rr_u16) X(movsx64_rr_u32) X(movsx64_rm_u8) X(movsx64_rm_u16) X(movsx64_rm_u32) \
  X(lea_u32) X(lea_u64) VPMU_SOFT_SIZES(X, inc_r) VPMU_SOFT_SIZES(X, dec_r) VPMU_SOFT_SIZES(X, inc_m) \
  VPMU_SOFT_SIZES(X, dec_m) VPMU_SOFT_SIZES(X, neg_r) VPMU_SOFT_SIZES(X, not_r) VPMU_SOFT_SHIFT(X, shl) \
  VPMU_SOFT_SHIFT(X, shr) VPMU_SOFT_SHIFT(X, sar) X(imul_rr_u32) X(imul_rr_u64) X(imul_rm_u32) X(imul_rm_u64) \
  X(imul_rri_u32) X(imul_rri_u64) X(push_r_u32) X(push_r_u64) X(push_i_u32) X(push_i_u64) X(pop_r_u32) \
  X(pop_r_u64) X(call_u32) X(call_u64) X(call_r_u32) X(call_r_u64) X(ret_u32) X(ret_u64) X(leave_u32) X(leave_u64) \
  X(jmp) X(jmp_r) X(cdq) X(cqo) X(cwde) X(cdqe) X(xchg_rr_u32) X(xchg_rr_u64) VPMU_SOFT_CONDS(X, j) \
  VPMU_SOFT_CONDS(X, set) X(cmov_rr_u32) X(cmov_rr_u64) X(dec_jnz_u32) X(dec_jnz_u64) X(sub_ri_jnz_u32) \
  X(sub_ri_jnz_u64) X(add_ri_jnz_u32) X(add_ri_jnz_u64) X(test_rr_jz_u32) X(test_rr_jz_u64) X(test_rr_jnz_u32) \
  X(test_rr_jnz_u64) VPMU_SOFT_FUSED(X, cmp_rr_j_u32) VPMU_SOFT_FUSED(X, cmp_rr_j_u64) \
  VPMU_SOFT_FUSED(X, cmp_ri_j_u32) VPMU_SOFT_FUSED(X, cmp_ri_j_u64)
// clang-format on

enum class Form : u16 {
#define VPMU_SOFT_NAME(name) name,
  VPMU_SOFT_FORMS(VPMU_SOFT_NAME)
#undef VPMU_SOFT_NAME
      count_
};

/// One operation of a block. The handler's address comes first; the rest is what handlers read.
struct Op {
  const void* go = nullptr;
  u64 imm = 0;                 ///< Immediate, or the target of a direct branch.
  u64 disp = 0;                ///< Displacement, or the address for RIP-relative addressing.
  u64 mask = ~u64{0};          ///< Of the address size.
  u64 next = 0;                ///< The address of the next instruction.
  const Insn* insn = nullptr;  ///< For the general path.
  u8 dst = 0;
  u8 src = 0;
  u8 base = zero_register;
  u8 index = zero_register;
  u8 scale = 0;
  Seg seg = Seg::ds;
  u8 length = 0;
  bool branch = false;
  u16 cycles = 1;
  Form form = Form::general;
  Form plain = Form::general;  ///< `form`, had the operation not been fused with the next.
  u16 condition = 0;
};

/// How many instructions, cycles and branches: three 20-bit fields with a guard bit above each, so that one
/// subtraction charges a block and one test says whether it may run.
struct Weight {
  static constexpr unsigned cycles_shift = 21;
  static constexpr unsigned branches_shift = 42;
  static constexpr u64 field = (u64{1} << 20) - 1;
  static constexpr u64 guard = (u64{1} << 20) | (u64{1} << 41) | (u64{1} << 62);
  /// A budget from which even the smallest weight leaves a guard bit set.
  static constexpr u64 exhausted = (u64{1} << 20) | (u64{1} << 19);

  static constexpr u64 pack(u64 instructions, u64 cycles, u64 branches) {
    return instructions | (cycles << cycles_shift) | (branches << branches_shift);
  }
  static constexpr u64 instructions(u64 packed) { return packed & field; }
  static constexpr u64 cycles(u64 packed) { return (packed >> cycles_shift) & field; }
  static constexpr u64 branches(u64 packed) { return (packed >> branches_shift) & field; }
};

/// Straight-line code: at most 64 instructions of one page (or one that straddles two), ending at a branch, at an
/// instruction that may change what comes next, or at the page's end.
struct Block {
  static constexpr unsigned max_instructions = 64;

  u64 weight = 0;
  std::array<u64, 2> link_key{};  ///< Core::chain_key when the link was made.
  std::array<Block*, 2> link{};   ///< Successors: [0] the branch target, [1] the next in memory.
  u64 rip = 0;
  u64 physical = 0;
  u64 second_page = ~u64{0};  ///< Physical address of the second page, if the only instruction straddles two.
  u32 mode = 0;
  u16 count = 0;
  u16 bytes = 0;
  bool valid = true;
  Block* hash_next = nullptr;
  Op* ops = nullptr;  ///< `count` operations and a `fall`.
};

}  // namespace vpmu::soft
