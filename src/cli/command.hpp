// What the subcommands of vpmu share.
#pragma once

#include <CLI/CLI.hpp>
#include <stdexcept>
#include <string>

#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::cli {

enum class ExitStatus : int {
  success = 0,
  failed = 1,   // what was checked does not hold
  bad_use = 2,  // bad arguments or input, or an output that cannot be written
};

/// Ends a subcommand with ExitStatus::bad_use. The text is one line: what is wrong, and what to do.
class UseError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Each adds its subcommand to `app`; run, it puts its exit status into `status`.
void add_conform(CLI::App& app, ExitStatus& status);
void add_info(CLI::App& app, ExitStatus& status);
void add_lab(CLI::App& app, ExitStatus& status);
void add_replay(CLI::App& app, ExitStatus& status);
void add_run(CLI::App& app, ExitStatus& status);

/// --policy PRESET[,KEY=VALUE...], which sets `policy`; without it, `best`.
CLI::Option* add_policy_option(CLI::App& command, Policy& policy);
/// --profile NAME[,KEY=VALUE...], which sets `profile`; without it, `intel-v2`.
CLI::Option* add_profile_option(CLI::App& command, Profile& profile);

}  // namespace vpmu::cli
