#include "lab/conform_scenario.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

namespace vpmu::lab {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 18> verb_names{
    "wrmsr", "rdmsr",  "host_wrmsr", "host_rdmsr", "rdpmc",         "mode",      "run",       "emulated", "entry",
    "pmi",   "filter", "sched",      "refresh",    "vm_enable_pmu", "perf_fail", "hw_preset", "hw_trace", "hw_view",
};
using AccessKind = model::HardwareAccess::Kind;
/// The host's part of a hardware trace.
constexpr std::array<std::pair<std::string_view, AccessKind>, 4> host_calls{{
    {"load_guest_context", AccessKind::leave_host_perf},
    {"put_guest_context", AccessKind::return_host_perf},
    {"load_guest_lvtpc", AccessKind::set_lvtpc_guest},
    {"put_guest_lvtpc", AccessKind::set_lvtpc_host},
}};
constexpr std::array<std::pair<std::string_view, AccessKind>, 3> instructions{{
    {"rdmsr", AccessKind::rdmsr},
    {"wrmsr", AccessKind::wrmsr},
    {"rdpmc", AccessKind::rdpmc},
}};
/// Arguments and the answer, without the name.
constexpr std::array<std::size_t, verb_names.size()> arities{3, 2, 3, 2, 2, 1, 1, 1, 0, 1, 2, 0, 2, 1, 1, 2, 1, 1};

constexpr std::array<std::string_view, Batch::kinds> batch_names{
    "instructions", "cycles", "branches", "branch_misses", "ref_cycles", "llc_references", "llc_misses"};

constexpr std::uint64_t max_count = (std::uint64_t{1} << 53) - 1;
constexpr std::size_t max_depth = 8;
constexpr std::uint64_t tsx_bits = 1U << 4 | 1U << 11;  // CPUID.7:EBX HLE, RTM

/// What is wrong with a line. Does not leave this file.
struct Refusal {
  std::string what;
};

[[noreturn]] void refuse(std::string what) { throw Refusal{std::move(what)}; }

/// Text from a file, fit for a message of one line.
std::string printable(std::string_view text) {
  constexpr std::size_t longest = 40;
  std::string result = "\"";
  for (const char c : text.substr(0, longest)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > longest ? "...\"" : "\"");
}

/// nlohmann's parser does not limit depth, and what follows need not care about it.
void check_depth(std::string_view line) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > max_depth) refuse("JSON nested too deeply");
    } else if ((c == ']' || c == '}') && depth != 0) {
      --depth;
    }
  }
}

const Json& field(const Json& object, const char* name) {
  if (!object.is_object()) refuse(fmt::format("an object with \"{}\" is missing", name));
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("no field \"{}\"", name));
  return *found;
}

std::uint64_t number(const Json& json, std::string_view what, std::uint64_t max) {
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > max) {
    refuse(fmt::format("{} is not an integer from 0 to {}", what, max));
  }
  return json.get<std::uint64_t>();
}

const std::string& text(const Json& json, std::string_view what) {
  if (!json.is_string()) refuse(fmt::format("{} is not a string", what));
  return json.get_ref<const std::string&>();
}

bool truth(const Json& json, std::string_view what) {
  if (!json.is_boolean()) refuse(fmt::format("{} is neither true nor false", what));
  return json.get<bool>();
}

std::optional<std::uint64_t> hex(const Json& json, std::uint64_t max) {
  if (!json.is_string()) return std::nullopt;
  const auto& digits = json.get_ref<const std::string&>();
  if (!digits.starts_with("0x") || digits.size() == 2) return std::nullopt;
  std::uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data() + 2, end, value, 16);
  if (error != std::errc{} || stop != end || value > max) return std::nullopt;
  return value;
}

std::uint64_t hex(const Json& json, std::string_view what, std::uint64_t max = ~std::uint64_t{0}) {
  const auto value = hex(json, max);
  if (!value) refuse(fmt::format("{} is not a hex string from 0x0 to {:#x}", what, max));
  return *value;
}

std::uint32_t hex32(const Json& json, std::string_view what) {
  return static_cast<std::uint32_t>(hex(json, what, ~std::uint32_t{0}));
}

