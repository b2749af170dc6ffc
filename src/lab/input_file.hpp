// Text input of any size, line by line in constant memory: a file, plain or .xz, or standard input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

namespace vpmu::lab {

/// Reads lines of a file. Whether it is xz-compressed is told from its content, not its name.
class InputFile {
 public:
  /// A line may be this long, its end not counted.
  static constexpr std::size_t default_max_line = 64UL << 10;

  enum class Next : std::uint8_t {
    line,      // the next line
    end,       // no more lines
    too_long,  // the next line is longer than allowed; it can't be read
    failed,    // reading or decompressing failed: see error()
  };

  /// Opens `path`, or standard input if it is "-". The error is one line: the path and what is wrong.
  static std::expected<InputFile, std::string> open(const std::string& path, std::size_t max_line = default_max_line);

  InputFile(InputFile&&) noexcept;
  InputFile& operator=(InputFile&&) noexcept;
  ~InputFile();

  /// Gives the next line without its end ("\n" or "\r\n"). It stays valid until the next call.
  Next next(std::string_view& line);
  /// Number of the line that next() gave last, or could not give; the first is 1.
  [[nodiscard]] std::uint64_t line_number() const;
  /// Whether the line that next() gave last ended in a newline: a file that was cut off often ends in half a line.
  [[nodiscard]] bool line_complete() const;
  /// What reading or decompressing failed with, in words.
  [[nodiscard]] const std::string& error() const;
  /// The path as errors name it: "standard input" for "-".
  [[nodiscard]] const std::string& name() const;
  /// The first bytes, at most 16, of the (decompressed) text. Only before the first next().
  std::string_view peek();

 private:
  struct State;
  explicit InputFile(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace vpmu::lab
