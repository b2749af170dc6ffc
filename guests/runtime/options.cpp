#include "runtime/options.hpp"

#include <array>

#include "runtime/processor.hpp"

namespace vpmu::guest {
namespace {

constinit std::array<char, 1024> command_line{};
constinit std::size_t command_length = 0;

/// Cuts the next part off `rest`, up to `separator`.
Text next_part(Text& rest, char separator) {
  std::size_t length = 0;
  while (length < rest.length && rest.start[length] != separator) ++length;
  const Text part{rest.start, length};
  const std::size_t cut = length < rest.length ? length + 1 : length;
  rest = {rest.start + cut, rest.length - cut};
  return part;
}

[[noreturn]] void refuse(Text key, Text value) {
  print("bad option {}={}: not a number\n", key, value);
  exit_machine(2);
}

std::uint64_t number(Text key, Text text) {
  const bool hexadecimal = text.length > 2 && text.start[0] == '0' && text.start[1] == 'x';
  const std::uint64_t base = hexadecimal ? 16 : 10;
  std::uint64_t value = 0;
  for (std::size_t i = hexadecimal ? 2 : 0; i < text.length; ++i) {
    const char character = text.start[i];
    std::uint64_t digit = base;
    if (character >= '0' && character <= '9') digit = static_cast<std::uint64_t>(character - '0');
    if (character >= 'a' && character <= 'f') digit = static_cast<std::uint64_t>(character - 'a') + 10;
    if (character >= 'A' && character <= 'F') digit = static_cast<std::uint64_t>(character - 'A') + 10;
    if (digit >= base) refuse(key, text);
    value = value * base + digit;
  }
  return value;
}

}  // namespace

void take_command_line(const char* line) {
  while (*line != '\0' && command_length < command_line.size()) command_line[command_length++] = *line++;
}

Text option(Text key) {
  Text rest{command_line.data(), command_length};
  Text found;
  while (rest.length > 0) {
    Text value = next_part(rest, ' ');
    if (next_part(value, '=') == key) found = value;
  }
  return found;
}

std::uint64_t option(Text key, std::uint64_t otherwise) {
  const Text value = option(key);
  return value.length == 0 ? otherwise : number(key, value);
}

bool option_lists(Text key, Text word) {
  Text rest = option(key);
  while (rest.length > 0) {
    if (next_part(rest, ',') == word) return true;
  }
  return false;
}

std::uint64_t scaled(std::uint64_t normal, std::uint64_t at_least) {
  const std::uint64_t count = normal * option("scale", 100) / 100;
  return count < at_least ? at_least : count;
}

}  // namespace vpmu::guest
