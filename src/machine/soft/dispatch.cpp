// The inner loop: direct-threaded handlers for the common forms, one label each, and the chaining of blocks.
//
// Labels as values are a GNU extension; this is the one file that uses them.
#include "machine/soft/core.hpp"

#pragma GCC diagnostic ignored "-Wpedantic"
#if defined(__clang__)
#pragma GCC diagnostic ignored "-Wgnu-label-as-value"
#endif

namespace vpmu::soft {

namespace {

template <class T>
inline T get(const u8* regs, u8 offset) {
  return load_host<T>(regs + offset);
}

/// Writes a register as the architecture has it: 32-bit results clear the upper half, smaller ones keep the rest.
template <class T>
inline void put(u8* regs, u8 offset, T value) {
  if constexpr (sizeof(T) == 4) {
    store_host<u64>(regs + offset, value);
  } else {
    store_host<T>(regs + offset, value);
  }
}

template <class T>
inline T multiply(LazyFlags& f, T a, T b) {
  __extension__ using Wide = std::conditional_t < sizeof(T) == 8, __int128, s64 > ;
  const Wide product = static_cast<Wide>(static_cast<std::make_signed_t<T>>(a)) *
                       static_cast<Wide>(static_cast<std::make_signed_t<T>>(b));
  const T r = static_cast<T>(product);
  const bool lost = product != static_cast<Wide>(static_cast<std::make_signed_t<T>>(r));
  f.set_partial(sign_extend(r), lost ? flag::cf | flag::of : 0);
  return r;
}

template <class From, class To>
inline To widen_signed(From value) {
  return static_cast<To>(static_cast<std::make_signed_t<To>>(static_cast<std::make_signed_t<From>>(value)));
}

}  // namespace

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

#define NEXT      \
  do {            \
    ++o;          \
    goto * o->go; \
  } while (0)

// One subtraction charges the whole block. If a field of the budget would go below zero the run loop has to look.
#define ENTER()                           \
  do {                                    \
    const u64 left = c.rem - blk->weight; \
    if (UNLIKELY(left & Weight::guard)) { \
      c.rip = blk->rip;                   \
      return nullptr;                     \
    }                                     \
    c.rem = left;                         \
    c.block = blk;                        \
    o = blk->ops;                         \
    goto * o->go;                         \
  } while (0)

#define CHAIN(n)                                   \
  do {                                             \
    if (LIKELY(blk->link_key[n] == c.chain_key)) { \
      blk = blk->link[n];                          \
      ENTER();                                     \
    }                                              \
    goto link##n;                                  \
  } while (0)

#define INDIRECT(to)                                       \
  do {                                                     \
    const u64 target = (to);                               \
    const JumpEntry& j = c.jumps[jump_index(target)];      \
    if (LIKELY(j.rip == target && j.key == c.chain_key)) { \
      blk = j.block;                                       \
      ENTER();                                             \
    }                                                      \
    c.rip = target;                                        \
    goto lookup;                                           \
  } while (0)

#define EA ((o->disp + get<u64>(regs, o->base) + (get<u64>(regs, o->index) << o->scale)) & o->mask)

#define LOAD(T, into, address, segment)                                 \
  T into;                                                               \
  {                                                                     \
    const u64 from = (address);                                         \
    if (const u8* host = tlb_hit<T>(c.tlb->read, from); LIKELY(host)) { \
      into = load_host<T>(host);                                        \
    } else {                                                            \
      c.op = o;                                                         \
      into = static_cast<T>(c.read_slow(from, sizeof(T), segment));     \
    }                                                                   \
  }

// `if_code` runs if the store changed code: the block may be stale from here on.
#define STORE(T, address, value, segment, if_code)               \
  {                                                              \
    const u64 to = (address);                                    \
    const T stored = (value);                                    \
    if (u8* host = tlb_hit<T>(c.tlb->write, to); LIKELY(host)) { \
      store_host<T>(host, stored);                               \
    } else {                                                     \
      c.op = o;                                                  \
      if (c.write_slow(to, sizeof(T), stored, segment)) if_code; \
    }                                                            \
  }

#define MODIFY(T, old, expression)                                           \
  {                                                                          \
    const u64 at = EA;                                                       \
    if (u8* host = tlb_hit<T>(c.tlb->write, at); LIKELY(host)) {             \
      const T old = load_host<T>(host);                                      \
      store_host<T>(host, expression);                                       \
    } else {                                                                 \
      c.op = o;                                                              \
      const T old = static_cast<T>(c.read_for_write(at, sizeof(T), o->seg)); \
      if (c.write_slow(at, sizeof(T), expression, o->seg)) goto leave_after; \
    }                                                                        \
    NEXT;                                                                    \
  }

const void* const* dispatch(Core* core, Block* blk) {
  static const void* const labels[] = {
#define VPMU_SOFT_LABEL(name) &&h_##name,
      VPMU_SOFT_FORMS(VPMU_SOFT_LABEL)
#undef VPMU_SOFT_LABEL
  };
  if (core == nullptr) return labels;

  Core& c = *core;
  u8* const regs = reinterpret_cast<u8*>(c.gpr.data());
  // The run loop has charged the first block.
  c.block = blk;
  const Op* o = blk->ops;
  goto * o->go;

h_general:
  c.op = o;
  o->insn->form(c, *o->insn);
  if (UNLIKELY(c.attention)) goto leave_after;
  NEXT;
h_general_end:
  c.op = o;
  c.rip = o->next;
  o->insn->form(c, *o->insn);
  if (UNLIKELY(c.attention)) return nullptr;
  INDIRECT(c.rip);
h_fall:
  CHAIN(1);
h_stop:
  c.rip = o->next;
  return nullptr;
h_nop:
  NEXT;

#define ALU_SIZE(name, T)                                                                \
  h_##name##_rr_##T : {                                                                  \
    const T r = alu<Alu::name, T>(c.fl, get<T>(regs, o->dst), get<T>(regs, o->src));     \
    if constexpr (Alu::name < Alu::cmp) put<T>(regs, o->dst, r);                         \
    NEXT;                                                                                \
  }                                                                                      \
  h_##name##_ri_##T : {                                                                  \
    const T r = alu<Alu::name, T>(c.fl, get<T>(regs, o->dst), static_cast<T>(o->imm));   \
    if constexpr (Alu::name < Alu::cmp) put<T>(regs, o->dst, r);                         \
    NEXT;                                                                                \
  }                                                                                      \
  h_##name##_rm_##T : {                                                                  \
    LOAD(T, operand, EA, o->seg);                                                        \
    const T r = alu<Alu::name, T>(c.fl, get<T>(regs, o->dst), operand);                  \
    if constexpr (Alu::name < Alu::cmp) put<T>(regs, o->dst, r);                         \
    NEXT;                                                                                \
  }                                                                                      \
  h_##name##_mr_##T : ALU_MEMORY_##name(name, T, get<T>(regs, o->src)) h_##name##_mi_##T \
      : ALU_MEMORY_##name(name, T, static_cast<T>(o->imm))
