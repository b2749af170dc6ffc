// How many trace lines a second one thread takes: items per second of each.
#include <benchmark/benchmark.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lab/input_file.hpp"
#include "lab/options.hpp"
#include "lab/replay.hpp"
#include "lab/trace_event.hpp"
#include "lab/trace_line.hpp"

namespace vpmu::lab {
namespace {

constexpr const char* recorded = VPMU_TRACES "/linux-6.1-guest-intel-v2.trace.xz";

std::int64_t read_file(const char* path) {
  auto input = InputFile::open(path);
  if (!input) throw std::runtime_error{input.error()};
  std::int64_t lines = 0;
  for (std::string_view line; input->next(line) == InputFile::Next::line;) ++lines;
  return lines;
}

/// The recorded trace in memory.
const std::vector<std::string_view>& lines() {
  static const std::string text = [] {
    auto input = InputFile::open(recorded);
    if (!input) throw std::runtime_error{input.error()};
    std::string all;
    for (std::string_view line; input->next(line) == InputFile::Next::line;) all.append(line) += '\n';
    return all;
  }();
  static const std::vector<std::string_view> split = [] {
    std::vector<std::string_view> views;
    for (std::string_view rest = text; !rest.empty(); rest.remove_prefix(views.back().size() + 1)) {
      views.push_back(rest.substr(0, rest.find('\n')));
    }
    return views;
  }();
  return split;
}

void count_items(benchmark::State& state) {
  state.SetItemsProcessed(static_cast<std::int64_t>(state.iterations()) * static_cast<std::int64_t>(lines().size()));
}

void decode_xz(benchmark::State& state) {
  std::int64_t read = 0;
  for (auto _ : state) read += read_file(recorded);
  state.SetItemsProcessed(read);
}
BENCHMARK(decode_xz)->Unit(benchmark::kMillisecond);

void parse(benchmark::State& state) {
  const auto& all = lines();
  for (auto _ : state) {
    for (const std::string_view text : all) {
      const TraceLine line = parse_trace_line(text);
      switch (trace_event_id(line.event)) {
        case TraceEventId::kvm_entry:
          benchmark::DoNotOptimize(parse_kvm_entry(line.fields));
          break;
        case TraceEventId::kvm_exit:
          benchmark::DoNotOptimize(parse_kvm_exit(line.fields));
          break;
        case TraceEventId::kvm_msr:
          benchmark::DoNotOptimize(parse_kvm_msr(line.fields));
          break;
        default:
          benchmark::DoNotOptimize(line.event);
      }
    }
  }
  count_items(state);
}
BENCHMARK(parse)->Unit(benchmark::kMillisecond);

/// Under the first so many of the named policies.
void replay(benchmark::State& state) {
  const auto& all = lines();
  ReplayOptions options;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    const NamedPolicy& named = named_policies().first[i];
    options.policies.push_back({named.name, named.policy});
  }
  for (auto _ : state) {
    Replay replay{options};
    for (const std::string_view line : all) {
      if (!replay.take(line)) throw std::runtime_error{"refused"};
    }
    benchmark::DoNotOptimize(replay.result().lines);
  }
  count_items(state);
}
BENCHMARK(replay)->Arg(1)->Arg(2)->Arg(6)->ArgName("policies")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace vpmu::lab
