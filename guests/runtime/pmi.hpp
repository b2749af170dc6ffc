// How the PMI arrives: LVTPC and its handler.
#pragma once

#include <cstdint>

#include "runtime/interrupts.hpp"

namespace vpmu::guest {

enum class Delivery : std::uint8_t { nmi, vector };

/// LVTPC's value, unmasked.
std::uint32_t lvtpc_value(Delivery delivery);

/// Sends PMIs to a handler from now on.
void route_pmis(Delivery delivery, InterruptHandler handler);
void mask_pmis();

/// Whether taking a PMI masks LVTPC: on Intel, unless the command line says lvtpc_mask=0 (a hypervisor may not show
/// it).
bool pmi_masks_lvtpc();

/// PMIs that this handler took; nothing else does it do but unmask LVTPC and, in vector mode, end the interrupt.
void count_pmi(InterruptFrame& frame);
struct PmiTally {
  std::uint64_t count = 0;
  std::uint64_t rip = 0;  // of the last
  bool from_user = false;
  bool masked = false;  // LVTPC was, in the handler
};
PmiTally& pmi_tally();

}  // namespace vpmu::guest
