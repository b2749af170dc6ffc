// Seven events take turns on at most four counters: a timer stops them, keeps how far each was from its next overflow,
// and lets the next ones in.
#include <array>

#include "multiplex/groups.hpp"
#include "runtime/checks.hpp"
#include "runtime/clock.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"
#include "runtime/sampler.hpp"

namespace vpmu::guest {
namespace {

/// An event that takes part.
struct Member {
  EventKind event = EventKind::cycles;
  Rings rings = Rings::user;
  std::uint64_t samples = 0;
  std::uint64_t left = 0;  // events to its next overflow
  std::uint64_t turns = 0;
  std::uint64_t ticks_on = 0;  // by the TSC

  [[nodiscard]] std::uint64_t period() const { return usual_period(event); }
  [[nodiscard]] std::uint64_t events() const { return samples * period() + period() - left; }
};

constexpr std::size_t wanted_members = 7;
constexpr std::uint32_t most_counters = 4;
constinit std::array<Member, wanted_members> members{};
constinit std::size_t member_count = 0;
constinit std::uint32_t slots = 0;
constinit std::size_t first = 0;  // member on counter 0; the next ones follow
constinit std::uint64_t turn_start = 0;
constinit std::uint64_t ticks_of_turns = 0;  // by the TSC, without the rotations between them
constinit volatile std::uint64_t turns = 0;
constinit Ticker* ticker = nullptr;
constinit Distribution rotation{};

Member& member_on(std::uint32_t slot) { return members[(first + slot) % member_count]; }

void choose_members() {
  member_count = 0;
  for (const Rings rings : {Rings::user, Rings::kernel}) {
    for (const EventKind event :
         {EventKind::cycles, EventKind::instructions, EventKind::branches, EventKind::branch_misses,
          EventKind::ref_cycles, EventKind::llc_references, EventKind::llc_misses}) {
      if (member_count == wanted_members || !pmu().offers(event)) continue;
      Member& member = members[member_count++];
      member = {.event = event, .rings = rings};
      member.left = member.period();
    }
  }
}

void take_turn() {
  sampler().forget_counters();
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    Member& member = member_on(slot);
    sampler().add(CounterId::gp(slot), {.event = member.event, .rings = member.rings}, member.period());
    pmu().arm(CounterId::gp(slot), member.left);
    ++member.turns;
  }
  turn_start = read_tsc();
  sampler().start();
}

void end_turn() {
  sampler().stop();
  sampler().drain();
  const std::uint64_t on = read_tsc() - turn_start;
  ticks_of_turns += on;
  for (std::uint32_t slot = 0; slot < slots; ++slot) {
    const CounterId counter = CounterId::gp(slot);
    Member& member = member_on(slot);
    member.samples += sampler().sampled(counter).samples;
    member.left = (0 - pmu().read(counter)) & pmu().mask(counter);
    member.ticks_on += on;
    pmu().clear(counter);
  }
}

/// A turn is several times as long as what leads to the next one, whatever the hypervisor takes for that.
std::uint64_t usual_window() {
  constexpr std::uint64_t shortest = 100'000;
  take_turn();
  const std::uint64_t start = read_tsc();
  end_turn();
  take_turn();
  const std::uint64_t rotation_ticks = read_tsc() - start;
  end_turn();
  const std::uint64_t several = 4 * rotation_ticks;
  return several > shortest ? several : shortest;
}

void rotate(InterruptFrame& /*frame*/) {
  const std::uint64_t start = read_tsc();
  end_of_interrupt();
  end_turn();
  first = (first + 1) % member_count;
  turns = turns + 1;
  take_turn();
  ticker->restart();
  rotation.add(read_tsc() - start);
}

/// AMD's branch event counts interrupts (PPR, PMCx0C2).
bool counts_interrupts(EventKind event) { return !pmu().is_intel() && event == EventKind::branches; }

void check_member(const Member& member, std::uint64_t rounds) {
  const std::size_t number = static_cast<std::size_t>(&member - members.data());
  check(Kind::counts, member.turns > 0, "each event has its turn", number);
  check_between(Kind::counts, member.left, 1, member.period(), "distance to the next overflow", number);
  // What perf does with multiplexed counts: scale by the time that the event was on.
  const std::uint64_t estimate =
      member.ticks_on == 0 ? 0 : member.events() * (ticks_of_turns / 16) / (member.ticks_on / 16);
  const std::uint64_t truth = member.rings == Rings::user ? load_events(member.event) * rounds : 0;
  if (truth != 0) {
    const std::uint64_t more = counts_interrupts(member.event) ? sampler().pmis() + turns : 0;
    check_between(Kind::counts, member.events(), 1, truth + more, name_of(member.event), number);
    check_between(Kind::counts, estimate, truth / 4, truth * 4, "estimate from the time that it was on", number);
  }
  print("figure multiplex mode=turns event={} ring={} turns={} samples={} events={} on={} of={} estimate={}\n",
        name_of(member.event), member.rings == Rings::user ? "user" : "kernel", member.turns, member.samples,
        member.events(), member.ticks_on, ticks_of_turns, estimate);
}

}  // namespace

void sample_in_turns() {
  begin_group("turns");
  Pmu& unit = pmu();
  unit.reset();
  choose_members();
  if (member_count == 0) {
    unavailable("an event to sample");
    return;
  }
  if (member_count < wanted_members) unavailable("seven events");
  slots = unit.profile().gp_counters < most_counters ? unit.profile().gp_counters : most_counters;
  if (slots > member_count) slots = static_cast<std::uint32_t>(member_count);

  Sampler& with = sampler();
  with.forget();
  const std::uint64_t window = option("window", usual_window());
  choose_members();
  ticks_of_turns = 0;
  with.forget();
  Ticker timer{window};
  ticker = &timer;
  set_interrupt_handler(vector::timer, rotate);
  const std::uint64_t wanted_turns = option("windows", scaled(70, 2 * wanted_members));
  std::uint64_t rounds = 0;
  with.open(usual_way(), Delivery::nmi);
  take_turn();
  timer.start();
  // Far more than it takes.
  const std::uint64_t patience = 1000 * wanted_turns;
  while (turns < wanted_turns && rounds < patience) {
    run_load();
    ++rounds;
  }
  timer.stop();
  end_turn();
  with.close();

  check(Kind::interrupts, turns >= wanted_turns, "the timer ticks", turns);
  // Where LVTPC is not masked all through the handler, an overflow that the handler sees to itself still sends its NMI.
  const bool masked = unit.is_intel() && usual_way() == HandlerWay::global;
  check_between(Kind::interrupts, with.spurious(), 0, masked ? 0 : with.pmis() / 2, "PMIs without an overflow");
  std::uint64_t samples = 0;
  for (std::size_t i = 0; i < member_count; ++i) {
    check_member(members[i], rounds);
    samples += members[i].samples;
  }
  check_between(Kind::interrupts, with.pmis() - with.spurious(), 1, samples, "PMIs");
  with.durations().print_figure("handler", "tsc");
  rotation.print_figure("rotation", "tsc");
  unit.reset();
}

}  // namespace vpmu::guest
