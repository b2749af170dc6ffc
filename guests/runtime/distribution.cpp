#include "runtime/distribution.hpp"

#include <bit>

namespace vpmu::guest {

void Distribution::add(std::uint64_t value) {
  ++count_;
  sum_ += value;
  min_ = value < min_ ? value : min_;
  max_ = value > max_ ? value : max_;
  const auto bits = static_cast<std::uint32_t>(std::bit_width(value));
  const std::uint32_t shift = bits > sub_bits + 1 ? bits - sub_bits - 1 : 0;
  // Each doubling of the value adds `1 << sub_bits` buckets.
  ++bucket_[(shift << sub_bits) + static_cast<std::uint32_t>(value >> shift)];
}

void Distribution::clear() {
  bucket_.fill(0);
  count_ = sum_ = max_ = 0;
  min_ = ~std::uint64_t{0};
}

std::uint64_t Distribution::percentile(std::uint64_t share) const {
  const std::uint64_t wanted = (count_ * share + 999) / 1000;
  std::uint64_t seen = 0;
  for (std::uint32_t i = 0; i < buckets; ++i) {
    seen += bucket_[i];
    if (seen < wanted || bucket_[i] == 0) continue;
    const std::uint32_t shift = i >> sub_bits > 1 ? (i >> sub_bits) - 1 : 0;
    const std::uint64_t end = ((std::uint64_t{i} - (std::uint64_t{shift} << sub_bits) + 1) << shift) - 1;
    return end < max_ ? end : max_;
  }
  return max_;
}

void Distribution::print_figure(Text name, Text unit) const {
  print("figure {} count={} min={} mean={} p50={} p99={} p99.9={} max={} unit={}\n", name, count_,
        count_ == 0 ? 0 : min_, count_ == 0 ? 0 : sum_ / count_, percentile(500), percentile(990), percentile(999),
        max_, unit);
}

}  // namespace vpmu::guest
