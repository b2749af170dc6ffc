#include "runtime/pmi.hpp"

#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/pmu.hpp"

namespace vpmu::guest {
namespace {

constinit PmiTally tally{};

}  // namespace

std::uint32_t lvtpc_value(Delivery delivery) {
  return delivery == Delivery::nmi ? lvt::nmi : std::uint32_t{vector::pmi};
}

void route_pmis(Delivery delivery, InterruptHandler handler) {
  set_interrupt_handler(delivery == Delivery::nmi ? vector::nmi : vector::pmi, handler);
  write_apic(ApicRegister::lvt_performance, lvtpc_value(delivery));
}

void mask_pmis() { write_apic(ApicRegister::lvt_performance, read_apic(ApicRegister::lvt_performance) | lvt::masked); }

bool pmi_masks_lvtpc() { return pmu().is_intel() && option("lvtpc_mask", 1) != 0; }

void count_pmi(InterruptFrame& frame) {
  ++tally.count;
  tally.rip = frame.rip;
  tally.from_user = frame.from_user();
  const std::uint32_t lvtpc = read_apic(ApicRegister::lvt_performance);
  tally.masked = (lvtpc & lvt::masked) != 0;
  write_apic(ApicRegister::lvt_performance, lvtpc & ~lvt::masked);
  if (frame.vector == vector::pmi) end_of_interrupt();
}

PmiTally& pmi_tally() { return tally; }

}  // namespace vpmu::guest