#define ALU_MODIFY(name, T, operand) MODIFY(T, old, (alu<Alu::name, T>(c.fl, old, operand)))
#define ALU_COMPARE(name, T, operand)            \
  {                                              \
    LOAD(T, old, EA, o->seg);                    \
    (void)alu<Alu::name, T>(c.fl, old, operand); \
    NEXT;                                        \
  }
#define ALU_MEMORY_add ALU_MODIFY
#define ALU_MEMORY_or_ ALU_MODIFY
#define ALU_MEMORY_adc ALU_MODIFY
#define ALU_MEMORY_sbb ALU_MODIFY
#define ALU_MEMORY_and_ ALU_MODIFY
#define ALU_MEMORY_sub ALU_MODIFY
#define ALU_MEMORY_xor_ ALU_MODIFY
#define ALU_MEMORY_cmp ALU_COMPARE
#define ALU_MEMORY_test ALU_COMPARE
#define ALU(name) ALU_SIZE(name, u8) ALU_SIZE(name, u16) ALU_SIZE(name, u32) ALU_SIZE(name, u64)
  ALU(add)
  ALU(or_)
  ALU(adc)
  ALU(sbb)
  ALU(and_)
  ALU(sub)
  ALU(xor_)
  ALU(cmp)
  ALU(test)

#define MOVES(T)                                                    \
  h_mov_rr_##T : {                                                  \
    put<T>(regs, o->dst, get<T>(regs, o->src));                     \
    NEXT;                                                           \
  }                                                                 \
  h_mov_ri_##T : {                                                  \
    put<T>(regs, o->dst, static_cast<T>(o->imm));                   \
    NEXT;                                                           \
  }                                                                 \
  h_mov_rm_##T : {                                                  \
    LOAD(T, value, EA, o->seg);                                     \
    put<T>(regs, o->dst, value);                                    \
    NEXT;                                                           \
  }                                                                 \
  h_mov_mr_##T : {                                                  \
    STORE(T, EA, get<T>(regs, o->src), o->seg, goto leave_after);   \
    NEXT;                                                           \
  }                                                                 \
  h_mov_mi_##T : {                                                  \
    STORE(T, EA, static_cast<T>(o->imm), o->seg, goto leave_after); \
    NEXT;                                                           \
  }
  MOVES(u8)
  MOVES(u16)
  MOVES(u32)
  MOVES(u64)

