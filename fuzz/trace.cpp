// Any text as a trace: parser, replay and both reports. Lines that are refused are left out, so that the rest plays on.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "lab/replay.hpp"
#include "lab/replay_report.hpp"

using namespace vpmu;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const lab::ReplayOptions options = [] {
    lab::ReplayOptions made;
    for (const NamedPolicy& named : named_policies()) made.policies.push_back({named.name, named.policy});
    return made;
  }();
  lab::Replay replay{options};
  std::string_view text{reinterpret_cast<const char*>(data), size};
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    static_cast<void>(replay.take(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  const lab::ReplayResult result = replay.result();
  // Law 1: no policy changes an answer.
  if (result.differing_answers != 0) __builtin_trap();
  static_cast<void>(lab::replay_text(result));
  static_cast<void>(lab::replay_json(result));
  return 0;
}
