#include "lab/platform_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace vpmu::lab {
namespace {

using Json = nlohmann::ordered_json;
using model::Basis;
using model::Figure;
using model::Platform;
using Error = std::unexpected<std::string>;

constexpr std::array<const char*, 3> basis_names{"published", "measured", "assumed"};

/// The text under `key`, or `otherwise` if there is none.
std::expected<std::string, std::string> text_of(const Json& object, const char* key, const std::string& otherwise) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (!found->is_string()) return Error{fmt::format("{} must be a text", key)};
  return found->get<std::string>();
}

std::expected<Figure, std::string> figure_of(const std::string& key, const Json& json) {
  if (json.is_number()) {
    const double value = json.get<double>();
    return Figure{.value = value, .lo = value, .hi = value, .basis = Basis::assumed, .source = "given as a number"};
  }
  if (!json.is_object()) return Error{fmt::format("figure {} must be a number or an object", key)};
  for (const auto& [name, value] : json.items()) {
    if (name == "basis" || name == "source") continue;
    if (name != "value" && name != "lo" && name != "hi") return Error{fmt::format("figure {} has no {}", key, name)};
    if (!value.is_number()) return Error{fmt::format("{} of figure {} must be a number", name, key)};
  }
  if (!json.contains("value")) return Error{fmt::format("figure {} needs a value", key)};
  Figure figure;
  figure.value = json["value"].get<double>();
  figure.lo = json.value("lo", figure.value);
  figure.hi = json.value("hi", figure.value);
  const auto source = text_of(json, "source", "no source given");
  if (!source) return Error{fmt::format("figure {}: {}", key, source.error())};
  figure.source = *source;
  const auto basis = text_of(json, "basis", "assumed");
  if (!basis) return Error{fmt::format("figure {}: {}", key, basis.error())};
  const auto* name = std::ranges::find(basis_names, *basis, [](const char* one) { return std::string{one}; });
  if (name == basis_names.end()) {
    return Error{fmt::format("basis of figure {} is published, measured or assumed", key)};
  }
  figure.basis = static_cast<Basis>(name - basis_names.begin());
  return figure;
}

std::expected<Platform, std::string> platform_of(const Json& json) {
  if (!json.is_object()) return Error{"a platform is a JSON object"};
  Platform platform = model::platforms().front();
  for (const auto& [name, value] : json.items()) {
    if (name != "name" && name != "title" && name != "vendor" && name != "figures") {
      return Error{fmt::format("unknown key {}; keys: name, title, vendor, figures", name)};
    }
  }
  const auto name = text_of(json, "name", "");
  if (!name) return Error{name.error()};
  platform.name = *name;
  const auto title = text_of(json, "title", *name);
  if (!title) return Error{title.error()};
  platform.title = *title;
  const auto vendor = text_of(json, "vendor", "intel");
  if (!vendor) return Error{vendor.error()};
  if (*vendor != "intel" && *vendor != "amd") return Error{"vendor is intel or amd"};
  platform.vendor = *vendor == "intel" ? Vendor::intel : Vendor::amd;
  const Json figures = json.value("figures", Json::object());
  if (!figures.is_object()) return Error{"figures must be an object"};
  for (const auto& [key, value] : figures.items()) {
    const auto known = std::ranges::find(model::platform_figures(), key, &model::FigureKey::key);
    if (known == model::platform_figures().end()) {
      return Error{fmt::format("unknown figure {}; figures: {}", key, platform_keys())};
    }
    const auto figure = figure_of(key, value);
    if (!figure) return Error{figure.error()};
    platform.*known->member = *figure;
  }
  if (const std::string wrong = check(platform); !wrong.empty()) return Error{wrong};
  return platform;
}

}  // namespace

std::expected<Platform, std::string> parse_platform(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return Error{"not JSON"};
  return platform_of(json);
}

std::string platform_json(const Platform& platform) {
  Json json = {{"name", platform.name},
               {"title", platform.title},
               {"vendor", platform.vendor == Vendor::intel ? "intel" : "amd"}};
  for (const model::FigureKey& key : model::platform_figures()) {
    const Figure& figure = platform.*key.member;
    json["figures"][std::string{key.key}] = {{"value", figure.value},
                                             {"lo", figure.lo},
                                             {"hi", figure.hi},
                                             {"basis", basis_names[static_cast<std::size_t>(figure.basis)]},
                                             {"source", figure.source}};
  }
  constexpr int indent = 1;
  return json.dump(indent, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string platform_names() {
  std::string names;
  for (const Platform& platform : model::platforms()) names += (names.empty() ? "" : ", ") + platform.name;
  return names;
}

std::string platform_keys() {
  std::string keys;
  for (const model::FigureKey& key : model::platform_figures()) {
    if (!keys.empty()) keys += ", ";
    keys += key.key;
  }
  return keys;
}

}  // namespace vpmu::lab
