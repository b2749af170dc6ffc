// Policies: every optimisation of the PMU is a switch. A policy changes cost, never what the guest sees.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vpmu {

struct Policy {
  /// What becomes of a host event when the guest switches its counter off.
  enum class Events : std::uint8_t {
    recreate,  // closed, and opened anew when the counter goes on again
    keep,      // paused and resumed
    soft,      // runs on for a while where reads are free, and what it counts is subtracted
  };
  /// How a counter that the guest wrote gets its new distance to overflow.
  enum class Reload : std::uint8_t {
    reprogram,  // as at any other change: pause, read, set the distance, resume (or re-creation)
    direct,     // only the distance is set
  };
  /// When a host event that the guest left unused is closed.
  enum class Release : std::uint8_t { never, slice };
  /// Whether a host event that is paused is known to be.
  enum class Pause : std::uint8_t {
    untracked,  // paused again, read again, given its distance again
    tracked,
  };
  /// How counters that an emulated instruction concerns are found.
  enum class Retire : std::uint8_t {
    walk,    // every counter is looked at each time
    cached,  // worked out when a register changes
  };
  /// Mediated mode: which registers are written when the guest's state is loaded.
  enum class Switch : std::uint8_t { write, elide, ownership };

  /// `fold` value that follows each counter's distance to overflow: a thousandth of it.
  static constexpr std::uint64_t fold_auto = ~std::uint64_t{0};

  Events events = Events::soft;
  Reload reload = Reload::direct;
  Release release = Release::slice;
  Pause pause = Pause::tracked;
  Retire retire = Retire::cached;
  Switch mode_switch = Switch::elide;
  /// Events by emulation that a counter may gather before its host event is reprogrammed (S4's tolerance T): the
  /// overflow interrupt can be that many events late. 0: each one reprograms.
  std::uint64_t fold = fold_auto;

  friend constexpr bool operator==(const Policy&, const Policy&) = default;
};

struct NamedPolicy {
  const char* name;
  const char* summary;
  Policy policy;
};

/// before-s0 ... before-s4 (the state of the art just before each published step), and best, the default.
struct PolicyList {
  const NamedPolicy* first;
  std::size_t count;
  [[nodiscard]] const NamedPolicy* begin() const { return first; }
  [[nodiscard]] const NamedPolicy* end() const { return first + count; }
};
PolicyList named_policies();
const NamedPolicy* find_policy(const char* name);

}  // namespace vpmu
