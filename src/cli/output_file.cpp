#include "cli/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace vpmu::cli {
namespace {

namespace fs = std::filesystem;

std::string cannot_write(const std::string& path, int error) {
  return "cannot write " + path + ": " + std::strerror(error);
}

/// The access that a new file gets.
mode_t new_file_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

}  // namespace

OutputFile::OutputFile(std::string path, std::string temporary, std::FILE* file)
    : path_{std::move(path)}, temporary_{std::move(temporary)}, file_{file} {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_{std::move(other.path_)},
      temporary_{std::exchange(other.temporary_, {})},
      file_{std::move(other.file_)},
      error_{other.error_} {}

OutputFile::~OutputFile() {
  file_.reset();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

std::expected<OutputFile, std::string> OutputFile::create(const std::string& path) {
  if (path.empty()) return std::unexpected{"cannot write a file without a name"};
  struct stat existing{};
  mode_t mode = new_file_mode();
  std::string target = path;
  if (::stat(path.c_str(), &existing) == 0) {
    if (S_ISDIR(existing.st_mode)) return std::unexpected{cannot_write(path, EISDIR)};
    if (!S_ISREG(existing.st_mode)) {
      std::FILE* file = std::fopen(path.c_str(), "we");
      if (file == nullptr) return std::unexpected{cannot_write(path, errno)};
      return OutputFile{path, {}, file};
    }
    // A read-only file stays: renaming over it would not ask.
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) return std::unexpected{cannot_write(path, errno)};
    mode = existing.st_mode & 07777;
    // A symbolic link stays one.
    std::error_code error;
    if (const fs::path resolved = fs::canonical(path, error); !error) target = resolved.string();
  }
  std::string temporary = target + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return std::unexpected{cannot_write(path, errno)};
  std::FILE* file = ::fchmod(fd, mode) == 0 ? ::fdopen(fd, "w") : nullptr;
  if (file == nullptr) {
    const int error = errno;
    ::close(fd);
    ::unlink(temporary.c_str());
    return std::unexpected{cannot_write(path, error)};
  }
  return OutputFile{std::move(target), std::move(temporary), file};
}

void OutputFile::write(std::string_view text) {
  errno = 0;
  if (error_ == 0 && std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) {
    error_ = errno != 0 ? errno : EIO;
  }
}

std::expected<void, std::string> OutputFile::commit() {
  errno = 0;
  if (std::fclose(file_.release()) != 0 && error_ == 0) error_ = errno != 0 ? errno : EIO;
  if (error_ == 0 && !temporary_.empty()) {
    if (std::rename(temporary_.c_str(), path_.c_str()) == 0) {
      temporary_.clear();
    } else {
      error_ = errno;
    }
  }
  if (error_ != 0) return std::unexpected{cannot_write(path_, error_)};
  return {};
}

}  // namespace vpmu::cli
