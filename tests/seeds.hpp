// Seeds of the random tests: some fixed ones, and a fresh one that is printed so that a failure can be had again.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace vpmu::test {

/// VPMU_SEED=N runs that seed alone. VPMU_SEEDS=N adds N fresh seeds instead of one.
inline std::vector<std::uint64_t> seeds() {
  if (const char* one = std::getenv("VPMU_SEED")) return {std::strtoull(one, nullptr, 0)};
  std::vector<std::uint64_t> all{1, 20181, 202107};
  const char* more = std::getenv("VPMU_SEEDS");
  std::random_device device;
  for (unsigned long n = more == nullptr ? 1 : std::strtoul(more, nullptr, 0); n > 0; --n) {
    all.push_back(std::uint64_t{device()} << 32 | device());
  }
  return all;
}

/// For a failing assertion: how to have it again.
inline std::string again(std::uint64_t seed) { return "again with VPMU_SEED=" + std::to_string(seed); }

/// Random numbers of a seed, the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_{seed} {}
  std::uint64_t any() { return engine_(); }
  /// 0 to n - 1.
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
  template <class T, std::size_t N>
  const T& one_of(const T (&items)[N]) {
    return items[below(N)];
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace vpmu::test