#define EXTEND(name, From, To, convert)                      \
  h_##name##_rr_##From : {                                   \
    put<To>(regs, o->dst, convert(get<From>(regs, o->src))); \
    NEXT;                                                    \
  }                                                          \
  h_##name##_rm_##From : {                                   \
    LOAD(From, value, EA, o->seg);                           \
    put<To>(regs, o->dst, convert(value));                   \
    NEXT;                                                    \
  }
  EXTEND(movzx, u8, u32, static_cast<u32>)
  EXTEND(movzx, u16, u32, static_cast<u32>)
  EXTEND(movsx32, u8, u32, (widen_signed<u8, u32>))
  EXTEND(movsx32, u16, u32, (widen_signed<u16, u32>))
  EXTEND(movsx64, u8, u64, (widen_signed<u8, u64>))
  EXTEND(movsx64, u16, u64, (widen_signed<u16, u64>))
  EXTEND(movsx64, u32, u64, (widen_signed<u32, u64>))

h_lea_u32:
  put<u32>(regs, o->dst, static_cast<u32>(EA));
  NEXT;
h_lea_u64:
  put<u64>(regs, o->dst, EA);
  NEXT;

#define UNARY(T)                                                                                              \
  h_inc_r_##T : put<T>(regs, o->dst, increment<T>(c.fl, get<T>(regs, o->dst)));                               \
  NEXT;                                                                                                       \
  h_dec_r_##T : put<T>(regs, o->dst, decrement<T>(c.fl, get<T>(regs, o->dst)));                               \
  NEXT;                                                                                                       \
  h_inc_m_##T : MODIFY(T, old, increment<T>(c.fl, old)) h_dec_m_##T : MODIFY(T, old, decrement<T>(c.fl, old)) \
                                                                          h_neg_r_##T                         \
      : put<T>(regs, o->dst, negate<T>(c.fl, get<T>(regs, o->dst)));                                          \
  NEXT;                                                                                                       \
  h_not_r_##T : put<T>(regs, o->dst, static_cast<T>(~get<T>(regs, o->dst)));                                  \
  NEXT;
  UNARY(u8)
  UNARY(u16)
  UNARY(u32)
  UNARY(u64)

#define SHIFT_SIZE(name, T)                                                                                     \
  h_##name##_ri_##T                                                                                             \
      : put<T>(regs, o->dst, shift<Shift::name, T>(c.fl, get<T>(regs, o->dst), static_cast<unsigned>(o->imm))); \
  NEXT;                                                                                                         \
  h_##name##_rc_##T : put<T>(regs, o->dst,                                                                      \
                             shift<Shift::name, T>(c.fl, get<T>(regs, o->dst),                                  \
                                                   get<u8>(regs, rcx * 8) & (sizeof(T) == 8 ? 63u : 31u)));     \
  NEXT;
#define SHIFTS(name) SHIFT_SIZE(name, u8) SHIFT_SIZE(name, u16) SHIFT_SIZE(name, u32) SHIFT_SIZE(name, u64)
  SHIFTS(shl)
  SHIFTS(shr)
  SHIFTS(sar)

#define MULTIPLY(T)                                                                                       \
  h_imul_rr_##T : put<T>(regs, o->dst, multiply<T>(c.fl, get<T>(regs, o->dst), get<T>(regs, o->src)));    \
  NEXT;                                                                                                   \
  h_imul_rm_##T : {                                                                                       \
    LOAD(T, value, EA, o->seg);                                                                           \
    put<T>(regs, o->dst, multiply<T>(c.fl, get<T>(regs, o->dst), value));                                 \
    NEXT;                                                                                                 \
  }                                                                                                       \
  h_imul_rri_##T : put<T>(regs, o->dst, multiply<T>(c.fl, get<T>(regs, o->src), static_cast<T>(o->imm))); \
  NEXT;
  MULTIPLY(u32)
  MULTIPLY(u64)

