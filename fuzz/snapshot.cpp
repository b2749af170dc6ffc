// Any bytes as a snapshot, with and without a form that passes: restored or refused, never a crash; what was restored
// is saved as the same bytes, and the guest can go on.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "pmu/snapshot_bytes.hpp"
#include "pmu/world.hpp"

namespace {

using vpmu::Snapshot;
using vpmu::test::World;

void require(bool holds) {
  if (!holds) std::abort();
}

void try_to_restore(const vpmu::Profile& profile, const std::uint8_t* bytes, std::size_t size) {
  World world{profile};
  const Snapshot before = world.pmu.save();
  const auto result = world.pmu.restore(bytes, size);
  if (!result.ok()) {
    require(world.pmu.save() == before);
    require(vpmu::describe(result.error().kind) != nullptr);
    return;
  }
  require(size == Snapshot::size);
  const Snapshot saved = world.pmu.save();
  require(std::equal(saved.bytes.begin(), saved.bytes.end(), bytes));
  world.run(100);
  world.emulate(10, 3);
  world.entry();
  for (const vpmu::Msr msr : vpmu::state_msrs(profile)) require(world.pmu.read_msr(msr).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  vpmu::Profile profile = vpmu::named_profiles().first[*data % vpmu::named_profiles().count].profile;
  if (profile.pdcm && (*data & 0x80) != 0) profile.perf_capabilities |= 4U << 8 | 1U << 14;
  ++data;
  --size;
  try_to_restore(profile, data, size);
  // The same with a head that passes, so that the registers matter.
  World world{profile};
  Snapshot snapshot = world.pmu.save();
  const std::size_t slots = std::min(size, vpmu::test::snapshot_checksum_at - vpmu::test::snapshot_slots_at);
  std::copy_n(data, slots, snapshot.bytes.begin() + vpmu::test::snapshot_slots_at);
  snapshot.bytes[9] = size > slots ? data[slots] & 1 : 0;
  vpmu::test::seal(snapshot);
  try_to_restore(profile, snapshot.bytes.data(), Snapshot::size);
  return 0;
}
