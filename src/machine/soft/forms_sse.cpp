#include "machine/soft/forms.hpp"
namespace vpmu::soft {
void add_sse_forms(FormTable&) {}
}  // namespace vpmu::soft
