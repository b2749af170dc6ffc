// The physical PMU as the CPU sees it: something that is told what happened, and says how much may happen unseen.
#pragma once

#include <limits>

#include "host/model/activity.hpp"
#include "machine/soft/types.hpp"

namespace vpmu::soft {

class EventSink {
 protected:
  ~EventSink() = default;

 public:
  /// How often each event may happen at this privilege level with no counter overflowing: one more, and one does.
  struct Headroom {
    static constexpr u64 unlimited = std::numeric_limits<u64>::max();
    u64 instructions = unlimited;
    u64 cycles = unlimited;
    u64 ref_cycles = unlimited;
    u64 branches = unlimited;
    u64 other = unlimited;  ///< Of the events that need a model, or edges: the smallest.
  };

  /// Counts a stretch of execution at one privilege level. True if a counter overflowed: the CPU then exits.
  [[nodiscard]] virtual bool advance(const model::Activity& activity, model::Ring ring) = 0;
  [[nodiscard]] virtual Headroom headroom(model::Ring ring) = 0;
  /// Whether a counter that counts now needs this event's model (cache, predictor).
  [[nodiscard]] virtual bool uses(model::Event event) = 0;
  /// Whether a counter that counts now needs Activity::edges.
  [[nodiscard]] virtual bool uses_edges() = 0;
};

}  // namespace vpmu::soft