// The stack of 64-bit mode, and the flat one of 32-bit code; o->mask is of the stack's address size.
#define STACK(T)                                          \
  h_push_r_##T : {                                        \
    const u64 sp = (c.gpr[rsp] - sizeof(T)) & o->mask;    \
    STORE(T, sp, get<T>(regs, o->src), Seg::ss, {         \
      c.gpr[rsp] = sp;                                    \
      goto leave_after;                                   \
    });                                                   \
    c.gpr[rsp] = sp;                                      \
    NEXT;                                                 \
  }                                                       \
  h_push_i_##T : {                                        \
    const u64 sp = (c.gpr[rsp] - sizeof(T)) & o->mask;    \
    STORE(T, sp, static_cast<T>(o->imm), Seg::ss, {       \
      c.gpr[rsp] = sp;                                    \
      goto leave_after;                                   \
    });                                                   \
    c.gpr[rsp] = sp;                                      \
    NEXT;                                                 \
  }                                                       \
  h_pop_r_##T : {                                         \
    LOAD(T, value, c.gpr[rsp], Seg::ss);                  \
    c.gpr[rsp] = (c.gpr[rsp] + sizeof(T)) & o->mask;      \
    put<T>(regs, o->dst, value);                          \
    NEXT;                                                 \
  }                                                       \
  h_call_##T : {                                          \
    const u64 sp = (c.gpr[rsp] - sizeof(T)) & o->mask;    \
    STORE(T, sp, static_cast<T>(o->next), Seg::ss, {      \
      c.gpr[rsp] = sp;                                    \
      c.rip = o->imm;                                     \
      return nullptr;                                     \
    });                                                   \
    c.gpr[rsp] = sp;                                      \
    CHAIN(0);                                             \
  }                                                       \
  h_call_r_##T : {                                        \
    const u64 callee = get<T>(regs, o->src);              \
    if (UNLIKELY(!is_canonical(callee))) goto bad_target; \
    const u64 sp = (c.gpr[rsp] - sizeof(T)) & o->mask;    \
    STORE(T, sp, static_cast<T>(o->next), Seg::ss, {      \
      c.gpr[rsp] = sp;                                    \
      c.rip = callee;                                     \
      return nullptr;                                     \
    });                                                   \
    c.gpr[rsp] = sp;                                      \
    INDIRECT(callee);                                     \
  }                                                       \
  h_ret_##T : {                                           \
    LOAD(T, caller, c.gpr[rsp], Seg::ss);                 \
    if (UNLIKELY(!is_canonical(caller))) goto bad_target; \
    c.gpr[rsp] = (c.gpr[rsp] + sizeof(T)) & o->mask;      \
    INDIRECT(caller);                                     \
  }                                                       \
  h_leave_##T : {                                         \
    const u64 frame = c.gpr[rbp] & o->mask;               \
    LOAD(T, value, frame, Seg::ss);                       \
    c.gpr[rsp] = (frame + sizeof(T)) & o->mask;           \
    put<T>(regs, rbp * 8, value);                         \
    NEXT;                                                 \
  }
  STACK(u32)
  STACK(u64)

h_jmp:
  CHAIN(0);
h_jmp_r: {
  const u64 to = get<u64>(regs, o->src) & o->mask;
  if (UNLIKELY(!is_canonical(to))) goto bad_target;
  INDIRECT(to);
}
h_cdq:
  put<u32>(regs, rdx * 8, static_cast<u32>(static_cast<std::int32_t>(get<u32>(regs, rax * 8)) >> 31));
  NEXT;
h_cqo:
  put<u64>(regs, rdx * 8, static_cast<u64>(static_cast<s64>(get<u64>(regs, rax * 8)) >> 63));
  NEXT;
h_cwde:
  put<u32>(regs, rax * 8, widen_signed<u16, u32>(get<u16>(regs, rax * 8)));
  NEXT;
h_cdqe:
  put<u64>(regs, rax * 8, widen_signed<u32, u64>(get<u32>(regs, rax * 8)));
  NEXT;
#define EXCHANGE(T)                        \
  h_xchg_rr_##T : {                        \
    const T first = get<T>(regs, o->dst);  \
    const T second = get<T>(regs, o->src); \
    put<T>(regs, o->dst, second);          \
    put<T>(regs, o->src, first);           \
    NEXT;                                  \
  }
  EXCHANGE(u32)
  EXCHANGE(u64)

#define CONDITION(name)                                                  \
  h_j_##name : if (c.fl.test<Cond::name>()) CHAIN(0);                    \
  CHAIN(1);                                                              \
  h_set_##name : put<u8>(regs, o->dst, c.fl.test<Cond::name>() ? 1 : 0); \
  NEXT;
  CONDITION(o)
  CONDITION(no)
  CONDITION(b)
  CONDITION(nb)
  CONDITION(z)
  CONDITION(nz)
  CONDITION(be)
  CONDITION(nbe)
  CONDITION(s)
  CONDITION(ns)
  CONDITION(p)
  CONDITION(np)
  CONDITION(l)
  CONDITION(nl)
  CONDITION(le)
  CONDITION(nle)

