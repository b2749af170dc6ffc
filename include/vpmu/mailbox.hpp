// Register writes that other threads post to a virtual CPU.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "vpmu/msr.hpp"

namespace vpmu {

struct PostedWrite {
  Msr msr;
  std::uint64_t value;
};

/// A bounded queue, many writers and one reader, of fixed size and without locks: each cell's turn number says whose it
/// is. Writes of one thread keep their order.
class Mailbox {
 public:
  static constexpr std::uint32_t capacity = 16;

  Mailbox() {
    for (std::uint32_t i = 0; i < capacity; ++i) cells_[i].turn.store(i, std::memory_order_relaxed);
  }

  /// False when full.
  [[nodiscard]] bool post(PostedWrite write) {
    std::uint32_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at % capacity];
      const auto lead = static_cast<std::int32_t>(cell.turn.load(std::memory_order_acquire) - at);
      if (lead < 0) return false;
      if (lead > 0) {
        at = tail_.load(std::memory_order_relaxed);
      } else if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
        cell.msr = write.msr;
        cell.value = write.value;
        cell.turn.store(at + 1, std::memory_order_release);
        return true;
      }
    }
  }

  /// Whether something may be there: one load. The reader's.
  [[nodiscard]] bool empty() const { return tail_.load(std::memory_order_relaxed) == head_; }

  /// Takes the oldest write; false if there is none yet. The reader's.
  [[nodiscard]] bool take(PostedWrite& write) {
    Cell& cell = cells_[head_ % capacity];
    if (cell.turn.load(std::memory_order_acquire) != head_ + 1) return false;
    write = {cell.msr, cell.value};
    cell.turn.store(head_ + capacity, std::memory_order_release);
    ++head_;
    return true;
  }

 private:
  struct Cell {
    std::atomic<std::uint32_t> turn{0};
    Msr msr{};
    std::uint64_t value = 0;
  };
  std::array<Cell, capacity> cells_{};
  std::atomic<std::uint32_t> tail_{0};
  std::uint32_t head_ = 0;
};

}  // namespace vpmu