std::uint8_t small(const Json& object, const char* name) {
  return static_cast<std::uint8_t>(number(field(object, name), name, 255));
}

/// `host`, `pmu` and `derived` together.
Profile profile_of(Vendor vendor, const Json& host, const Json& pmu, const Json& derived) {
  Profile profile;
  profile.vendor = vendor;
  profile.version = small(derived, "version");
  profile.gp_counters = small(derived, "gp");
  const std::uint8_t host_gp = small(host, "gp");
  const std::uint8_t host_version = small(host, "version");
  if (vendor == Vendor::amd) {
    profile.gp_width = 48;
    profile.core_ext = truth(field(derived, "core_ext"), "core_ext");
    profile.save_list.amd_core = host_gp >= 6;
    profile.save_list.amd_global = host_gp >= 6 && host_version >= 2;
  } else {
    const std::uint8_t fixed = small(derived, "fixed");
    if (fixed > max_fixed_counters) refuse("more than 8 fixed counters");
    profile.fixed_mask = static_cast<std::uint8_t>((1U << fixed) - 1);
    profile.gp_width = std::min(small(pmu, "gp_width"), small(host, "gp_width"));
    profile.fixed_width = std::min(small(pmu, "fixed_width"), small(host, "fixed_width"));
    profile.events_length = small(pmu, "events_len");
    profile.events_unavailable = hex32(field(pmu, "events_unavailable"), "events_unavailable");
    profile.pdcm = truth(field(pmu, "pdcm"), "pdcm");
    profile.perf_capabilities = hex(field(pmu, "perf_capabilities"), "perf_capabilities");
    profile.tsx =
        (hex32(field(pmu, "cpuid7_ebx"), "cpuid7_ebx") & tsx_bits) != 0 && truth(field(derived, "in_tx"), "in_tx");
    profile.ds = truth(field(pmu, "ds"), "ds");
    profile.save_list.gp = std::min<std::uint8_t>(host_gp, 8);
    profile.save_list.fixed = std::min<std::uint8_t>(small(host, "fixed"), 3);
  }
  if (const char* wrong = check(profile); wrong != nullptr) refuse(wrong);
  return profile;
}

/// The physical PMU, whole.
Profile host_profile_of(Vendor vendor, const Json& host) {
  Profile profile;
  profile.vendor = vendor;
  profile.version = small(host, "version");
  profile.gp_counters = small(host, "gp");
  profile.gp_width = small(host, "gp_width");
  if (vendor == Vendor::amd) {
    profile.core_ext = true;
    profile = model::svm_host(profile);
  } else {
    constexpr std::uint64_t full_width_writes = 1U << 13;
    const std::uint8_t fixed = small(host, "fixed");
    if (fixed > max_fixed_counters) refuse("more than 8 fixed counters");
    profile.fixed_mask = static_cast<std::uint8_t>((1U << fixed) - 1);
    profile.fixed_width = small(host, "fixed_width");
    profile.events_length = 8;
    profile.tsx = truth(field(host, "tsx"), "tsx");
    profile.pdcm = true;
    profile.perf_capabilities = full_width_writes;
  }
  if (const char* wrong = check(profile); wrong != nullptr) refuse(fmt::format("host: {}", wrong));
  return profile;
}

class ScenarioParser {
 public:
  explicit ScenarioParser(const Json& json) : json_{json} {}

  Scenario parse() {
    scenario_.name = text(field(json_, "name"), "name");
    const auto& vendor = text(field(json_, "vendor"), "vendor");
    if (vendor != "intel" && vendor != "amd") refuse("unknown vendor " + printable(vendor));
    vendor_ = vendor == "intel" ? Vendor::intel : Vendor::amd;
    const auto& mode = text(field(json_, "mode"), "mode");
    if (mode != "emulated" && mode != "mediated") refuse("unknown mode " + printable(mode));
    scenario_.mediated = mode == "mediated";
    for (const Json& tag : array(field(json_, "tags"), "tags")) scenario_.tags.push_back(text(tag, "a tag"));
    host_ = &field(json_, "host");
    const auto& operations = array(field(json_, "ops"), "ops");
    if (operations.empty()) refuse("no operations");
    scenario_.profile = profile_of(vendor_, *host_, field(json_, "pmu"), field(json_, "derived"));
    if (scenario_.mediated) scenario_.host = host_profile_of(vendor_, *host_);
    scenario_.operations.reserve(operations.size());
    for (const Json& operation : operations) {
      at_operation(scenario_.operations.size(), [&] { scenario_.operations.push_back(parse_operation(operation)); });
    }
    scenario_.exact_rearm = parse_replacements(operations, "exact_rearm");
    scenario_.manual = parse_replacements(operations, "manual");
    return std::move(scenario_);
  }

