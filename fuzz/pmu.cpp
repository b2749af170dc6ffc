// Any bytes as a guest's traffic on its PMU: two policies must answer alike, and registers keep within their bounds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "pmu/random_guest.hpp"

namespace {

using vpmu::test::Operation;
using vpmu::test::World;

/// Takes the input apart; zeros once it has ended.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_{data}, size_{size} {}
  [[nodiscard]] bool ended() const { return size_ == 0; }
  template <class T>
  T take() {
    T value{};
    const std::size_t n = size_ < sizeof value ? size_ : sizeof value;
    std::memcpy(&value, data_, n);
    data_ += n;
    size_ -= n;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

vpmu::Msr any_register(Bytes& bytes) {
  const auto choice = bytes.take<std::uint8_t>();
  if (choice == 0xFF) return static_cast<vpmu::Msr>(bytes.take<std::uint32_t>());
  const vpmu::arch::RegisterRow& row = vpmu::arch::register_rows[choice % vpmu::arch::register_rows.size()];
  return row.msrs[bytes.take<std::uint8_t>() % row.msrs.count];
}

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes{data, size};
  vpmu::Profile profile =
      vpmu::named_profiles().first[bytes.take<std::uint8_t>() % vpmu::named_profiles().count].profile;
  const auto features = bytes.take<std::uint8_t>();
  if (profile.pdcm && (features & 1) != 0) profile.perf_capabilities |= 4U << 8 | 1U << 14;
  if (profile.is_intel() && (features & 2) != 0) profile.ds = profile.tsx = true;
  vpmu::Policy policy;
  policy.fold = 0;
  World before{profile, vpmu::test::policy_named("before-s0"), true};
  World after{profile, policy, (features & 4) != 0};
  vpmu::EventFilter before_filter;
  vpmu::EventFilter after_filter;
  for (int n = 0; n < 500 && !bytes.ended(); ++n) {
    Operation operation;
    const auto kind = bytes.take<std::uint8_t>();
    operation.kind = static_cast<Operation::Kind>(kind % 10);
    operation.cpl = kind & 0x80 ? 3 : 0;
    if (operation.kind == Operation::Kind::write || operation.kind == Operation::Kind::read) {
      operation.msr = any_register(bytes);
    }
    switch (operation.kind) {
      case Operation::Kind::run:
      case Operation::Kind::emulate:
      case Operation::Kind::branch:
        operation.value = bytes.take<std::uint8_t>();
        break;
      default:
        operation.value = bytes.take<std::uint64_t>();
    }
    const auto expected = play(before, before_filter, operation);
    const auto seen = play(after, after_filter, operation);
    require(seen == expected);
    vpmu::for_each_counter(profile.counters(), [&](vpmu::CounterId counter) {
      require(after.pmu.registers().value(counter) >> profile.width(counter) == 0);
    });
  }
  return 0;
}
