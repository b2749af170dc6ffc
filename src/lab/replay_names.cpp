#include "lab/replay_names.hpp"

#include <algorithm>

namespace vpmu::lab {
namespace {

/// What may do something to a terminal, or is no ASCII.
bool is_control(char c) { return c < ' ' || c > '~'; }

std::uint32_t hash_of(std::string_view name) {
  std::uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

}  // namespace

std::size_t NameCounts::add(std::string_view name) {
  name = name.substr(0, max_length);
  std::array<char, max_length> printable{};
  if (std::ranges::any_of(name, is_control)) {
    std::ranges::replace_copy_if(name, printable.begin(), is_control, '?');
    name = {printable.data(), name.size()};
  }
  const std::size_t place = find(name);
  ++names_[place].count;
  return place;
}

std::size_t NameCounts::find(std::string_view name) {
  std::size_t at = hash_of(name) % buckets;
  for (; table_[at] != 0; at = (at + 1) % buckets) {
    const std::size_t place = table_[at] - 1U;
    if (names_[place].name == name) return place;
  }
  if (names_.size() >= max_names && name != others) return find(others);
  names_.push_back({std::string{name}, 0});
  table_[at] = static_cast<std::uint16_t>(names_.size());
  return names_.size() - 1;
}

std::uint64_t NameCounts::total() const {
  std::uint64_t total = 0;
  for (const Named& named : names_) total += named.count;
  return total;
}

std::vector<NameCounts::Named> NameCounts::sorted() const {
  std::vector<Named> sorted = names_;
  std::ranges::sort(sorted, [](const Named& a, const Named& b) {
    if ((a.name == others) != (b.name == others)) return b.name == others;
    return a.count != b.count ? a.count > b.count : a.name < b.name;
  });
  return sorted;
}

}  // namespace vpmu::lab
