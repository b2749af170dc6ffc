#include "vpmu/emulated_backing.hpp"

namespace vpmu {
namespace {

constexpr Health health_of(HostError error) {
  switch (error) {
    case HostError::no_counter:
      return Health::no_counter;
    case HostError::no_resources:
      return Health::no_resources;
    case HostError::not_permitted:
      return Health::not_permitted;
    case HostError::unsupported:
      return Health::unsupported;
    case HostError::no_privilege_filter:
      return Health::no_privilege_filter;
    case HostError::lost:
      return Health::lost;
    case HostError::unavailable:
    case HostError::failed:
      break;
  }
  return Health::failed;
}

}  // namespace

void EmulatedBacking::enter(RegisterFile& registers, CounterSet changed) {
  for_each_counter(changed, [&](CounterId counter) {
    const CounterSet mask = counter.mask();
    if ((registers.active() & mask) != 0) {
      turn_on(registers, counter);
      used_ |= mask;
    } else {
      if ((open_ & mask) != 0) turn_off(registers, counter);
      failed_ &= ~mask;
      health_[counter.slot()] = Health::idle;
    }
  });
  stale_ |= running_ & ~soft_off_;
}

void EmulatedBacking::turn_on(RegisterFile& registers, CounterId counter) {
  const CounterSet mask = counter.mask();
  if ((open_ & mask) != 0 && (policy_.events == Policy::Events::recreate || !counts_the_same(registers, counter))) {
    fold(registers, mask);
    close(counter);
  }
  if ((open_ & mask) == 0) {
    open(registers, counter);
    return;
  }
  if ((soft_off_ & mask) != 0) resume_soft(counter);
  const bool by_emulation = registers.outstanding(counter) > registers.tolerance(counter);
  if (!hint_is_in_time(registers, counter) || early_hint_is_next(counter)) {
    const bool whole = by_emulation ? policy_.fold != Policy::fold_auto : policy_.reload == Policy::Reload::reprogram;
    if (whole && (running_ & mask) != 0) {
      reprogram(registers, counter);
    } else {
      set_distance(registers, counter);
    }
  }
  if ((open_ & mask) == 0) return;
  if ((running_ & mask) == 0) {
    enable(counter);
  } else {
    health_[counter.slot()] = Health::counting;
  }
}

void EmulatedBacking::turn_off(RegisterFile& registers, CounterId counter) {
  const CounterSet mask = counter.mask();
  if (policy_.events == Policy::Events::recreate) {
    fold(registers, mask);
    close(counter);
    return;
  }
  if ((running_ & mask) != 0) {
    if (policy_.events == Policy::Events::soft) {
      // A host event that would hint before such a pause is over costs a signal and an exit: more than a real pause.
      Event& has = event(counter);
      if (has.pause < has.remaining) {
        if ((soft_off_ & mask) != 0) return;
        const auto now = host_.peek(has.handle);
        if (now.ok()) {
          take(registers, counter, *now);
          has.stretch = *now - has.resumed;
          soft_off_ |= mask;
          return;
        }
      } else {
        // Not for ever: what made that one long may be over.
        has.pause -= has.pause / 8;
      }
    }
    if ((soft_off_ & mask) != 0) resume_soft(counter);
    disable(counter);
    // Events by emulation may have brought about an overflow that no hint announces: within the tolerance it can wait.
    if (policy_.pause == Policy::Pause::untracked || registers.outstanding(counter) > registers.tolerance(counter)) {
      fold(registers, mask);
    }
    return;
  }
  if (policy_.pause == Policy::Pause::untracked) {
    // Nothing says that it is paused already: it is paused and read again, and its distance set.
    if (disable(counter)) set_distance(registers, counter);
  }
}

void EmulatedBacking::open(RegisterFile& registers, CounterId counter) {
  const HostEventSpec spec = registers.host_event(counter);
  const std::uint64_t period = registers.distance(counter);
  auto opened = host_.open(spec, period);
  if (!opened && opened.error() == HostError::no_counter && close_unused(registers, 0))
    opened = host_.open(spec, period);
  if (!opened) return fail(counter, opened.error());
  event(counter) = {.handle = *opened,
                    .select = spec.select,
                    .counted = 0,
                    .period = period,
                    .remaining = period,
                    .early = 0,
                    .pause = 0,
                    .resumed = 0,
                    .stretch = 0};
  const CounterSet mask = counter.mask();
  open_ |= mask;
  user_ = spec.user ? user_ | mask : user_ & ~mask;
  kernel_ = spec.kernel ? kernel_ | mask : kernel_ & ~mask;
  registers.armed(counter);
  enable(counter);
}

bool EmulatedBacking::close_unused(RegisterFile& registers, CounterSet but) {
  const CounterSet unused = open_ & ~registers.active() & ~but;
  fold(registers, unused);
  for_each_counter(unused & open_, [this](CounterId counter) { close(counter); });
  return unused != 0;
}

void EmulatedBacking::close(CounterId counter) {
  const CounterSet mask = counter.mask();
  if ((open_ & mask) == 0) return;
  host_.close(event(counter).handle);
  event(counter) = {};
  open_ &= ~mask;
  running_ &= ~mask;
  stale_ &= ~mask;
  soft_off_ &= ~mask;
}

void EmulatedBacking::enable(CounterId counter) {
  const auto done = host_.enable(event(counter).handle);
  if (!done) return fail(counter, done.error());
  running_ |= counter.mask();
  failed_ &= ~counter.mask();
  health_[counter.slot()] = Health::counting;
}

bool EmulatedBacking::disable(CounterId counter) {
  const auto done = host_.disable(event(counter).handle);
  if (!done) {
    fail(counter, done.error());
    return false;
  }
  running_ &= ~counter.mask();
  return true;
}

void EmulatedBacking::resume_soft(CounterId counter) {
  soft_off_ &= ~counter.mask();
  Event& has = event(counter);
  const auto now = count(counter);
  if (!now) return fail(counter, now.error());
  // What ran while the guest's counter was off is not the guest's, but brought the hint nearer.
  const std::uint64_t skipped = *now - has.counted;
  has.counted = has.resumed = *now;
  if (skipped > has.pause) has.pause = skipped;
  if (skipped < has.remaining) {
    has.remaining -= skipped;
    has.early += skipped;
  } else {
    has.remaining = 0;
  }
}

bool EmulatedBacking::counts_the_same(const RegisterFile& registers, CounterId counter) const {
  const HostEventSpec spec = registers.host_event(counter);
  return events_[counter.slot()].select == spec.select && ((user_ & counter.mask()) != 0) == spec.user &&
         ((kernel_ & counter.mask()) != 0) == spec.kernel;
}

bool EmulatedBacking::hint_is_in_time(const RegisterFile& registers, CounterId counter) const {
  // Both sides lag by what has not been folded, so that they compare without a read. Events by emulation bring the
  // overflow nearer and not the hint, which comes late by so much; a soft pause brings the hint nearer and not the
  // overflow: an early hint costs a look. Any other difference is a new value.
  const Event& has = events_[counter.slot()];
  const std::uint64_t late = registers.outstanding(counter);
  return has.remaining != 0 && late <= registers.tolerance(counter) &&
         has.remaining + has.early == registers.distance(counter) + late;
}

bool EmulatedBacking::early_hint_is_next(CounterId counter) const {
  // An early hint costs a signal, an exit, a look and a new distance; to set the distance now costs that alone. But a
  // pause before the hint makes it early again. So it is set where the hint is nearer than the next pause seems to be.
  const Event& has = events_[counter.slot()];
  return has.early != 0 && has.remaining / 2 <= has.stretch;
}

void EmulatedBacking::set_distance(RegisterFile& registers, CounterId counter) {
  fold(registers, counter.mask());
  if ((open_ & counter.mask()) == 0) return;
  Event& has = event(counter);
  has.period = registers.distance(counter);
  const auto done = host_.set_period(has.handle, has.period);
  if (!done) return fail(counter, done.error());
  has.remaining = has.period;
  has.early = 0;
  registers.armed(counter);
}

void EmulatedBacking::reprogram(RegisterFile& registers, CounterId counter) {
  if (!disable(counter)) return;
  set_distance(registers, counter);
}

void EmulatedBacking::leave(RegisterFile& registers) {
  const CounterSet hinted = host_.take_hints() & open_;
  for_each_counter(hinted, [&](CounterId counter) {
    const CounterSet mask = counter.mask();
    if ((soft_off_ & mask) != 0) {
      // It has been off for a whole period: time to pause it, and its next pauses too.
      resume_soft(counter);
      if ((open_ & mask) == 0) return;
      event(counter).pause *= 2;
      disable(counter);
      return;
    }
    const std::uint64_t before = registers.distance(counter);
    fold(registers, mask);
    if ((open_ & mask) == 0) return;
    const bool overflowed = registers.distance(counter) > before;
    // A hint that came early, or a host that now waits for longer than the guest's counter has to go, or nobody knows
    // how long, must be corrected; a host that hints too early next time only costs a look.
    const std::uint64_t remaining = event(counter).remaining;
    if (!overflowed || remaining == 0 || remaining > registers.distance(counter)) {
      event(counter).remaining = 0;
      registers.request(mask);
    }
  });
}

void EmulatedBacking::before_pmi(RegisterFile& registers) {
  for_each_counter(stale_ & running_ & ~soft_off_, [&](CounterId counter) {
    if (registers.outstanding(counter) == 0 || !host_.peek(event(counter).handle).ok()) return;
    fold(registers, counter.mask());
  });
}

Result<std::uint64_t, HostError> EmulatedBacking::count(CounterId counter) {
  const HostEvent handle = event(counter).handle;
  const auto free = host_.peek(handle);
  if (free.ok() || free.error() != HostError::unavailable) return free;
  return host_.read(handle);
}

void EmulatedBacking::take(RegisterFile& registers, CounterId counter, std::uint64_t now) {
  Event& has = event(counter);
  const std::uint64_t events = now - has.counted;
  stale_ &= ~counter.mask();
  if (events == 0) return;
  has.counted = now;
  // The host starts the same period again when one has passed. What is not known stays so until it is set.
  if (events < has.remaining) {
    has.remaining -= events;
  } else if (has.remaining != 0) {
    has.remaining = has.period - (events - has.remaining) % has.period;
    has.early = 0;
  }
  registers.add(counter, events);
}

void EmulatedBacking::fold_overflows(RegisterFile& registers, CounterSet counters) {
  // Further from its overflow than this, a counter would need minutes of events since its last fold, and the host's
  // hint comes before.
  constexpr std::uint64_t reach = std::uint64_t{1} << 40;
  CounterSet near = 0;
  for_each_counter(counters, [&](CounterId counter) {
    if (registers.distance(counter) <= reach) near |= counter.mask();
  });
  fold(registers, near);
}

void EmulatedBacking::fold_events(RegisterFile& registers, CounterSet counters) {
  for_each_counter(counters, [&](CounterId counter) {
    const auto now = count(counter);
    if (!now) return fail(counter, now.error());
    take(registers, counter, *now);
    if ((running_ & counter.mask()) != 0) registers.request_entry();  // it goes stale again there
  });
}

void EmulatedBacking::sched_out(RegisterFile& registers) {
  // A host that had nothing free may have something in the next slice.
  registers.request(failed_);
  for_each_counter(soft_off_, [&](CounterId counter) {
    resume_soft(counter);
    if ((open_ & counter.mask()) != 0) disable(counter);
  });
  for_each_counter(open_, [this](CounterId counter) { event(counter).pause = 0; });
  if (policy_.release == Policy::Release::slice) close_unused(registers, used_);
  used_ = registers.active();
}

void EmulatedBacking::release() {
  for_each_counter(open_, [this](CounterId counter) { close(counter); });
  static_cast<void>(host_.take_hints());
  failed_ = used_ = 0;
  health_ = {};
}

void EmulatedBacking::fail(CounterId counter, HostError error) {
  close(counter);
  failed_ |= counter.mask();
  health_[counter.slot()] = health_of(error);
}

}  // namespace vpmu
