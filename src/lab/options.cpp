#include "lab/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>
#include <span>
#include <system_error>

#include "lab/printable.hpp"

namespace vpmu::lab {
namespace {

using Error = std::unexpected<std::string>;

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t max) {
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (text.empty() || error != std::errc{} || stop != text.data() + text.size() || value > max) return std::nullopt;
  return value;
}

/// One key of a Target. `set` says whether it takes the text.
template <class Target>
struct Key {
  std::string_view name;
  std::string_view values;
  bool (*set)(Target& target, std::string_view text);
};

template <class List>
std::string names_of(const List& list) {
  std::string names;
  for (const auto& named : list) names += (names.empty() ? "" : ", ") + std::string{named.name};
  return names;
}

/// Applies "KEY=VALUE,KEY=VALUE..." to `target`.
template <class Target>
std::expected<void, std::string> apply(Target& target, std::string_view what, std::string_view text,
                                       std::span<const Key<Target>> keys) {
  for (;;) {
    const std::size_t comma = text.find(',');
    const std::string_view setting = text.substr(0, comma);
    const std::size_t equals = setting.find('=');
    const std::string_view name = setting.substr(0, equals);
    const auto key = std::ranges::find(keys, name, &Key<Target>::name);
    if (key == keys.end()) {
      return Error{fmt::format("unknown {} key {}; keys: {}", what, printable(name), names_of(keys))};
    }
    const std::string_view value = equals == std::string_view::npos ? std::string_view{} : setting.substr(equals + 1);
    if (!key->set(target, value)) {
      return Error{fmt::format("{} key {} takes {}, not {}", what, name, key->values, printable(value))};
    }
    if (comma == std::string_view::npos) return {};
    text.remove_prefix(comma + 1);
  }
}

// --- Policies ---

template <class Value>
struct Choice {
  std::string_view name;
  Value value;
};

constexpr std::array<Choice<Policy::Events>, 3> events_choices{
    {{"recreate", Policy::Events::recreate}, {"keep", Policy::Events::keep}, {"soft", Policy::Events::soft}}};
constexpr std::array<Choice<Policy::Reload>, 2> reload_choices{
    {{"reprogram", Policy::Reload::reprogram}, {"direct", Policy::Reload::direct}}};
constexpr std::array<Choice<Policy::Release>, 2> release_choices{
    {{"never", Policy::Release::never}, {"slice", Policy::Release::slice}}};
constexpr std::array<Choice<Policy::Pause>, 2> pause_choices{
    {{"untracked", Policy::Pause::untracked}, {"tracked", Policy::Pause::tracked}}};
constexpr std::array<Choice<Policy::Retire>, 2> retire_choices{
    {{"walk", Policy::Retire::walk}, {"cached", Policy::Retire::cached}}};
constexpr std::array<Choice<Policy::Switch>, 3> switch_choices{
    {{"write", Policy::Switch::write}, {"elide", Policy::Switch::elide}, {"ownership", Policy::Switch::ownership}}};

template <auto& choices, auto member>
bool choose(Policy& policy, std::string_view text) {
  const auto* choice = std::ranges::find(choices, text, [](const auto& row) { return row.name; });
  if (choice == choices.end()) return false;
  policy.*member = choice->value;
  return true;
}

bool set_fold(Policy& policy, std::string_view text) {
  if (text == "each") {
    policy.fold = 0;
  } else if (text == "auto") {
    policy.fold = Policy::fold_auto;
  } else {
    const auto value = number(text, Policy::fold_auto - 1);
    if (!value) return false;
    policy.fold = *value;
  }
  return true;
}

constexpr std::array<Key<Policy>, 7> policy_settings{{
    {"events", "recreate, keep or soft", choose<events_choices, &Policy::events>},
    {"reload", "reprogram or direct", choose<reload_choices, &Policy::reload>},
    {"release", "never or slice", choose<release_choices, &Policy::release>},
    {"pause", "untracked or tracked", choose<pause_choices, &Policy::pause>},
    {"retire", "walk or cached", choose<retire_choices, &Policy::retire>},
    {"switch", "write, elide or ownership", choose<switch_choices, &Policy::mode_switch>},
    {"fold", "each, auto or a number of events", set_fold},
}};

template <class Value, std::size_t n>
std::string_view name_of(const std::array<Choice<Value>, n>& choices, Value value) {
  return std::ranges::find(choices, value, &Choice<Value>::value)->name;
}

// --- Profiles ---

template <class Value>
bool set_number(Value& target, std::string_view text) {
  const auto value = number(text, std::numeric_limits<Value>::max());
  if (value) target = static_cast<Value>(*value);
  return value.has_value();
}

std::optional<bool> on_or_off(std::string_view text) {
  if (text == "on") return true;
  if (text == "off") return false;
  return std::nullopt;
}

template <bool Profile::* member>
bool set_switch(Profile& profile, std::string_view text) {
  const auto value = on_or_off(text);
  if (value) profile.*member = *value;
  return value.has_value();
}

/// A field of IA32_PERF_CAPABILITIES: `on` in the bits of `mask`, or 0.
template <std::uint64_t mask, std::uint64_t on>
bool set_capability(Profile& profile, std::string_view text) {
  const auto value = on_or_off(text);
  if (!value) return false;
  profile.perf_capabilities = (profile.perf_capabilities & ~mask) | (*value ? on : 0);
  profile.pdcm = profile.pdcm || *value;
  return true;
}

bool set_fixed(Profile& profile, std::string_view text) {
  const auto count = number(text, max_fixed_counters);
  if (!count) return false;
  profile.fixed_mask = static_cast<std::uint8_t>((1U << *count) - 1);
  if (profile.fixed_width == 0) profile.fixed_width = profile.gp_width;
  return true;
}

bool set_width(Profile& profile, std::string_view text) {
  if (!set_number(profile.gp_width, text)) return false;
  if (profile.fixed_mask != 0) profile.fixed_width = profile.gp_width;
  return true;
}

constexpr std::string_view a_number = "a number";
constexpr std::string_view a_switch = "on or off";

constexpr std::array<Key<Profile>, 14> profile_settings{{
    {"gp", "the number of general-purpose counters",
     [](Profile& p, std::string_view t) { return set_number(p.gp_counters, t); }},
    {"fixed", "the number of fixed counters", set_fixed},
    {"fixed-mask", "a bit mask of fixed counters",
     [](Profile& p, std::string_view t) { return set_number(p.fixed_mask, t); }},
    {"width", a_number, set_width},
    {"gp-width", a_number, [](Profile& p, std::string_view t) { return set_number(p.gp_width, t); }},
    {"fixed-width", a_number, [](Profile& p, std::string_view t) { return set_number(p.fixed_width, t); }},
    {"events-unavailable", "a bit mask of architectural events",
     [](Profile& p, std::string_view t) { return set_number(p.events_unavailable, t); }},
    {"full-width-writes", a_switch, set_capability<1ULL << 13, 1ULL << 13>},
    {"pebs", a_switch, set_capability<0xFULL << 8, 4ULL << 8>},
    {"pebs-baseline", a_switch, set_capability<1ULL << 14, 1ULL << 14>},
    {"freeze-while-smm", a_switch, set_capability<1ULL << 12, 1ULL << 12>},
    {"tsx", a_switch, set_switch<&Profile::tsx>},
    {"ds", a_switch, set_switch<&Profile::ds>},
    {"nested", a_switch, set_switch<&Profile::nested_virtualization>},
}};

}  // namespace

