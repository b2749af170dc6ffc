#include "workloads/workloads.hpp"

namespace vpmu::guest {
namespace {

extern "C" {
struct MeasurementPlan {
  const MsrWrite* start;
  const MsrWrite* stop;
  std::uint64_t writes;
  void* function;
  std::uint64_t arguments[3];
};
struct MeasurementCounts {
  std::uint64_t each_instructions;
  std::uint64_t each_branches;
  std::uint64_t between_instructions;
  std::uint64_t between_branches;
  std::uint64_t before_function;
};
extern const MeasurementCounts measurement_counts;
void run_measurement(const MeasurementPlan* plan);
}

PathCounts path_of(Place place) {
  switch (place) {
    case Place::kernel:
      break;
    case Place::user_by_iret:
      return iret_path;
    case Place::user_by_sysret:
      return sysret_path;
  }
  return {};
}

}  // namespace

void measure(const WriteList& start, const WriteList& stop, const Task& task) {
  MeasurementPlan plan{.start = start.data(),
                       .stop = stop.data(),
                       .writes = start.size(),
                       .function = reinterpret_cast<void*>(task.workload->function),
                       .arguments = {task.iterations, 0, 0}};
  if (task.place != Place::kernel) {
    plan.function =
        reinterpret_cast<void*>(task.place == Place::user_by_iret ? run_in_user_by_iret : run_in_user_by_sysret);
    plan.arguments[0] = reinterpret_cast<std::uint64_t>(task.workload->function);
    plan.arguments[1] = task.iterations;
    plan.arguments[2] = task.user_flags;
  }
  run_measurement(&plan);
}

std::uint64_t expected_count(EventKind event, Rings rings, const WriteList& start, const Task& task) {
  const bool branches = event == EventKind::branches;
  const PathCounts path = path_of(task.place);
  const std::uint64_t own =
      branches ? task.workload->branches(task.iterations) : task.workload->instructions(task.iterations);
  std::uint64_t kernel = branches ? measurement_counts.each_branches * start.size() +
                                        measurement_counts.between_branches + path.kernel_branches
                                  : measurement_counts.each_instructions * start.size() +
                                        measurement_counts.between_instructions + path.kernel_instructions;
  std::uint64_t user = branches ? path.user_branches : path.user_instructions;
  (task.place == Place::kernel ? kernel : user) += own;
  return (rings != Rings::user ? kernel : 0) + (rings != Rings::kernel ? user : 0);
}

std::uint64_t instructions_before_kernel_workload() { return measurement_counts.before_function; }

std::uint64_t steps_rip(std::uint64_t retired, std::uint64_t iterations) {
  const std::uint64_t body = steps_workload.each_instructions;
  return steps_addresses[retired < body * iterations ? retired % body : body];
}

}  // namespace vpmu::guest
