#include "lab/replay_registers.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace vpmu::lab {
namespace {

using arch::RegisterKind;

}  // namespace

arch::Register pmu_register(const Profile& profile, std::uint32_t index) {
  const arch::Register reg = arch::find_register(static_cast<Msr>(index));
  constexpr std::uint8_t common = 8;
  const bool counter = reg.kind == RegisterKind::pmc || reg.kind == RegisterKind::perfevtsel;
  return counter && reg.number >= common && reg.number >= profile.gp_counters ? arch::Register{} : reg;
}

bool is_shared_or_constant(arch::Register reg) {
  return reg.kind == RegisterKind::perf_capabilities || reg.kind == RegisterKind::misc_enable ||
         reg.kind == RegisterKind::debugctl;
}

std::uint64_t pmu_part(arch::Register reg, std::uint64_t value, const Profile& profile) {
  if (reg.kind == RegisterKind::debugctl) return value & arch::legal_debugctl(profile);
  if (reg.kind == RegisterKind::misc_enable) return arch::misc_enable_bits(profile);
  return value;
}

template <class Name>
RegisterUse& RegisterUses::at(std::uint64_t key, Name&& name) {
  const auto [place, is_new] = places_.try_emplace(key, uses_.size());
  if (is_new) uses_.emplace_back().name = name();
  return uses_[place->second];
}

RegisterUse& RegisterUses::of(std::uint32_t index) {
  return at(index, [index] { return std::string{register_name(Msr{index}).text}; });
}

RegisterUse& RegisterUses::of_rdpmc(CounterId counter) {
  constexpr std::uint64_t not_an_msr = std::uint64_t{1} << 32;
  return at(not_an_msr + counter.bit(),
            [counter] { return fmt::format("RDPMC {}{}", counter.is_fixed() ? "fixed " : "", counter.number()); });
}

std::vector<RegisterUse> RegisterUses::sorted() const {
  std::vector<RegisterUse> sorted = uses_;
  std::ranges::sort(sorted, [](const RegisterUse& a, const RegisterUse& b) {
    return a.total() != b.total() ? a.total() > b.total() : a.name < b.name;
  });
  return sorted;
}

}  // namespace vpmu::lab