 private:
  static const Json::array_t& array(const Json& json, std::string_view what) {
    if (!json.is_array()) refuse(fmt::format("{} is not a list", what));
    return json.get_ref<const Json::array_t&>();
  }

  template <class Work>
  static void at_operation(std::size_t n, Work&& work) {
    try {
      work();
    } catch (const Refusal& refusal) {
      refuse(fmt::format("operation {}: {}", n, refusal.what));
    }
  }

  Operation parse_operation(const Json& json) {
    if (!json.is_array() || json.empty()) refuse("not a list of a name and arguments");
    const auto& name = text(json[0], "its name");
    const auto* known = std::ranges::find(verb_names, name);
    if (known == verb_names.end()) refuse("unknown operation " + printable(name));
    const auto place = static_cast<std::size_t>(known - verb_names.begin());
    if (json.size() != arities[place] + 1) {
      refuse(fmt::format("{} with {} arguments instead of {}", name, json.size() - 1, arities[place]));
    }
    Operation operation;
    operation.verb = static_cast<Verb>(place);
    switch (operation.verb) {
      case Verb::wrmsr:
      case Verb::host_wrmsr:
        operation.index = hex32(json[1], "the MSR");
        operation.value = hex(json[2], "the value");
        operation.answer = outcome(json[3], operation.verb == Verb::wrmsr ? Answer::Kind::gp : Answer::Kind::err);
        break;
      case Verb::rdmsr:
      case Verb::host_rdmsr:
      case Verb::rdpmc:
        operation.index = hex32(json[1], operation.verb == Verb::rdpmc ? "ECX" : "the MSR");
        operation.answer = value_or_refusal(operation.verb, json[2]);
        break;
      case Verb::mode:
        operation.access.cpl = level(json[1]);
        operation.access.cr4_pce = flag(json[1], "cr4_pce");
        operation.access.cr0_pe = flag(json[1], "cr0_pe");
        break;
      case Verb::run:
        operation.batch = parse_batch(json[1], max_count);
        break;
      case Verb::emulated:
        operation.batch = parse_batch(json[1], max_emulated);
        emulated_ += operation.batch.counts[Batch::instructions] + operation.batch.counts[Batch::branches];
        if (emulated_ > max_emulated) refuse(fmt::format("more than {} emulated events in a scenario", max_emulated));
        break;
      case Verb::pmi:
        operation.answer = {Answer::Kind::count, number(json[1], "the count of interrupts", max_count)};
        break;
      case Verb::filter:
        operation.index = static_cast<std::uint32_t>(scenario_.filters.size());
        scenario_.filters.push_back(parse_filter(json[1]));
        operation.answer = filter_outcome(json[2]);
        break;
      case Verb::refresh:
        operation.index = static_cast<std::uint32_t>(scenario_.profiles.size());
        scenario_.profiles.push_back(profile_of(vendor_, *host_, json[1], json[2]));
        break;
      case Verb::vm_enable_pmu:
        operation.value = truth(json[1], "the switch") ? 1 : 0;
        break;
      case Verb::perf_fail:
        operation.value = number(json[1], "the count of failures", max_count);
        break;
      case Verb::hw_preset:
        operation.index = hex32(json[1], "the MSR");
        operation.value = hex(json[2], "the value");
        break;
      case Verb::hw_trace:
        operation.index = static_cast<std::uint32_t>(scenario_.traces.size());
        scenario_.traces.push_back(parse_trace(json[1]));
        operation.answer = {Answer::Kind::as_recorded};
        break;
      case Verb::hw_view:
        operation.index = static_cast<std::uint32_t>(scenario_.views.size());
        scenario_.views.push_back(parse_view(json[1]));
        operation.value = directly_after_entry() ? 1 : 0;
        operation.answer = {Answer::Kind::as_recorded};
        break;
      case Verb::entry:
      case Verb::sched:
        break;
    }
    return operation;
  }

