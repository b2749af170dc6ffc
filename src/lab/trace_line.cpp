#include "lab/trace_line.hpp"

#include <cstring>

#include "lab/trace_text.hpp"

namespace vpmu::lab {
namespace {

// ftrace prints five flags since 6.0, four before; real-time kernels and newer ones up to seven; "." is none.
constexpr std::size_t min_flags = 4;
constexpr std::size_t max_flags = 8;

bool is_flag(char c) { return c == '.' || c == '#' || is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool are_flags(std::string_view token) {
  if (token.size() < min_flags || token.size() > max_flags) return false;
  for (const char c : token) {
    if (!is_flag(c)) return false;
  }
  return true;
}

/// "12.345678:", "12.345678901:" or, from clocks that do not count seconds, "123456789:".
bool take_time(TraceText& text, TraceTime& time) {
  TraceText at = text;
  std::uint64_t whole = 0;
  if (!at.decimal(whole)) return false;
  if (at.word(":")) {
    time = {whole, TraceTime::Unit::ticks};
    text = at;
    return true;
  }
  if (!at.word(".")) return false;
  const std::size_t before = at.rest().size();
  std::uint64_t fraction = 0;
  if (!at.decimal(fraction)) return false;
  const std::size_t digits = before - at.rest().size();
  if (digits > 9 || !at.word(":")) return false;
  for (std::size_t i = digits; i < 9; ++i) fraction *= 10;
  constexpr std::uint64_t ns_per_second = 1'000'000'000;
  constexpr std::uint64_t max_seconds = ~std::uint64_t{0} / ns_per_second - 1;
  if (whole > max_seconds) return false;
  time = {whole * ns_per_second + fraction, TraceTime::Unit::ns};
  text = at;
  return true;
}

/// What follows the time: "EVENT: FIELDS", "SYSTEM:EVENT: FIELDS", "PERIOD SYSTEM:EVENT: FIELDS".
bool take_event(TraceText text, TraceLine& line, bool* has_system = nullptr) {
  std::string_view rest = text.blanks().rest();
  if (!rest.empty() && is_digit(rest.front())) {
    TraceText after = text;
    std::uint64_t period = 0;
    if (after.decimal(period) && !after.empty() && is_blank(after.rest().front())) rest = after.blanks().rest();
  }
  rest = trimmed(rest);
  if (rest.empty()) return false;
  // The name ends at a colon before a blank or the end; without one it is text of another tracer (function, stack).
  std::size_t end = 0;
  while (end < rest.size() && !is_blank(rest[end])) ++end;
  std::string_view name = rest.substr(0, end);
  if (!name.ends_with(':')) {
    line.event = "(no event name)";
    line.fields = rest;
    return true;
  }
  name.remove_suffix(1);
  const auto colon = name.rfind(':');
  if (colon != std::string_view::npos) name.remove_prefix(colon + 1);
  if (has_system != nullptr) *has_system = colon != std::string_view::npos;
  if (name.empty()) return false;
  line.event = name;
  line.fields = trimmed(rest.substr(end));
  return true;
}

/// "[FLAGS] SECONDS: EVENT: FIELDS"
bool take_right(TraceText text, TraceLine& line) {
  text.blanks();
  if (take_time(text, line.time)) return take_event(text, line);
  if (!are_flags(text.token())) return false;
  text.blanks();
  return take_time(text, line.time) && take_event(text, line);
}

bool split_number(std::string_view& text, std::uint32_t& number) {
  std::size_t first = text.size();
  while (first > 0 && is_digit(text[first - 1])) --first;
  TraceText digits{text.substr(first)};
  if (!digits.decimal(number) || !digits.empty()) return false;
  text.remove_suffix(text.size() - first);
  return true;
}

/// "TASK-PID", "TASK-PID (TGID)", "TASK TID", "TASK PID/TID", "TID", or nothing.
bool take_left(std::string_view text, TraceLine& line) {
  text = trimmed(text);
  if (text.ends_with(')')) {
    const auto open = text.rfind('(');
    if (open == std::string_view::npos) return false;
    const std::string_view group = trimmed(text.substr(open + 1, text.size() - open - 2));
    if (group.empty() || group.find_first_not_of("0123456789-") != std::string_view::npos) return false;
    text = trimmed(text.substr(0, open));
  }
  if (text.empty()) {
    line.task = {};
    line.thread = TraceLine::no_thread;
    return true;
  }
  std::uint32_t thread = 0;
  if (!split_number(text, thread)) return false;
  if (text.ends_with('/')) {
    std::string_view process = text.substr(0, text.size() - 1);
    std::uint32_t pid = 0;
    if (split_number(process, pid) && (process.empty() || is_blank(process.back()))) text = process;
  }
  if (!text.empty()) {
    if (text.back() != '-' && !is_blank(text.back())) return false;
    text.remove_suffix(1);
  }
  line.task = trimmed(text);
  line.thread = thread;
  return true;
}

/// "LEFT [CPU] RIGHT"; a task's name can hold brackets too, so the first pair with both sides right is it.
bool take_with_cpu(std::string_view text, TraceLine& line) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  for (const char* at = begin; at != end; ++at) {
    at = static_cast<const char*>(std::memchr(at, '[', static_cast<std::size_t>(end - at)));
    if (at == nullptr) return false;
    TraceText right{{at + 1, static_cast<std::size_t>(end - at - 1)}};
    std::uint32_t cpu = 0;
    if (!right.decimal(cpu) || !right.word("]")) continue;
    if (take_right(right, line) && take_left({begin, static_cast<std::size_t>(at - begin)}, line)) {
      line.cpu = cpu;
      return true;
    }
  }
  return false;
}

/// The forms without brackets: trace-cmd -l ("TASK-PID CPUFLAGS SECONDS: ...") and perf script without the CPU.
bool take_without_cpu(std::string_view text, TraceLine& line) {
  for (std::size_t colon = text.find(':'); colon != std::string_view::npos; colon = text.find(':', colon + 1)) {
    std::size_t first = colon;
    while (first > 0 && (is_digit(text[first - 1]) || text[first - 1] == '.')) --first;
    if (first == colon || (first > 0 && !is_blank(text[first - 1]))) continue;
    TraceText right{text.substr(first)};
    bool has_system = false;
    if (!take_time(right, line.time) || !take_event(right, line, &has_system)) continue;
    std::string_view left = trimmed(text.substr(0, first));
    line.cpu = TraceLine::no_cpu;
    if (const auto blank = left.find_last_of(" \t"); blank != std::string_view::npos) {
      TraceText last{left.substr(blank + 1)};
      std::uint32_t cpu = 0;
      if (last.decimal(cpu) && are_flags(last.rest()) && take_left(left.substr(0, blank), line)) {
        line.cpu = cpu;
        return true;
      }
    }
    if (has_system && take_left(left, line)) return true;
  }
  return false;
}

/// "CPU:1 [LOST 23 EVENTS]", "CPU:1 [EVENTS DROPPED]", "CPU:1 [23 EVENTS DROPPED]", "CPU 3 is empty".
bool take_cpu_note(std::string_view text, TraceLine& line) {
  TraceText note{text};
  if (!note.word("CPU")) return false;
  if (!note.word(":")) note.blanks();
  std::uint32_t cpu = 0;
  if (!note.decimal(cpu)) return false;
  note.blanks();
  if (note.rest() == "is empty") {
    line.kind = TraceLine::Kind::skipped;
    return true;
  }
  if (!note.word("[")) return false;
  if (note.word("LOST")) note.blanks();
  line.lost = 0;
  if (note.decimal(line.lost)) note.blanks();
  if (!note.word("EVENTS")) return false;
  line.kind = TraceLine::Kind::lost;
  return true;
}

/// Lines that belong to no event: what tools print around them.
bool is_skipped(std::string_view text) {
  if (text.starts_with('#') || text.starts_with("=>")) return true;  // a comment, a kernel stack
  TraceText at{text};
  std::uint64_t number = 0;
  if ((at.word("cpus=") || at.word("version = ")) && at.decimal(number) && at.blanks().empty()) return true;
  // A frame of a call chain of perf script: "ADDRESS SYMBOL+OFFSET (MODULE)".
  TraceText frame{text};
  return frame.hex(number) && text.size() - frame.rest().size() >= 4 && !frame.empty() &&
         is_blank(frame.rest().front()) && text.ends_with(')');
}

}  // namespace

TraceLine parse_trace_line(std::string_view text) {
  TraceLine line;
  const std::string_view content = trimmed(text);
  // Comments begin in the first column. Names are set in 16 and have 15 at most: a task's may begin with a #.
  if (content.empty() || text.front() == '#') {
    line.kind = TraceLine::Kind::skipped;
    return line;
  }
  if (take_with_cpu(content, line)) {
    line.kind = TraceLine::Kind::event;
  } else if (is_skipped(content)) {
    line.kind = TraceLine::Kind::skipped;
  } else if (take_cpu_note(content, line)) {
    return line;
  } else if (take_without_cpu(content, line)) {
    line.kind = TraceLine::Kind::event;
  } else {
    line.kind = TraceLine::Kind::malformed;
    line.why = content.find('\0') != std::string_view::npos ? "binary data, not the text of a trace"
                                                            : "not a line of ftrace, trace-cmd or perf script";
  }
  return line;
}

}  // namespace vpmu::lab
