// How fast the soft machine runs guest code, with exact counting on. Items are guest instructions.
#include <benchmark/benchmark.h>

#include "soft/rig.hpp"

namespace {

using namespace vpmu::soft;
using namespace vpmu::soft::test;
using vpmu::model::Event;

using Code = std::initializer_list<unsigned>;

// dec rcx; jnz
constexpr Code tight{0x48, 0xff, 0xc9, 0x75, 0xfb, 0xf4};
// mov rax, [rbx]; nop; nop; nop; dec rcx; jnz
constexpr Code load_nop{0x48, 0x8b, 0x03, 0x90, 0x90, 0x90, 0x48, 0xff, 0xc9, 0x75, 0xf5, 0xf4};
// loop: call f; mov [rbx], rax; add rax, rcx; mov rdx, [rbx + 8]; cmp rax, rdx; sub rcx, 1; jnz loop; hlt
// f: push rbp; mov rbp, rsp; lea rax, [rax + 3]; mov [rbx + 16], rdx; pop rbp; ret
constexpr Code mixed{0xe8, 0x15, 0,    0,    0,    0x48, 0x89, 0x03, 0x48, 0x01, 0xc8, 0x48, 0x8b, 0x53,
                     0x08, 0x48, 0x39, 0xd0, 0x48, 0x83, 0xe9, 0x01, 0x75, 0xe8, 0xf4, 0x90, 0x55, 0x48,
                     0x89, 0xe5, 0x48, 0x8d, 0x40, 0x03, 0x48, 0x89, 0x53, 0x10, 0x5d, 0xc3};

/// An instruction counter that overflows every 100,000 instructions keeps the budget honest.
void run(benchmark::State& state, Code code, std::initializer_list<Event> models, std::uint64_t iterations) {
  Rig rig;
  rig.put(Rig::code, code);
  for (const Event each : models) rig.sink.used[vpmu::model::index_of(each)] = true;
  for (auto _ : state) {
    CpuState& s = rig.cpu.state();
    s.rip = Rig::code;
    s.gpr[rcx] = iterations;
    s.gpr[rbx] = Rig::data;
    do {
      rig.sink.room.instructions = 100'000;
    } while (rig.cpu.run().reason == ExitReason::overflow);
  }
  state.SetItemsProcessed(static_cast<std::int64_t>(rig.sink.total(Event::instructions)));
}

void tight_loop(benchmark::State& state) { run(state, tight, {}, 1'000'000); }
void load_nop_loop(benchmark::State& state) { run(state, load_nop, {}, 500'000); }
void mixed_loop(benchmark::State& state) { run(state, mixed, {}, 200'000); }
void mixed_loop_with_cache_model(benchmark::State& state) { run(state, mixed, {Event::llc_misses}, 5'000); }
void mixed_loop_with_predictor_model(benchmark::State& state) { run(state, mixed, {Event::branch_misses}, 5'000); }
void mixed_loop_with_both_models(benchmark::State& state) {
  run(state, mixed, {Event::llc_misses, Event::branch_misses}, 5'000);
}

BENCHMARK(tight_loop);
BENCHMARK(load_nop_loop);
BENCHMARK(mixed_loop);
BENCHMARK(mixed_loop_with_cache_model);
BENCHMARK(mixed_loop_with_predictor_model);
BENCHMARK(mixed_loop_with_both_models);

/// What exits and exceptions cost the host.
void cpuid_exit(benchmark::State& state) {
  Rig rig;
  rig.put(Rig::code, {0x0f, 0xa2, 0xeb, 0xfc});
  for (auto _ : state) {
    (void)rig.cpu.run();
    (void)rig.cpu.emulate();
  }
}
BENCHMARK(cpuid_exit);

void invalid_opcode_exception(benchmark::State& state) {
  Rig rig;
  rig.put(Rig::code, {0x0f, 0x0b});
  for (auto _ : state) {
    rig.cpu.state().rip = Rig::code;
    rig.cpu.state().gpr[rsp] = Rig::stack;
    (void)rig.cpu.run();
    (void)rig.cpu.emulate();
  }
}
BENCHMARK(invalid_opcode_exception);

}  // namespace
