// One line of a text trace: who, where, when, which event. The printed forms of ftrace, trace-cmd and perf script.
#pragma once

#include <cstdint>
#include <string_view>

namespace vpmu::lab {

/// When an event happened. Clocks that count seconds print "12.345678"; x86-tsc and counter print a whole number.
struct TraceTime {
  enum class Unit : std::uint8_t { ns, ticks };
  std::uint64_t value = 0;
  Unit unit = Unit::ns;
  friend constexpr bool operator==(const TraceTime&, const TraceTime&) = default;
};

/// A line of a trace, its parts pointing into the text.
struct TraceLine {
  enum class Kind : std::uint8_t {
    event,
    skipped,    // a header, a comment, a blank line, part of a stack trace
    lost,       // the tool says that events were lost here: `lost` of them, 0 if it does not say how many
    malformed,  // none of the known forms: `why` says what is wrong
  };
  static constexpr std::uint32_t no_thread = ~0U;
  static constexpr std::uint32_t no_cpu = ~0U;

  Kind kind = Kind::malformed;
  std::string_view task;             // its name, which can hold any character
  std::uint32_t thread = no_thread;  // the thread's id, if printed
  std::uint32_t cpu = no_cpu;        // if printed
  TraceTime time;
  std::string_view event;   // without the system: "kvm_exit" also where perf prints "kvm:kvm_exit"
  std::string_view fields;  // what follows the event's name and colon, without blanks around it
  std::uint64_t lost = 0;
  const char* why = "";
};

/// Takes a line apart. Looks at its form alone, not at the event's fields.
///
/// ftrace (kernel/trace/trace_output.c, also with record-tgid and with irq-info off):
///     TASK-PID [( TGID)] [CPU] [FLAGS] SECONDS: EVENT: FIELDS
/// trace-cmd report (libtraceevent), also with -l, where CPU and flags stand together:
///     TASK-PID [CPU] [FLAGS] SECONDS: EVENT: FIELDS
///     TASK-PID CPUFLAGS SECONDS: EVENT: FIELDS
/// perf script (tools/perf/builtin-script.c), each field but time and event can be left out with -F:
///     TASK [PID/]TID [CPU] SECONDS: [PERIOD] SYSTEM:EVENT: FIELDS
TraceLine parse_trace_line(std::string_view text);

}  // namespace vpmu::lab
