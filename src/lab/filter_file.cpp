#include "lab/filter_file.hpp"

#include <fmt/format.h>
#include <perfmon/pfmlib.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "lab/printable.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu::lab {
namespace {

using nlohmann::json;

constexpr std::size_t largest_filter = 1U << 20;
constexpr int deepest = 8;
constexpr std::uint64_t byte = 0xFF;
constexpr std::uint64_t twelve_bits = 0xFFF;

std::optional<std::uint64_t> parse_number(const json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  if (!value.is_string()) return std::nullopt;
  std::string_view text = value.get_ref<const std::string&>();
  int base = 10;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    text.remove_prefix(2);
    base = 16;
  }
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The code of an event by its name. libpfm4 has a table for each PMU model. These are the ones with the most names
/// whose codes newer models of the vendor keep; Westmere's has the architectural names too. (Its table of architectural
/// events alone holds only those that the PMU of this very host has.)
std::expected<std::uint64_t, std::string> named_event(Vendor vendor, const std::string& name) {
  static const bool ready = [] {
    ::setenv("LIBPFM_ENCODE_INACTIVE", "1", 0);  // tables of PMUs that this machine lacks
    return pfm_initialize() == PFM_SUCCESS;
  }();
  const char* const tables[] = {vendor == Vendor::intel ? "skl::" : "amd64_fam17h_zen1::",
                                vendor == Vendor::intel ? "wsm::" : "amd64_fam15h_interlagos::"};
  for (const char* table : tables) {
    if (!ready || name.find('\0') != std::string::npos) break;
    pfm_pmu_encode_arg_t arg{};
    arg.size = sizeof arg;
    const std::string full = table + name;
    if (pfm_get_os_event_encoding(full.c_str(), PFM_PLM0 | PFM_PLM3, PFM_OS_NONE, &arg) != PFM_SUCCESS) continue;
    const std::vector<std::uint64_t> codes{arg.codes, arg.codes + arg.count};
    std::free(arg.codes);  // NOLINT(cppcoreguidelines-no-malloc): the library's own
    constexpr std::uint64_t always = evtsel::user | evtsel::kernel | evtsel::interrupt | evtsel::enable;
    if (codes.size() != 1 || (codes[0] & ~evtsel::code) != always) {
      return std::unexpected{printable(name) + " says more than an event and a unit mask, all that a filter looks at"};
    }
    if (vendor == Vendor::intel && (codes[0] & evtsel::event) == 0) {
      return std::unexpected{printable(name) + " is counted by a fixed counter alone; list that under fixed"};
    }
    return codes[0] & evtsel::code;
  }
  return std::unexpected{printable(name) + " is neither a number nor a name that libpfm4 knows"};
}

/// JSON without repeated keys, of which all but one would be lost, and without deep nesting, which nlohmann's parser
/// takes but not its copy constructor.
std::expected<json, std::string> parse_json(std::string_view text) {
  if (text.size() > largest_filter) return std::unexpected{fmt::format("larger than {} bytes", largest_filter)};
  std::vector<std::set<std::string>> objects;  // the keys of those that are open
  std::string repeated;
  bool too_deep = false;
  const auto look = [&](int depth, json::parse_event_t event, const json& value) {
    if (event == json::parse_event_t::object_start) objects.emplace_back();
    if (event == json::parse_event_t::object_end) objects.pop_back();
    if (event == json::parse_event_t::key && !objects.back().insert(value.get<std::string>()).second) {
      repeated = value.get<std::string>();
    }
    too_deep = too_deep || depth > deepest;
    return !too_deep;
  };
  try {
    json root = json::parse(text, look);
    if (too_deep) return std::unexpected{"JSON nested too deeply"};
    if (!repeated.empty()) return std::unexpected{fmt::format("key {} is repeated", printable(repeated))};
    return root;
  } catch (const json::parse_error& error) {
    const auto lines = std::ranges::count(text.substr(0, error.byte), '\n');
    return std::unexpected{fmt::format("not JSON: see line {}", lines + 1)};
  } catch (const json::exception&) {
    return std::unexpected{"not JSON: a number is too large"};
  }
}

std::expected<std::uint64_t, std::string> masked(Vendor vendor, const json& entry) {
  for (const auto& [key, _] : entry.items()) {
    if (key != "select" && key != "mask" && key != "match" && key != "exclude") {
      return std::unexpected{fmt::format("unknown key {}; there are: select, mask, match, exclude", printable(key))};
    }
  }
  const auto number = [&](const char* key, std::uint64_t fallback, std::uint64_t most) -> std::optional<std::uint64_t> {
    if (!entry.contains(key)) return fallback;
    const auto value = parse_number(entry[key]);
    return value && *value <= most ? value : std::nullopt;
  };
  const std::uint64_t most = vendor == Vendor::amd ? twelve_bits : byte;
  const auto select = entry.contains("select") ? number("select", 0, most) : std::nullopt;
  const auto mask = number("mask", byte, byte);
  const auto match = number("match", 0, byte);
  const json exclude = entry.value("exclude", json(false));
  if (!select) return std::unexpected{fmt::format("select must be a number up to {:#x}", most)};
  if (!mask || !match) return std::unexpected{"mask and match must be numbers up to 0xff"};
  if (!exclude.is_boolean()) return std::unexpected{"exclude must be true or false"};
  return masked_entry(static_cast<std::uint32_t>(*select), static_cast<std::uint8_t>(*mask),
                      static_cast<std::uint8_t>(*match), exclude.get<bool>());
}

/// A plain code as a masked entry, for files that hold both.
std::uint64_t exactly(std::uint64_t code) {
  const auto select = static_cast<std::uint32_t>((code & evtsel::event) | (code & evtsel::event_high) >> 24);
  return masked_entry(select, 0xFF, static_cast<std::uint8_t>(code >> 8), false);
}

}  // namespace

