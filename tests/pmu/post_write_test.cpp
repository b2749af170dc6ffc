// Writes from other threads, and the object's footprint.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>
#include <vector>

#include "pmu/world.hpp"

namespace {
std::atomic<std::uint64_t> allocations{0};
}

// Not inlined: gcc takes an inlined free() for a mistake.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(size)) return memory;  // NOLINT(cppcoreguidelines-no-malloc): counts what new does
  throw std::bad_alloc{};
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);  // NOLINT(cppcoreguidelines-no-malloc)
}

namespace vpmu::test {
namespace {

TEST(PostedWrite, TakesEffectAtTheNextEntryAndNotBefore) {
  World world{"intel-v2"};
  ASSERT_TRUE(world.pmu.post_write(ia32_perfevtsel[0], instructions).ok());
  EXPECT_EQ(world.read(ia32_perfevtsel[0]), 0U);
  world.run(10);
  EXPECT_EQ(world.read(ia32_perfevtsel[0]), instructions);
  EXPECT_EQ(world.read(ia32_pmc[0]), 10U);
}

TEST(PostedWrite, IsCheckedAtOnce) {
  World world{"intel-v2"};
  EXPECT_EQ(world.pmu.post_write(ia32_perfevtsel[0], 1ULL << 21).error(), PostError::refused);
  EXPECT_EQ(world.pmu.post_write(Msr::amd_perf_cntr_global_ctl, 1).error(), PostError::refused);
  EXPECT_TRUE(world.pmu.post_write(Msr::ia32_perf_global_status, 1).ok()) << "a host write";
}

TEST(PostedWrite, BeyondTheMailboxIsAnErrorAndNothingIsLost) {
  World world{"intel-v2"};
  for (std::uint32_t n = 0; n < Mailbox::capacity; ++n) {
    ASSERT_TRUE(world.pmu.post_write(ia32_pmc[n % 8], 100 + n).ok());
  }
  EXPECT_EQ(world.pmu.post_write(ia32_pmc[0], 1).error(), PostError::full);
  world.entry();
  for (std::uint32_t n = 0; n < 8; ++n) EXPECT_EQ(world.read(ia32_pmc[n]), 100 + Mailbox::capacity - 8 + n);
  EXPECT_TRUE(world.pmu.post_write(ia32_pmc[0], 1).ok());
}

TEST(PostedWrite, FromSeveralThreadsWhileTheVcpuRunsAllArriveInEachThreadsOrder) {
  World world{"intel-v2"};
  constexpr std::uint64_t writes = 2000;
  constexpr std::uint32_t threads = 3;
  std::atomic<std::uint32_t> running{threads};
  std::vector<std::thread> writers;
  for (std::uint32_t t = 0; t < threads; ++t) {
    writers.emplace_back([&, t] {
      for (std::uint64_t n = 1; n <= writes;) {
        if (world.pmu.post_write(ia32_pmc[t], n).ok()) {
          ++n;
        } else {
          std::this_thread::yield();
        }
      }
      running.fetch_sub(1);
    });
  }
  std::uint64_t last[threads] = {};
  bool ordered = true;
  while (running.load() > 0) {
    world.entry();
    for (std::uint32_t t = 0; t < threads; ++t) {
      const std::uint64_t value = world.read(ia32_pmc[t]);
      ordered = ordered && value >= last[t];
      last[t] = value;
    }
  }
  for (std::thread& writer : writers) writer.join();
  for (int n = 0; n < 4; ++n) world.entry();
  EXPECT_TRUE(ordered);
  for (std::uint32_t t = 0; t < threads; ++t) EXPECT_EQ(world.read(ia32_pmc[t]), writes);
}

TEST(Hints, FromAnotherThreadReachTheVcpu) {
  World world{"intel-v2"};
  world.write(ia32_perfevtsel[0], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], before_overflow(10));
  world.host.lose_hints(1);
  world.enter();
  world.happen(arch::EventKind::instructions, 10);
  std::thread signal{[&] { world.host.hint(1); }};
  while (!world.pmu.pmi_pending()) world.leave();
  signal.join();
  world.entry();
  EXPECT_EQ(world.pmis, 1U);
}

TEST(Footprint, IsAtMostTwoKilobytesWithoutAllocation) {
  EXPECT_LE(sizeof(VirtualPmu), 2048U);
  World world{"intel-v2"};
  const std::uint64_t before = allocations.load();
  for (std::uint32_t n = 0; n < 8; ++n) world.write(ia32_perfevtsel[n], instructions | evtsel::interrupt);
  world.write(ia32_a_pmc[0], before_overflow(100));
  for (int n = 0; n < 100; ++n) {
    world.run(50);
    world.emulate(3);
    static_cast<void>(world.read(Msr::ia32_perf_global_status));
    world.write(Msr::ia32_perf_global_ctrl, n % 2 == 0 ? 0 : 0xFF);
    world.pmu.sched_out();
  }
  world.pmu.reset();
  EXPECT_EQ(allocations.load(), before);
}

}  // namespace
}  // namespace vpmu::test
