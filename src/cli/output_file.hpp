// A file that appears whole or not at all.
#pragma once

#include <cstdio>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

namespace vpmu::cli {

/// Output that takes the place of `path` only when it is complete. Create it before the work starts: that finds a path
/// that cannot be written. Uncommitted, it leaves nothing behind.
class OutputFile {
 public:
  /// Errors are one line that names the path. A path that exists and is no regular file (a device, a pipe) is written
  /// directly.
  static std::expected<OutputFile, std::string> create(const std::string& path);

  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();

  /// Errors show in commit().
  void write(std::string_view text);
  /// Puts the file in its place.
  std::expected<void, std::string> commit();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  OutputFile(std::string path, std::string temporary, std::FILE* file);

  std::string path_;
  std::string temporary_;  // empty: written directly, or committed
  std::unique_ptr<std::FILE, CloseFile> file_;
  int error_ = 0;  // errno of the first failure
};

}  // namespace vpmu::cli
