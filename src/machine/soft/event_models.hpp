// Small models of the last-level cache and the branch predictor: they start cold and see guest-visible state alone.
#pragma once

#include <array>
#include <vector>

#include "machine/soft/types.hpp"

namespace vpmu::soft {

/// An inner cache (L2-like) that filters, and a last level behind it; both inclusive, true LRU, 64-byte lines.
class CacheModel {
 public:
  struct Outcome {
    bool referenced = false;  ///< Missed the inner cache, so the last level was asked.
    bool missed = false;      ///< And did not have it.
  };
  CacheModel();
  void reset();
  Outcome access(u64 physical);
  void evict(u64 physical);  ///< CLFLUSH.

 private:
  struct Level {
    Level(unsigned set_count, unsigned way_count);
    bool touch(u64 line);  ///< True on a hit; else the line takes the least recently used place.
    void evict(u64 line);
    void reset();
    unsigned sets;
    unsigned ways;
    std::vector<u64> lines;  ///< Most recent first in each set.
  };
  Level inner_;
  Level last_;
};

/// gshare for conditional branches, a target buffer for indirect ones, a return stack.
class PredictorModel {
 public:
  enum class Kind : u8 { conditional, direct, indirect, call, indirect_call, ret };
  void reset();
  /// Records a branch; true if it was mispredicted.
  bool branch(Kind kind, u64 rip, u64 next, u64 target, bool taken);

 private:
  static constexpr unsigned table_bits = 12;
  std::array<u8, 1u << table_bits> counters_{};
  std::array<u64, 512> targets_{};
  std::array<u64, 16> returns_{};
  unsigned depth_ = 0;
  u64 history_ = 0;
};

}  // namespace vpmu::soft