h_cmov_rr_u32:
  put<u32>(regs, o->dst, get<u32>(regs, c.fl.test(static_cast<Cond>(o->condition)) ? o->src : o->dst));
  NEXT;
h_cmov_rr_u64:
  if (c.fl.test(static_cast<Cond>(o->condition))) put<u64>(regs, o->dst, get<u64>(regs, o->src));
  NEXT;

#define JUMP_IF(condition)          \
  do {                              \
    const bool taken = (condition); \
    ++o;                            \
    if (taken) CHAIN(0);            \
    CHAIN(1);                       \
  } while (0)
#define FUSED_CONDITION(T, name)                                                                        \
  h_cmp_rr_j_##T##_##name : (void)alu<Alu::cmp, T>(c.fl, get<T>(regs, o->dst), get<T>(regs, o->src));   \
  JUMP_IF(c.fl.test<Cond::name>());                                                                     \
  h_cmp_ri_j_##T##_##name : (void)alu<Alu::cmp, T>(c.fl, get<T>(regs, o->dst), static_cast<T>(o->imm)); \
  JUMP_IF(c.fl.test<Cond::name>());
#define FUSED(T)                                                                                           \
  h_dec_jnz_##T : {                                                                                        \
    const T r = decrement<T>(c.fl, get<T>(regs, o->dst));                                                  \
    put<T>(regs, o->dst, r);                                                                               \
    JUMP_IF(r != 0);                                                                                       \
  }                                                                                                        \
  h_sub_ri_jnz_##T : {                                                                                     \
    const T r = alu<Alu::sub, T>(c.fl, get<T>(regs, o->dst), static_cast<T>(o->imm));                      \
    put<T>(regs, o->dst, r);                                                                               \
    JUMP_IF(r != 0);                                                                                       \
  }                                                                                                        \
  h_add_ri_jnz_##T : {                                                                                     \
    const T r = alu<Alu::add, T>(c.fl, get<T>(regs, o->dst), static_cast<T>(o->imm));                      \
    put<T>(regs, o->dst, r);                                                                               \
    JUMP_IF(r != 0);                                                                                       \
  }                                                                                                        \
  h_test_rr_jz_##T : JUMP_IF((alu<Alu::test, T>(c.fl, get<T>(regs, o->dst), get<T>(regs, o->src))) == 0);  \
  h_test_rr_jnz_##T : JUMP_IF((alu<Alu::test, T>(c.fl, get<T>(regs, o->dst), get<T>(regs, o->src))) != 0); \
  FUSED_CONDITION(T, b)                                                                                    \
  FUSED_CONDITION(T, nb)                                                                                   \
  FUSED_CONDITION(T, z)                                                                                    \
  FUSED_CONDITION(T, nz)                                                                                   \
  FUSED_CONDITION(T, be)                                                                                   \
  FUSED_CONDITION(T, nbe)                                                                                  \
  FUSED_CONDITION(T, l)                                                                                    \
  FUSED_CONDITION(T, nl)                                                                                   \
  FUSED_CONDITION(T, le)                                                                                   \
  FUSED_CONDITION(T, nle)
  FUSED(u32)
  FUSED(u64)

bad_target:
  c.op = o;
  raise_gp();

leave_after:
  c.rip = o->next;
  c.refund(o + 1);
  return nullptr;

link0:
  c.rip = o->imm;
  if (c.rem & Weight::guard || c.stop_wanted()) return nullptr;
  {
    Block* const from = blk;
    const u64 key = c.chain_key;
    c.op = nullptr;
    blk = c.find_block();
    if (c.chain_key == key) {
      from->link[0] = blk;
      from->link_key[0] = key;
    }
  }
  ENTER();
link1:
  c.rip = o->next;
  if (c.rem & Weight::guard || c.stop_wanted()) return nullptr;
  {
    Block* const from = blk;
    const u64 key = c.chain_key;
    c.op = nullptr;
    blk = c.find_block();
    if (c.chain_key == key) {
      from->link[1] = blk;
      from->link_key[1] = key;
    }
  }
  ENTER();
lookup:
  if (c.rem & Weight::guard || c.stop_wanted()) return nullptr;
  c.op = nullptr;
  blk = c.find_block();
  ENTER();
}

}  // namespace vpmu::soft
