#include "machine/soft/forms.hpp"

#include <Zydis/Zydis.h>

namespace vpmu::soft {

FormTable::FormTable() {
  forms_.resize(ZYDIS_MNEMONIC_MAX_VALUE + 1);
  add_integer_forms(*this);
  add_shift_forms(*this);
  add_string_forms(*this);
  add_control_forms(*this);
  add_system_forms(*this);
  add_sse_forms(*this);
  add_sse_integer_forms(*this);
}

const FormTable& FormTable::get() {
  static const FormTable table;
  return table;
}

const FormInfo& FormTable::find(u16 mnemonic, bool two_byte_opcode) const {
  if (two_byte_opcode) {
    for (const auto& [name, info] : sse_twins_) {
      if (name == mnemonic) return info;
    }
  }
  return forms_[mnemonic];
}

}  // namespace vpmu::soft
