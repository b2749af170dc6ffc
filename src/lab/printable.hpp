// Foreign text in a message of one line.
#pragma once

#include <string>
#include <string_view>

namespace vpmu::lab {

/// The text in quotes, cut to 60 characters, with a question mark for each that is not printable ASCII.
inline std::string printable(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string result = "'";
  for (const char c : text.substr(0, longest)) result += c >= ' ' && c <= '~' ? c : '?';
  return result + (text.size() > longest ? "...'" : "'");
}

}  // namespace vpmu::lab