std::expected<EventFilter, std::string> parse_filter(Vendor vendor, std::string_view text) {
  const auto parsed = parse_json(text);
  if (!parsed) return std::unexpected{parsed.error()};
  const json& root = *parsed;
  if (!root.is_object()) return std::unexpected{"not a JSON object"};
  for (const auto& [key, _] : root.items()) {
    if (key != "action" && key != "fixed" && key != "events") {
      return std::unexpected{fmt::format("unknown key {}; there are: action, fixed, events", printable(key))};
    }
  }
  const json action = root.value("action", json());
  if (action != "allow" && action != "deny") return std::unexpected{"action must be \"allow\" or \"deny\""};

  FilterRequest request;
  request.action = action == "allow" ? FilterRequest::allow : FilterRequest::deny;
  const json fixed = root.value("fixed", json::array());
  if (!fixed.is_array()) return std::unexpected{"fixed must be a list of counter numbers"};
  for (std::size_t i = 0; i < fixed.size(); ++i) {
    const auto number = parse_number(fixed[i]);
    if (!number || *number >= max_fixed_counters) {
      return std::unexpected{fmt::format("fixed counter {}: must be a number from 0 to {}", i, max_fixed_counters - 1)};
    }
    request.fixed_bitmap |= 1U << *number;
  }

  const json events = root.value("events", json::array());
  if (!events.is_array()) return std::unexpected{"events must be a list"};
  if (events.size() > max_filter_events) {
    return std::unexpected{fmt::format("{} events; at most {} are possible", events.size(), max_filter_events)};
  }
  const std::uint64_t known = vendor == Vendor::amd ? evtsel::code : evtsel::event | evtsel::unit_mask;
  std::vector<std::uint64_t> entries;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const auto wrong = [i](const std::string& why) { return std::unexpected{fmt::format("event {}: {}", i, why)}; };
    if (events[i].is_object()) {
      const auto entry = masked(vendor, events[i]);
      if (!entry) return wrong(entry.error());
      entries.push_back(*entry);
      continue;
    }
    auto code = parse_number(events[i]);
    if (!code && events[i].is_string()) {
      const auto named = named_event(vendor, events[i].get<std::string>());
      if (!named) return wrong(named.error());
      code = *named;
    }
    if (!code) return wrong("must be a code, a name or a masked entry");
    if ((*code & ~known) != 0) return wrong(fmt::format("{:#x} has bits beyond event select and unit mask", *code));
    entries.push_back(exactly(*code));
  }
  request.flags = FilterRequest::masked_events;
  request.events = entries.data();
  request.event_count = entries.size();
  EventFilter filter;
  std::size_t bad = 0;
  if (const auto loaded = filter.load(vendor, request, &bad); !loaded) {
    return std::unexpected{fmt::format("event {}: {}", bad, describe(loaded.error()))};
  }
  return filter;
}

}  // namespace vpmu::lab
