// The vpmu command.
#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "cli/command.hpp"

namespace {

using vpmu::cli::ExitStatus;

int fail(const std::string& what) {
  // One line, whatever the text holds.
  std::string line = what;
  for (char& c : line) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  std::fprintf(stderr, "vpmu: %s\n", line.c_str());
  return static_cast<int>(ExitStatus::bad_use);
}

std::string subcommands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) names += (names.empty() ? "" : ", ") + command->get_name();
  return names;
}

/// Says what CLI11 leaves out: which subcommand is unknown, and, where an argument is missing too, which option is.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (argc < 2) return "a subcommand is missing; there are: " + subcommands(app);
  const std::string first = argv[1];
  const auto is_first = [&](const CLI::App* command) { return command->check_name(first); };
  if (!first.starts_with('-') && app.get_subcommands(is_first).empty()) {
    return "unknown subcommand " + first + "; there are: " + subcommands(app);
  }
  std::string command = "vpmu";
  for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
  std::string what = error.what();
  for (const std::string& argument : app.remaining(true)) {
    if (argument.starts_with('-')) what = "unknown option " + argument;
  }
  return what + "; see " + command + " --help";
}

int run(int argc, char** argv) {
  CLI::App app{"A virtual performance-monitoring unit for x86 virtual machines", "vpmu"};
  app.set_version_flag("--version", "vpmu " VPMU_VERSION);
  app.require_subcommand(1);
  ExitStatus status = ExitStatus::success;
  vpmu::cli::add_conform(app, status);
  vpmu::cli::add_info(app, status);
  vpmu::cli::add_lab(app, status);
  vpmu::cli::add_replay(app, status);
  vpmu::cli::add_run(app, status);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& request) {
    app.exit(request);
  } catch (const CLI::ParseError& error) {
    return fail(explain(app, error, argc, argv));
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    return fail(std::string{"cannot write to standard output: "} + std::strerror(errno));
  }
  return static_cast<int>(status);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fflush(stdout);
    return fail(error.what());
  }
}
