#include "lab/zero_reads.hpp"

#include <fmt/format.h>

#include "arch/registers.hpp"

namespace vpmu::lab {

void ZeroReads::look(const VirtualPmu& pmu) {
  const RegisterFile& registers = pmu.registers();
  revision_ = registers.revision();
  for_each_counter(pmu.profile().counters(), [&](CounterId id) {
    Counter& counter = counters_[id.slot()];
    const std::uint64_t control =
        id.is_fixed() ? fixed_ctrl::field(registers.fixed_ctrl(), id.number()) : registers.selector(id);
    if (control != counter.control) counter.counted = false;
    counter.control = control;
    const bool on = id.is_fixed() ? control != 0 : (control & evtsel::enable) != 0;
    if (!on) return;
    const Explanation explanation = pmu.explain(id);
    counter.counted |= explanation.counts;
    // A guest that stops its counters to read them does so on purpose.
    counter.why = counter.counted ? nullptr : explanation.sentence;
  });
}

void ZeroReads::read(CounterId id, std::uint64_t value) {
  Counter& counter = counters_[id.slot()];
  counter.read = value == 0 ? counter.why : nullptr;
}

void ZeroReads::read_msr(Msr msr, std::uint64_t value) {
  const arch::Register reg = arch::find_register(msr);
  switch (reg.kind) {
    case arch::RegisterKind::pmc:
    case arch::RegisterKind::a_pmc:
    case arch::RegisterKind::k7_perf_ctr:
    case arch::RegisterKind::core_perf_ctr:
      return read(CounterId::gp(reg.number), value);
    case arch::RegisterKind::fixed_ctr:
      return read(CounterId::fixed(reg.number), value);
    default:
      return;
  }
}

void ZeroReads::read_pmc(const Profile& profile, std::uint32_t ecx, std::uint64_t value) {
  const std::uint32_t bit = arch::find_pmc(profile, ecx);
  if (bit != arch::no_counter) read(CounterId::from_bit(bit), value);
}

std::vector<std::pair<std::string, std::string>> ZeroReads::list() const {
  std::vector<std::pair<std::string, std::string>> list;
  for (std::uint32_t slot = 0; slot < max_counters; ++slot) {
    if (counters_[slot].read != nullptr)
      list.emplace_back(counter_name(CounterId::from_slot(slot)), counters_[slot].read);
  }
  return list;
}

std::string counter_name(CounterId counter) {
  return fmt::format("{} {}", counter.is_fixed() ? "fixed" : "gp", counter.number());
}

}  // namespace vpmu::lab
