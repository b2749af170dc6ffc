// Runs the vpmu command and other programs, for tests.
#pragma once

#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace vpmu::test {

struct CommandResult {
  int status = -1;
  std::string out;
  std::string err;
};

/// An own directory, gone at the end.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "vpmu-test.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path_ = pattern;
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }
  /// Writes a file and returns its path.
  [[nodiscard]] std::string write(const std::string& name, const std::string& content) const {
    std::ofstream{file(name), std::ios::binary} << content;
    return file(name);
  }
  [[nodiscard]] std::size_t entries() const {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator{path_}) ++count;
    return count;
  }

 private:
  std::filesystem::path path_;
};

inline std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream{path, std::ios::binary}.rdbuf();
  return text.str();
}

/// Runs a shell command.
inline CommandResult run(const std::string& command) {
  const TemporaryDirectory directory;
  CommandResult result;
  const int status = std::system(
      ("( " + command + " ) >" + directory.file("out") + " 2>" + directory.file("err") + " </dev/null").c_str());
  result.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  result.out = read_file(directory.file("out"));
  result.err = read_file(directory.file("err"));
  return result;
}

}  // namespace vpmu::test
