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
                    "Presets: " + lab::policy_names() + "; keys: " + lab::policy_keys())
      ->option_text("PRESET[,KEY=VALUE...] [best]");
}

CLI::Option* add_profile_option(CLI::App& command, Profile& profile) {
  return add_parsed(command, "--profile", profile, lab::parse_profile,
                    "Names: " + lab::profile_names() + "; keys: " + lab::profile_keys())
      ->option_text("NAME[,KEY=VALUE...] [intel-v2]");
}

}  // namespace vpmu::cli