  [[nodiscard]] bool directly_after_entry() const {
    const auto last = std::ranges::find_if(scenario_.operations.rbegin(), scenario_.operations.rend(),
                                           [](const Operation& other) { return other.verb != Verb::hw_trace; });
    return last != scenario_.operations.rend() && (last->verb == Verb::entry || last->verb == Verb::run);
  }

  static HardwareTrace parse_trace(const Json& json) {
    HardwareTrace trace;
    for (const Json& entry : array(json, "a hardware trace")) trace.push_back(parse_access(entry));
    return trace;
  }

  static model::HardwareAccess parse_access(const Json& json) {
    if (!json.is_array() || json.empty()) refuse("an access is not a list of a name and arguments");
    const auto& name = text(json[0], "an access's name");
    if (name == "host" && json.size() == 2) {
      const auto* call =
          std::ranges::find(host_calls, text(json[1], "a host call"), &decltype(host_calls)::value_type::first);
      if (call == host_calls.end()) refuse("unknown host call " + printable(text(json[1], "a host call")));
      return {call->second};
    }
    if (name == "vmcs_global_ctrl" && json.size() == 2) {
      return {AccessKind::set_entry_field, index_of(Msr::ia32_perf_global_ctrl), hex(json[1], "GLOBAL_CTRL")};
    }
    const auto* instruction = std::ranges::find(instructions, name, &decltype(instructions)::value_type::first);
    if (instruction == instructions.end() || json.size() != 3) refuse("unknown access " + printable(name));
    return {instruction->second, hex32(json[1], "an access's register"), hex(json[2], "an access's value")};
  }

  static HardwareView parse_view(const Json& json) {
    HardwareView view;
    for (const Json& selector : array(field(json, "eventsel_hw"), "eventsel_hw")) {
      view.selectors.push_back(hex(selector, "a selector"));
    }
    if (view.selectors.size() > max_gp_counters) refuse("more selectors than counters");
    view.fixed_ctrl = hex(field(json, "fixed_ctr_ctrl_hw"), "fixed_ctr_ctrl_hw");
    view.intercept_global = truth(field(json, "intercept_global"), "intercept_global");
    view.intercept_rdpmc = truth(field(json, "intercept_rdpmc"), "intercept_rdpmc");
    return view;
  }

  static Answer outcome(const Json& json, Answer::Kind refused) {
    if (json == "ok") return {Answer::Kind::ok};
    if (json == describe(Answer{refused})) return {refused};
    refuse(fmt::format("the answer is neither \"ok\" nor \"{}\"", describe(Answer{refused})));
  }

  static Answer value_or_refusal(Verb verb, const Json& json) {
    const Answer::Kind refused = verb == Verb::host_rdmsr ? Answer::Kind::err : Answer::Kind::gp;
    if (json == describe(Answer{refused})) return {refused};
    if (verb == Verb::rdpmc && json == "any") return {Answer::Kind::any};
    const auto value = hex(json, ~std::uint64_t{0});
    if (!value) refuse(fmt::format("the answer is neither a hex string nor \"{}\"", describe(Answer{refused})));
    return {Answer::Kind::value, *value};
  }

  static Answer filter_outcome(const Json& json) {
    for (const auto kind : {Answer::Kind::ok, Answer::Kind::einval, Answer::Kind::e2big}) {
      if (json == describe(Answer{kind})) return {kind};
    }
    refuse("the answer is none of \"ok\", \"einval\", \"e2big\"");
  }

  static std::uint8_t level(const Json& object) {
    return static_cast<std::uint8_t>(number(field(object, "cpl"), "cpl", 3));
  }

  /// Recorded as 0 and 1, or as truth values.
  static bool flag(const Json& object, const char* name) {
    const Json& json = field(object, name);
    return json.is_boolean() ? json.get<bool>() : number(json, name, 1) != 0;
  }

