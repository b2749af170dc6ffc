#include "lab/experiments/sweep.hpp"

#include <fmt/format.h>
#include <lzma.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "host/model/platform.hpp"
#include "lab/options.hpp"
#include "lab/platform_file.hpp"
#include "lab/printable.hpp"

namespace vpmu::lab {
namespace {

using Pmu = GuestOptions::Pmu;
using Error = std::unexpected<std::string>;
using Settings = std::vector<std::pair<std::string, std::string>>;
using Done = std::expected<void, std::string>;

template <class Number>
bool read_whole(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

const model::FigureKey* find_figure_key(std::string_view key) {
  const auto figures = model::platform_figures();
  const auto found = std::ranges::find(figures, key, &model::FigureKey::key);
  return found == figures.end() ? nullptr : &*found;
}

bool is_key(std::string_view key) {
  constexpr std::array<std::string_view, 4> own{"platform", "profile", "policy", "backing"};
  return std::ranges::find(own, key) != own.end() || is_policy_key(key) || is_profile_key(key) ||
         find_figure_key(key) != nullptr;
}

const std::string* value_of(const Settings& settings, std::string_view key) {
  const auto found = std::ranges::find(settings, key, &Settings::value_type::first);
  return found == settings.end() ? nullptr : &found->second;
}

/// "KEY=VALUE,KEY=VALUE..." of those settings whose key is one of a kind.
std::string settings_text(const Settings& settings, bool (*is_of_kind)(std::string_view)) {
  std::string text;
  for (const auto& [key, value] : settings) {
    if (is_of_kind(key)) text += fmt::format("{}{}={}", text.empty() ? "" : ",", key, value);
  }
  return text;
}

std::expected<model::Platform, std::string> with_settings(model::Platform platform, const Settings& settings) {
  if (const std::string* name = value_of(settings, "platform")) {
    const model::Platform* named = model::find_platform(*name);
    if (named == nullptr) {
      return Error{fmt::format("unknown platform {}; platforms: {}", printable(*name), platform_names())};
    }
    platform = *named;
  }
  for (const auto& [key, value] : settings) {
    const model::FigureKey* figure = find_figure_key(key);
    if (figure == nullptr) continue;
    double number = 0;
    if (!read_whole(value, number)) return Error{fmt::format("{} takes a number, not {}", key, printable(value))};
    platform.*figure->member = {
        .value = number, .lo = number, .hi = number, .basis = model::Basis::assumed, .source = "swept"};
  }
  if (const std::string wrong = check(platform); !wrong.empty()) return Error{wrong};
  return platform;
}

/// Its policy, profile and backing.
Done change(const Settings& settings, GuestJob& job) {
  if (const std::string* name = value_of(settings, "profile")) {
    const auto profile = parse_profile(*name);
    if (!profile) return Error{profile.error()};
    job.profile = *profile;
  }
  if (const std::string text = settings_text(settings, is_profile_key); !text.empty()) {
    if (Done done = change_profile(job.profile, text); !done) return done;
  }
  if (const std::string* name = value_of(settings, "policy")) {
    const auto policy = parse_policy(*name);
    if (!policy) return Error{policy.error()};
    job.policy = *policy;
  }
  if (const std::string text = settings_text(settings, is_policy_key); !text.empty()) {
    if (Done done = change_policy(job.policy, text); !done) return done;
  }
  if (const std::string* backing = value_of(settings, "backing")) {
    if (*backing != "emulated" && *backing != "mediated") {
      return Error{fmt::format("backing takes emulated or mediated, not {}", printable(*backing))};
    }
    job.pmu = *backing == "emulated" ? Pmu::emulated : Pmu::mediated;
  }
  if (job.pmu == Pmu::mediated) {
    if (const char* why = why_not_mediated_run(job.profile))
      return Error{fmt::format("mediated backing is not possible with the profile: {}", why)};
  }
  return {};
}

std::string profile_name(const Profile& profile) {
  for (const NamedProfile& named : named_profiles()) {
    if (named.profile == profile) return named.name;
  }
  return "";
}

std::string hex_digest(std::string_view text) {
  return fmt::format("{:016x}", lzma_crc64(reinterpret_cast<const std::uint8_t*>(text.data()), text.size(), 0));
}

}  // namespace

std::expected<SweepKey, std::string> parse_sweep_key(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == 0 || equals == std::string_view::npos) {
    return Error{fmt::format("--sweep takes KEY=A,B,..., not {}", printable(text))};
  }
  SweepKey key{.key = std::string{text.substr(0, equals)}, .values = {}};
  for (std::string_view rest = text.substr(equals + 1);;) {
    const std::size_t comma = rest.find(',');
    key.values.emplace_back(rest.substr(0, comma));
    if (comma == std::string_view::npos) return key;
    rest.remove_prefix(comma + 1);
  }
}

std::expected<Slice, std::string> parse_slice(std::string_view text) {
  const std::size_t bar = std::min(text.find('/'), text.size());
  Slice slice;
  if (bar == text.size() || !read_whole(text.substr(0, bar), slice.first) ||
      !read_whole(text.substr(bar + 1), slice.count) || slice.first == 0 || slice.first > slice.count) {
    return Error{fmt::format("--point takes I/N, I from 1 to N, not {}", printable(text))};
  }
  return slice;
}

Sweep::Sweep(std::vector<const Experiment*> experiments, std::vector<SweepKey> keys, LabOptions options)
    : experiments_{std::move(experiments)}, keys_{std::move(keys)}, options_{std::move(options)} {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Experiment* experiment : experiments_) all.push_back(experiment->key);
  for (const SweepKey& key : keys_) all.push_back({key.key, key.values});
  all.push_back(options_.platform ? platform_json(*options_.platform) : "");
  all.push_back(options_.ticks);
  id_ = hex_digest(all.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::expected<Sweep, std::string> Sweep::create(std::vector<const Experiment*> experiments, std::vector<SweepKey> keys,
                                                LabOptions options) {
  std::size_t points = experiments.size();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto& [key, values] = keys[i];
    if (!is_key(key)) {
      return Error{fmt::format("unknown key {}; keys: platform, profile, policy, backing; {}; {}; {}", printable(key),
                               policy_keys(), profile_keys(), platform_keys())};
    }
    const auto rest = std::span{keys}.subspan(i + 1);
    if (std::ranges::find(rest, key, &SweepKey::key) != rest.end()) return Error{fmt::format("{} is swept twice", key)};
    for (auto value = values.begin(); value != values.end(); ++value) {
      if (std::find(value + 1, values.end(), *value) != values.end()) {
        return Error{fmt::format("{} has the value {} twice", key, printable(*value))};
      }
    }
    if (key == "platform" && options.platform) return Error{"platform is swept: leave --platform out"};
    points *= values.size();
    if (points > max_points) return Error{fmt::format("a sweep has at most {} points", max_points)};
  }
  Sweep sweep{std::move(experiments), std::move(keys), std::move(options)};
  for (std::size_t number = 1; number <= points; ++number) {
    if (auto point = sweep.try_point(number); !point) return Error{point.error()};
  }
  return sweep;
}

std::size_t Sweep::size() const {
  std::size_t points = experiments_.size();
  for (const SweepKey& key : keys_) points *= key.values.size();
  return points;
}

SweepPoint Sweep::point(std::size_t number) const { return try_point(number).value(); }

std::expected<SweepPoint, std::string> Sweep::try_point(std::size_t number) const {
  SweepPoint point;
  std::size_t rest = number - 1;
  for (std::size_t k = keys_.size(); k-- > 0; rest /= keys_[k].values.size()) {
    point.settings.emplace_back(keys_[k].key, keys_[k].values[rest % keys_[k].values.size()]);
  }
  std::ranges::reverse(point.settings);
  point.experiment = experiments_[rest];
  // The platform first: what the guests are told to do depends on it.
  LabOptions options = options_;
  const auto guests_of = point.experiment->sweep_guests;
  auto platform = with_settings(guests_of(options).front().job.platform, point.settings);
  if (!platform) return Error{platform.error()};
  options.platform = std::move(*platform);
  point.guests = guests_of(options);
  const std::string* profile = value_of(point.settings, "profile");
  point.profile = profile != nullptr ? *profile : profile_name(point.guests.front().job.profile);
  for (SweepGuest& guest : point.guests) {
    if (Done done = change(point.settings, guest.job); !done) return Error{done.error()};
  }
  return point;
}

}  // namespace vpmu::lab
