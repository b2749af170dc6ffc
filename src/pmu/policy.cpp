// The named policies.
#include "vpmu/policy.hpp"

#include <array>

namespace vpmu {
namespace {

constexpr Policy before_s0{
    .events = Policy::Events::recreate,
    .reload = Policy::Reload::reprogram,
    .release = Policy::Release::never,
    .pause = Policy::Pause::untracked,
    .retire = Policy::Retire::walk,
    .mode_switch = Policy::Switch::write,
    .fold = 0,
};

constexpr Policy before_s1 = [] {
  Policy policy = before_s0;
  policy.events = Policy::Events::keep;
  policy.reload = Policy::Reload::direct;
  policy.release = Policy::Release::slice;
  return policy;
}();

constexpr Policy before_s2 = [] {
  Policy policy = before_s1;
  policy.pause = Policy::Pause::tracked;
  return policy;
}();

constexpr Policy before_s3 = [] {
  Policy policy = before_s2;
  policy.retire = Policy::Retire::cached;
  return policy;
}();

constexpr Policy before_s4 = [] {
  Policy policy = before_s3;
  policy.mode_switch = Policy::Switch::elide;
  return policy;
}();

constexpr std::array<NamedPolicy, 6> policies{{
    {"before-s0", "host events are closed and opened at every change", before_s0},
    {"before-s1", "host events are kept, but not known to be paused", before_s1},
    {"before-s2", "pauses are tracked; emulated instructions walk all counters", before_s2},
    {"before-s3", "matches are cached; mediated mode writes every register", before_s3},
    {"before-s4", "equal registers are not written; every emulated event reprograms", before_s4},
    {"best", "everything that saves, the default", Policy{}},
}};

constexpr bool same(const char* a, const char* b) {
  while (*a != '\0' && *a == *b) {
    ++a;
    ++b;
  }
  return *a == *b;
}

}  // namespace

PolicyList named_policies() { return {policies.data(), policies.size()}; }

const NamedPolicy* find_policy(const char* name) {
  for (const auto& policy : policies) {
    if (same(policy.name, name)) return &policy;
  }
  return nullptr;
}

}  // namespace vpmu
