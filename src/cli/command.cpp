#include "cli/command.hpp"

#include <string>

#include "lab/options.hpp"

namespace vpmu::cli {
namespace {

/// Adds an option whose text `parse` turns into a value or an error.
template <class Value, class Parse>
CLI::Option* add_parsed(CLI::App& command, const char* name, Value& target, Parse parse, const std::string& help) {
  return command.add_option_function<std::string>(
      name,
      [&target, parse](const std::string& text) {
        const auto value = parse(text);
        if (!value) throw UseError{value.error()};
        target = *value;
      },
      help);
}

}  // namespace

CLI::Option* add_policy_option(CLI::App& command, Policy& policy) {
  return add_parsed(command, "--policy", policy, lab::parse_policy,
                    "PRESET[,KEY=VALUE...]; presets: " + lab::policy_names())
      ->option_text("POLICY");
}

CLI::Option* add_profile_option(CLI::App& command, Profile& profile) {
  return add_parsed(command, "--profile", profile, lab::parse_profile,
                    "NAME[,KEY=VALUE...]; names: " + lab::profile_names())
      ->option_text("PROFILE");
}

}  // namespace vpmu::cli
