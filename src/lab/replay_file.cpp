#include "lab/replay_file.hpp"

#include <fmt/format.h>

#include <string_view>

#include "lab/input_file.hpp"
#include "lab/trace_text.hpp"

namespace vpmu::lab {
namespace {

/// Files that people take for the text of a trace, by how they begin.
const char* known_binary(std::string_view first) {
  if (first.starts_with("\x17\x08\x44tracing")) return "a binary trace.dat: give the output of trace-cmd report";
  if (first.starts_with("PERFILE2") || first.starts_with("2ELIFREP")) {
    return "a binary perf.data: give the output of perf script";
  }
  if (first.starts_with("\x1F\x8B")) return "compressed with gzip: decompress it, or compress it with xz";
  if (first.starts_with("\x28\xB5\x2F\xFD")) return "compressed with zstd: decompress it, or compress it with xz";
  if (first.starts_with("BZh")) return "compressed with bzip2: decompress it, or compress it with xz";
  return nullptr;
}

}  // namespace

std::expected<ReplayResult, std::string> replay_trace(const std::string& path, const ReplayOptions& options) {
  auto input = InputFile::open(path);
  if (!input) return std::unexpected{input.error()};
  if (const char* const what = known_binary(input->peek()); what != nullptr) {
    return std::unexpected{fmt::format("{}: {}", input->name(), what)};
  }
  const auto here = [&input](std::string_view what) {
    return std::unexpected{fmt::format("{}:{}: {}", input->name(), input->line_number(), what)};
  };
  Replay replay{options};
  std::string_view line;
  for (;;) {
    if (options.stop != nullptr && options.stop->load(std::memory_order_relaxed)) return here("interrupted");
    switch (input->next(line)) {
      case InputFile::Next::line:
        break;
      case InputFile::Next::end: {
        replay.finish();
        ReplayResult result = replay.result();
        if (result.exits.size() == 0 && result.entries == 0 && result.registers.empty()) {
          return std::unexpected{fmt::format("{}: no kvm events: record with -e 'kvm:*'", input->name())};
        }
        result.trace = input->name();
        return result;
      }
      case InputFile::Next::too_long:
        return here("a line of more than 64 KiB: not the text of a trace");
      case InputFile::Next::failed:
        return input->line_number() <= 1 ? std::unexpected{fmt::format("{}: {}", input->name(), input->error())}
                                         : here(input->error());
    }
    const auto taken = replay.take(line);
    if (!input->line_complete()) {
      if (!trimmed(line).empty()) return here("the last line has no end: the file is cut off");
    } else if (!taken) {
      return here(taken.error());
    }
  }
}

}  // namespace vpmu::lab
