#include "machine/soft/forms.hpp"
namespace vpmu::soft {
void add_sse_integer_forms(FormTable&) {}
}  // namespace vpmu::soft