  static Batch parse_batch(const Json& json, std::uint64_t max) {
    Batch batch;
    batch.cpl = level(json);
    for (const auto& [name, value] : json.items()) {
      if (name == "cpl") continue;
      const auto* known = std::ranges::find(batch_names, name);
      if (known == batch_names.end()) refuse("unknown event " + printable(name));
      batch.counts[static_cast<std::size_t>(known - batch_names.begin())] = number(value, name, max);
    }
    return batch;
  }

  static Filter parse_filter(const Json& json) {
    Filter filter;
    const Json& action = field(json, "action");
    if (action == "allow") {
      filter.action = FilterRequest::allow;
    } else if (action == "deny") {
      filter.action = FilterRequest::deny;
    } else if (action.is_string()) {
      refuse("unknown action " + printable(action.get_ref<const std::string&>()));
    } else {
      filter.action = static_cast<std::uint32_t>(number(action, "action", ~std::uint32_t{0}));
    }
    filter.flags = static_cast<std::uint32_t>(number(field(json, "flags"), "flags", ~std::uint32_t{0}));
    filter.fixed_bitmap = hex32(field(json, "fixed_bitmap"), "fixed_bitmap");
    for (const Json& event : array(field(json, "events"), "events")) filter.events.push_back(hex(event, "an event"));
    return filter;
  }

  Replacements parse_replacements(const Json::array_t& operations, const char* name) {
    Replacements replacements;
    const auto found = json_.find(name);
    if (found == json_.end()) return replacements;
    for (const Json& entry : array(*found, name)) {
      if (!entry.is_array() || entry.size() != 2) refuse(fmt::format("{}: not a pair of number and operation", name));
      const auto place = static_cast<std::size_t>(number(entry[0], name, operations.size() - 1));
      at_operation(place, [&] { replacements.emplace_back(place, parse_replacement(entry[1], operations[place])); });
    }
    return replacements;
  }

  /// A replacement differs from what it replaces in the answer alone.
  Answer parse_replacement(const Json& json, const Json& original) {
    if (!json.is_array() || json.size() != original.size() || json.size() < 2 ||
        !std::equal(json.begin(), json.end() - 1, original.begin())) {
      refuse("a replacement is not the same operation with another answer");
    }
    const auto answer = parse_operation(json).answer;
    if (answer.kind == Answer::Kind::none) refuse("a replacement of an operation without an answer");
    return answer;
  }

  const Json& json_;
  const Json* host_ = nullptr;
  Vendor vendor_ = Vendor::intel;
  std::uint64_t emulated_ = 0;
  Scenario scenario_;
};

}  // namespace

bool Scenario::has_tag(std::string_view tag) const { return std::ranges::find(tags, tag) != tags.end(); }

std::string describe(const Answer& answer) {
  switch (answer.kind) {
    case Answer::Kind::none:
      return "nothing";
    case Answer::Kind::value:
      return fmt::format("{:#x}", answer.value);
    case Answer::Kind::count:
      return fmt::format("{}", answer.value);
    case Answer::Kind::any:
      return "any";
    case Answer::Kind::ok:
      return "ok";
    case Answer::Kind::gp:
      return "gp";
    case Answer::Kind::err:
      return "err";
    case Answer::Kind::einval:
      return "einval";
    case Answer::Kind::e2big:
      return "e2big";
    case Answer::Kind::as_recorded:
      return "as recorded";
    case Answer::Kind::differs:
      return "differs";
  }
  return "?";
}

std::string describe(const Operation& operation) {
  const std::string_view name = verb_names[static_cast<std::size_t>(operation.verb)];
  switch (operation.verb) {
    case Verb::wrmsr:
    case Verb::host_wrmsr:
      return fmt::format("{} {:#x} {:#x}", name, operation.index, operation.value);
    case Verb::rdmsr:
    case Verb::host_rdmsr:
    case Verb::rdpmc:
      return fmt::format("{} {:#x}", name, operation.index);
    default:
      return std::string{name};
  }
}

std::expected<Scenario, std::string> parse_scenario(std::string_view line) {
  try {
    check_depth(line);
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) refuse("not a complete JSON value");
    if (!json.is_object()) refuse("not a JSON object");
    return ScenarioParser{json}.parse();
  } catch (const Refusal& refusal) {
    return std::unexpected{refusal.what};
  }
}

}  // namespace vpmu::lab
