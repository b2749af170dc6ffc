#include "machine/soft/event_models.hpp"

#include <algorithm>

namespace vpmu::soft {

namespace {
constexpr u64 empty = ~u64{0};
}

CacheModel::Level::Level(unsigned set_count, unsigned way_count)
    : sets(set_count), ways(way_count), lines(std::size_t{set_count} * way_count, empty) {}

bool CacheModel::Level::touch(u64 line) {
  const auto begin = lines.begin() + static_cast<std::ptrdiff_t>((line % sets) * ways);
  const auto end = begin + ways;
  auto place = std::find(begin, end, line);
  const bool hit = place != end;
  if (!hit) place = end - 1;
  std::move_backward(begin, place, place + 1);
  *begin = line;
  return hit;
}

void CacheModel::Level::evict(u64 line) {
  const auto begin = lines.begin() + static_cast<std::ptrdiff_t>((line % sets) * ways);
  std::replace(begin, begin + ways, line, empty);
}

void CacheModel::Level::reset() { std::fill(lines.begin(), lines.end(), empty); }

// 256 KiB and 2 MiB.
CacheModel::CacheModel() : inner_(512, 8), last_(2048, 16) {}

void CacheModel::reset() {
  inner_.reset();
  last_.reset();
}

CacheModel::Outcome CacheModel::access(u64 physical) {
  const u64 line = physical / 64;
  if (inner_.touch(line)) return {};
  return {.referenced = true, .missed = !last_.touch(line)};
}

void CacheModel::evict(u64 physical) {
  inner_.evict(physical / 64);
  last_.evict(physical / 64);
}

void PredictorModel::reset() { *this = PredictorModel{}; }

bool PredictorModel::branch(Kind kind, u64 rip, u64 next, u64 target, bool taken) {
  switch (kind) {
    case Kind::conditional: {
      u8& counter = counters_[(rip ^ (rip >> table_bits) ^ history_) & ((1u << table_bits) - 1)];
      const bool predicted = counter >= 2;
      if (taken && counter < 3) ++counter;
      if (!taken && counter > 0) --counter;
      history_ = ((history_ << 1) | (taken ? 1 : 0)) & 0xff;
      return predicted != taken;
    }
    case Kind::ret: {
      const bool hit = depth_ > 0 && returns_[(depth_ - 1) % returns_.size()] == target;
      if (depth_ > 0) --depth_;
      return !hit;
    }
    case Kind::direct:
      return false;
    case Kind::call:
      returns_[depth_++ % returns_.size()] = next;
      return false;
    case Kind::indirect:
    case Kind::indirect_call: {
      if (kind == Kind::indirect_call) returns_[depth_++ % returns_.size()] = next;
      u64& entry = targets_[(rip ^ (rip >> 9)) % targets_.size()];
      const bool hit = entry == target;
      entry = target;
      return !hit;
    }
  }
  return false;
}

}  // namespace vpmu::soft