bool is_profile_key(std::string_view key) {
  return std::ranges::find(profile_settings, key, &Key<Profile>::name) != profile_settings.end();
}

bool is_policy_key(std::string_view key) {
  return std::ranges::find(policy_settings, key, &Key<Policy>::name) != policy_settings.end();
}

std::expected<void, std::string> change_profile(Profile& profile, std::string_view settings) {
  if (auto applied = apply<Profile>(profile, "profile", settings, profile_settings); !applied) return applied;
  if (const char* wrong = check(profile); wrong != nullptr) {
    return Error{fmt::format("a profile with {} is not possible: {}", printable(settings), wrong)};
  }
  return {};
}

std::expected<void, std::string> change_policy(Policy& policy, std::string_view settings) {
  return apply<Policy>(policy, "policy", settings, policy_settings);
}

std::expected<Profile, std::string> parse_profile(std::string_view text) {
  const std::size_t comma = text.find(',');
  const std::string name{text.substr(0, comma)};
  const NamedProfile* named = find_profile(name.c_str());
  if (named == nullptr) {
    return Error{fmt::format("unknown profile {}; profiles: {}", printable(name), profile_names())};
  }
  Profile profile = named->profile;
  if (comma != std::string_view::npos) {
    if (auto changed = change_profile(profile, text.substr(comma + 1)); !changed) return Error{changed.error()};
  }
  return profile;
}

std::expected<Policy, std::string> parse_policy(std::string_view text) {
  const std::size_t comma = text.find(',');
  const std::string name{text.substr(0, comma)};
  const NamedPolicy* named = find_policy(name.c_str());
  if (named == nullptr) return Error{fmt::format("unknown policy {}; policies: {}", printable(name), policy_names())};
  Policy policy = named->policy;
  if (comma != std::string_view::npos) {
    if (auto changed = change_policy(policy, text.substr(comma + 1)); !changed) return Error{changed.error()};
  }
  return policy;
}

std::string to_text(const Policy& policy) {
  std::string fold = "auto";
  if (policy.fold != Policy::fold_auto) fold = policy.fold == 0 ? "each" : fmt::format("{}", policy.fold);
  return fmt::format("events={},reload={},release={},pause={},retire={},switch={},fold={}",
                     name_of(events_choices, policy.events), name_of(reload_choices, policy.reload),
                     name_of(release_choices, policy.release), name_of(pause_choices, policy.pause),
                     name_of(retire_choices, policy.retire), name_of(switch_choices, policy.mode_switch), fold);
}

std::string profile_names() { return names_of(named_profiles()); }
std::string profile_keys() { return names_of(profile_settings); }
std::string policy_names() { return names_of(named_policies()); }
std::string policy_keys() { return names_of(policy_settings); }

}  // namespace vpmu::lab
