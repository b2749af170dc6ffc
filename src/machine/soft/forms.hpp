// The general path: a function for each mnemonic, and what the block builder has to know about it.
#pragma once

#include "machine/soft/core.hpp"

namespace vpmu::soft {

/// Division takes longer for 64 bits.
inline constexpr u16 divide_cycles = 21;
inline constexpr u16 wide_divide_cycles = 38;

struct FormInfo {
  GeneralForm form = nullptr;
  u16 cycles = 1;
  bool ends = false;    ///< Ends its block: may change RIP, the mode, or what may be interrupted.
  bool branch = false;  ///< Counts as a retired branch.
};

/// By Zydis mnemonic. MOVSD and CMPSD name both string and SSE2 instructions; the latter have a table of their own.
class FormTable {
 public:
  static const FormTable& get();
  [[nodiscard]] const FormInfo& find(u16 mnemonic, bool two_byte_opcode) const;

  void add(int mnemonic, const FormInfo& info) { forms_[static_cast<std::size_t>(mnemonic)] = info; }
  void add_sse(int mnemonic, const FormInfo& info) { sse_twins_.emplace_back(mnemonic, info); }

 private:
  FormTable();
  std::vector<FormInfo> forms_;
  std::vector<std::pair<int, FormInfo>> sse_twins_;
};

void add_integer_forms(FormTable& table);      // forms_integer.cpp
void add_shift_forms(FormTable& table);        // forms_shift.cpp
void add_string_forms(FormTable& table);       // forms_string.cpp
void add_control_forms(FormTable& table);      // forms_control.cpp
void add_system_forms(FormTable& table);       // forms_system.cpp
void add_sse_forms(FormTable& table);          // forms_sse.cpp
void add_sse_integer_forms(FormTable& table);  // forms_sse_integer.cpp

/// #UD, and the instruction is named in the report.
void unknown_form(Core& core, const Insn& i);
/// #UD without a note: the encoding is invalid or meant to fault.
void undefined_form(Core& core, const Insn& i);
/// The instruction is longer than 15 bytes.
void too_long_form(Core& core, const Insn& i);
void no_operation(Core& core, const Insn& i);

enum class DecodeResult : u8 { ok, needs_more };

/// Decodes one instruction. Bytes that are no instruction decode as one that faults.
DecodeResult decode(const u8* bytes, std::size_t length, u64 rip, u32 mode, Insn& i, Op& op, bool& ends);
/// Joins a comparison and the conditional jump after it, where there is a handler for the pair.
void fuse(Op& first, const Op& second);

namespace mode_bits {
inline constexpr u32 code_mask = 3, code64 = 0, code32 = 1, code16 = 2;
inline constexpr u32 cpl_shift = 2;
inline constexpr u32 segmented = 1u << 4;    ///< Not all of CS, DS, ES and SS are flat.
inline constexpr u32 small_stack = 1u << 5;  ///< 16-bit stack.
inline constexpr u32 general_only = 1u << 6;
}  // namespace mode_bits

}  // namespace vpmu::soft
