// Counters that run while they are read and written.
#include <array>

#include "counting/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/pmu.hpp"
#include "runtime/processor.hpp"
#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

void start_instructions(CounterId counter) {
  pmu().program(counter, {.event = EventKind::instructions, .rings = Rings::kernel});
  pmu().write(counter, 0);
  pmu().start(counter.mask());
}

void stop(CounterId counter) {
  pmu().stop(counter.mask());
  pmu().clear(counter);
}

/// The WRMSR takes effect, and then itself retires.
void check_write_then_read(CounterId counter) {
  const Msr msr = pmu().value(counter);
  start_instructions(counter);
  const std::uint64_t read = write_then_read(index_of(msr), 0x1000);
  stop(counter);
  check_equal(Kind::counts, read, 0x1001, "WRMSR, RDMSR of a running counter", counter.bit());

  const bool legacy = pmu().is_intel() && !counter.is_fixed();
  start_instructions(counter);
  const std::uint64_t high = write_then_read(index_of(msr), 0x1'FFFF'FFEA);
  stop(counter);
  const std::uint64_t kept = legacy ? ~std::uint64_t{0x15} : 0x1'FFFF'FFEA;
  check_equal(Kind::counts, high, (kept & pmu().mask(counter)) + 1, "the same, of a value that the register extends",
              counter.bit());
  if (!legacy || !pmu().profile().full_width_writes()) return;
  start_instructions(counter);
  const std::uint64_t written = 0x1234'5678'9ABC & pmu().mask(counter);
  const std::uint64_t full = write_then_read(index_of(ia32_a_pmc[counter.number()]), written);
  stop(counter);
  check_equal(Kind::counts, full, written + 1, "the same by IA32_A_PMCn", counter.bit());
}

void check_reads(CounterId counter) {
  std::array<std::uint64_t, 4> values{};
  start_instructions(counter);
  read_four_times(index_of(pmu().value(counter)), pmu().rdpmc_index(counter), values.data());
  stop(counter);
  for (std::size_t i = 0; i < 3; ++i) {
    check_equal(Kind::counts, values[i + 1] - values[i], gaps_of_four_reads[i], "distance of RDMSR and RDPMC reads",
                counter.bit() | i << 8);
  }
}

/// Stopped, both ways of reading agree, and nothing changes.
void check_stopped(CounterId counter) {
  std::array<std::uint64_t, 4> values{};
  pmu().write(counter, 0 - std::uint64_t{5});
  read_four_times(index_of(pmu().value(counter)), pmu().rdpmc_index(counter), values.data());
  for (const std::uint64_t value : values) {
    check_equal(Kind::counts, value, pmu().mask(counter) - 4, "RDMSR and RDPMC of a stopped counter", counter.bit());
  }
}

/// Reading a counter half way changes nothing.
void check_resumed(CounterId counter) {
  Pmu& unit = pmu();
  const Setup setup{.event = EventKind::instructions, .rings = Rings::kernel};
  const Task task{.workload = &mixed_workload, .iterations = 25};
  unit.program(counter, setup);
  unit.write(counter, 1000);
  const WriteList start = unit.start_list(counter.mask());
  const WriteList end = unit.stop_list(counter.mask());
  const std::uint64_t once = expected_count(setup.event, setup.rings, start, task);
  for (std::uint64_t i = 1; i <= 4; ++i) {
    measure(start, end, task);
    check_equal(Kind::counts, unit.read(counter), 1000 + i * once, "counts add up over stops", counter.bit());
  }
  unit.clear(counter);
}

}  // namespace

void check_running_counters() {
  begin_group("running");
  Pmu& unit = pmu();
  unit.reset();
  const CounterSet able = unit.counters_of(EventKind::instructions);
  if (able == 0) unavailable("instructions");
  for_each_counter(able, [](CounterId counter) {
    check_write_then_read(counter);
    check_reads(counter);
    check_resumed(counter);
  });
  for_each_counter(unit.counters(), check_stopped);
  unit.reset();
}

}  // namespace vpmu::guest
