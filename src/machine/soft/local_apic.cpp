#include "machine/soft/local_apic.hpp"

#include <bit>

namespace vpmu::soft {

namespace {

constexpr u32 masked = 1u << 16;
constexpr u32 illegal_vector_sent = 1u << 5, illegal_vector_received = 1u << 6, illegal_register = 1u << 7;
constexpr u32 delivery_fixed = 0, delivery_nmi = 4;

u32 delivery_mode(u64 command) { return static_cast<u32>(command >> 8) & 7; }

}  // namespace

LocalApic::LocalApic(const Options& options) : options_(options) { reset(); }

void LocalApic::reset() {
  registers_.fill(0);
  base_ = default_base | (1u << 11) | (1u << 8);  // Enabled, bootstrap processor.
  at(version) = 0x00050014;                       // Integrated, LVT entries 0 to 5.
  at(dfr) = 0xffffffff;
  at(svr) = 0xff;
  for (const u32 each : {lvt_timer, lvt_thermal, lvt_performance, lvt_lint0, lvt_lint1, lvt_error}) at(each) = masked;
  pending_errors_ = 0;
  nmi_ = false;
  timer_next_ = no_deadline;
  tsc_deadline_ = 0;
}

std::optional<u64> LocalApic::page() const {
  if (!enabled() || x2apic()) return std::nullopt;
  return base_ & 0xfffffff000;
}

bool LocalApic::set_base(u64 value) {
  const u64 allowed = 0xfffffff000 | (1u << 11) | (1u << 10) | (1u << 8);
  if ((value & ~allowed) != 0) return false;
  const u64 old_mode = (base_ >> 10) & 3;
  const u64 new_mode = (value >> 10) & 3;
  // Invalid, or from x2APIC back to xAPIC, or from disabled straight to x2APIC (SDM Vol. 3A 10.12.5).
  if (new_mode == 1 || (old_mode == 3 && new_mode == 2) || (old_mode == 0 && new_mode == 3)) return false;
  if (new_mode == 0 && old_mode != 0) {
    const u64 keep = value;
    reset();
    base_ = keep;
    return true;
  }
  base_ = value;
  if (new_mode == 3 && old_mode != 3) at(ldr) = 1;  // Cluster 0, bit 0: from ID 0.
  return true;
}

int LocalApic::highest(u32 first) const {
  for (int n = 7; n >= 0; --n) {
    const u32 bits = at(first + static_cast<u32>(n) * 16);
    if (bits != 0) return n * 32 + 31 - std::countl_zero(bits);
  }
  return -1;
}

u32 LocalApic::processor_priority() const {
  const int in_service = highest(isr);
  const u32 service_class = in_service < 0 ? 0 : static_cast<u32>(in_service) & 0xf0;
  return (at(tpr) & 0xf0) >= service_class ? at(tpr) : service_class;
}

void LocalApic::request(u8 vector) {
  if (vector < 16) {
    error(illegal_vector_received);
    return;
  }
  at(irr + vector / 32 * 16u) |= 1u << (vector % 32);
  at(tmr + vector / 32 * 16u) &= ~(1u << (vector % 32));  // Edge-triggered.
}

void LocalApic::deliver(u32 lvt) {
  const u32 entry = at(lvt);
  if ((entry & masked) != 0 || !software_enabled()) return;
  const u32 mode = lvt == lvt_timer || lvt == lvt_error ? delivery_fixed : delivery_mode(entry);
  if (mode == delivery_fixed) request(static_cast<u8>(entry));
  if (mode == delivery_nmi) nmi_ = true;
}

void LocalApic::error(u32 bit) {
  pending_errors_ |= bit;
  // Not again for an illegal vector of the error entry itself.
  if ((at(lvt_error) & 0xff) >= 16) deliver(lvt_error);
}

void LocalApic::deliver_pmi() {
  if ((at(lvt_performance) & masked) != 0) return;
  deliver(lvt_performance);
  if (options_.masks_on_pmi) at(lvt_performance) |= masked;
}

std::optional<u8> LocalApic::pending_vector() const {
  if (!software_enabled()) return std::nullopt;
  const int requested = highest(irr);
  if (requested < 0 || (static_cast<u32>(requested) & 0xf0) <= (processor_priority() & 0xf0)) return std::nullopt;
  return static_cast<u8>(requested);
}

void LocalApic::acknowledge(u8 vector) {
  at(irr + vector / 32 * 16u) &= ~(1u << (vector % 32));
  at(isr + vector / 32 * 16u) |= 1u << (vector % 32);
}

bool LocalApic::take_nmi() {
  const bool was = nmi_;
  nmi_ = false;
  return was;
}

void LocalApic::end_of_interrupt() {
  if (const int vector = highest(isr); vector >= 0) {
    at(isr + static_cast<u32>(vector / 32) * 16) &= ~(1u << (vector % 32));
  }
}

void LocalApic::send(u64 command, bool to_self) {
  const u32 shorthand = static_cast<u32>(command >> 18) & 3;
  const u64 destination = command >> 32;
  const bool logical = (command & (1u << 11)) != 0;
  bool self = to_self || shorthand == 1 || shorthand == 2;
  if (shorthand == 0 && !to_self) {
    const u64 broadcast = x2apic() ? 0xffffffff : 0xff;
    const u64 target = x2apic() ? destination : destination >> 24;
    if (target == broadcast) {
      self = true;
    } else if (logical) {
      const u64 mine = x2apic() ? at(ldr) : at(ldr) >> 24;
      self = (target & mine) != 0;
    } else {
      self = target == (x2apic() ? at(id) : at(id) >> 24);
    }
  }
  const u32 mode = delivery_mode(command);
  const u8 vector = static_cast<u8>(command);
  if (mode == delivery_fixed && vector < 16) {
    error(illegal_vector_sent);
    return;
  }
  if (!self) return;  // There is no other CPU.
  if (mode == delivery_fixed || mode == 1) request(vector);
  if (mode == delivery_nmi) nmi_ = true;
}

/// A timer that would fire when the TSC has wrapped, which only a guest that set it so high meets, never does.
u64 LocalApic::later(u64 time, u64 ticks) { return ticks < no_deadline - time ? time + ticks : no_deadline; }

u64 LocalApic::period() const {
  const u32 code = (at(divide) & 3) | ((at(divide) >> 1) & 4);
  return (code == 7 ? 1 : u64{2} << code) * options_.timer_ratio;
}

u64 LocalApic::next_deadline() const {
  if ((at(lvt_timer) & masked) != 0) return no_deadline;  // It counts on, but nobody will hear of it.
  if (timer_in_deadline_mode()) return tsc_deadline_ == 0 ? no_deadline : tsc_deadline_;
  return timer_next_;
}

void LocalApic::tick(u64 now) {
  if (timer_in_deadline_mode()) {
    if (tsc_deadline_ != 0 && now >= tsc_deadline_) {
      tsc_deadline_ = 0;
      deliver(lvt_timer);
    }
    return;
  }
  if (timer_next_ == no_deadline || now < timer_next_) return;
  deliver(lvt_timer);
  if ((at(lvt_timer) & (1u << 17)) != 0) {
    const u64 length = period() * at(initial_count);
    // Missed periods coalesce, as in the IRR.
    const u64 missed = (now - timer_next_) / length;
    timer_next_ = later(timer_next_, (missed + 1) * length);
  } else {
    timer_next_ = no_deadline;
  }
}

bool LocalApic::exists(u32 offset) {
  switch (offset) {
    case id:
    case version:
    case tpr:
    case apr:
    case ppr:
    case eoi:
    case rrd:
    case ldr:
    case dfr:
    case svr:
    case esr:
    case icr_low:
    case icr_high:
    case lvt_timer:
    case lvt_thermal:
    case lvt_performance:
    case lvt_lint0:
    case lvt_lint1:
    case lvt_error:
    case initial_count:
    case current_count:
    case divide:
      return true;
    default:
      return offset >= isr && offset < esr;
  }
}

u32 LocalApic::writable_bits(u32 offset) {
  switch (offset) {
    case tpr:
      return 0xff;
    case ldr:
      return 0xff000000;
    case dfr:
      return 0xf0000000;
    case svr:
      return 0x3ff;
    case lvt_timer:
      return 0x000700ff;
    case lvt_thermal:
    case lvt_performance:
      return 0x000107ff;
    case lvt_lint0:
    case lvt_lint1:
      return 0x0001a7ff;
    case lvt_error:
      return 0x000100ff;
    case divide:
      return 0xb;
    case icr_low:
      return 0x000ccfff;
    case icr_high:
      return 0xff000000;
    case id:
      return 0xff000000;
    default:
      return 0xffffffff;
  }
}

u32 LocalApic::read(u32 offset, u64 now) {
  offset &= 0xff0;
  switch (offset) {
    case ppr:
      return processor_priority();
    case current_count: {
      tick(now);
      if (timer_in_deadline_mode() || timer_next_ == no_deadline || now >= timer_next_) return 0;
      return static_cast<u32>((timer_next_ - now + period() - 1) / period());
    }
    default:
      if (!exists(offset)) {
        error(illegal_register);
        return 0;
      }
      return at(offset);
  }
}

void LocalApic::write(u32 offset, u32 value, u64 now) {
  offset &= 0xff0;
  if (offset == self_ipi && x2apic()) {
    send(value & 0xff, true);
    return;
  }
  if (!exists(offset)) {
    error(illegal_register);
    return;
  }
  value &= writable_bits(offset);
  switch (offset) {
    case version:
    case apr:
    case ppr:
    case rrd:
    case current_count:
      return;  // Read-only.
    case eoi:
      end_of_interrupt();
      return;
    case esr:
      at(esr) = pending_errors_;
      pending_errors_ = 0;
      return;
    case dfr:
      at(dfr) = value | 0x0fffffff;
      return;
    case icr_low:
      at(icr_low) = value;
      send(value | (u64{at(icr_high)} << 32), false);
      return;
    case svr:
      at(svr) = value;
      if ((value & 0x100) == 0) {
        for (const u32 each : {lvt_timer, lvt_thermal, lvt_performance, lvt_lint0, lvt_lint1, lvt_error}) {
          at(each) |= masked;
        }
      }
      return;
    case lvt_timer: {
      tick(now);
      const bool was_deadline = timer_in_deadline_mode();
      if (!software_enabled()) value |= masked;
      at(lvt_timer) = value;
      // A change to or from TSC-deadline mode disarms (SDM Vol. 3A 10.5.4.1).
      if (was_deadline != timer_in_deadline_mode()) {
        timer_next_ = no_deadline;
        tsc_deadline_ = 0;
        at(initial_count) = 0;
      }
      return;
    }
    case lvt_thermal:
    case lvt_performance:
    case lvt_lint0:
    case lvt_lint1:
    case lvt_error:
      if (!software_enabled()) value |= masked;
      at(offset) = value;
      return;
    case initial_count:
      if (timer_in_deadline_mode()) return;
      at(initial_count) = value;
      timer_next_ = value == 0 ? no_deadline : later(now, period() * value);
      return;
    case divide: {
      const u64 old_period = period();
      at(divide) = value;
      // The count that is left goes on at the new rate.
      if (timer_next_ != no_deadline && timer_next_ > now) {
        timer_next_ = later(now, (timer_next_ - now + old_period - 1) / old_period * period());
      }
      return;
    }
    default:
      if (offset >= isr && offset < esr) return;
      at(offset) = value;
  }
}

std::optional<u64> LocalApic::read_msr(u32 index, u64 now) {
  if (index == base_msr) return base_;
  if (index == deadline_msr) return tsc_deadline_;
  if (index < first_x2apic_msr || index > last_x2apic_msr || !x2apic()) return std::nullopt;
  const u32 offset = (index - first_x2apic_msr) * 16;
  if (offset == icr_low) return at(icr_low) | (u64{at(icr_high)} << 32);
  if (!exists(offset) || offset == icr_high || offset == dfr || offset == eoi || offset == apr || offset == rrd) {
    return std::nullopt;
  }
  return read(offset, now);
}

bool LocalApic::write_msr(u32 index, u64 value, u64 now) {
  if (index == base_msr) return set_base(value);
  if (index == deadline_msr) {
    // Ignored but for the mode that uses it.
    if (timer_in_deadline_mode()) tsc_deadline_ = value;
    return true;
  }
  if (index < first_x2apic_msr || index > last_x2apic_msr || !x2apic()) return false;
  const u32 offset = (index - first_x2apic_msr) * 16;
  if (offset == icr_low) {
    at(icr_low) = static_cast<u32>(value) & writable_bits(icr_low);
    at(icr_high) = static_cast<u32>(value >> 32);
    send(at(icr_low) | (value & 0xffffffff00000000), false);
    return true;
  }
  if (value >> 32 != 0) return false;
  if (offset == self_ipi) {
    if (value > 0xff) return false;
    write(offset, static_cast<u32>(value), now);
    return true;
  }
  switch (offset) {
    case tpr:
    case svr:
    case lvt_timer:
    case lvt_thermal:
    case lvt_performance:
    case lvt_lint0:
    case lvt_lint1:
    case lvt_error:
    case initial_count:
    case divide:
      if ((static_cast<u32>(value) &
           ~(writable_bits(offset) | (offset >= lvt_timer && offset <= lvt_error ? 0x1000u : 0u))) != 0) {
        return false;
      }
      break;
    case eoi:
    case esr:
      if (value != 0) return false;
      break;
    default:
      return false;
  }
  write(offset, static_cast<u32>(value), now);
  return true;
}

}  // namespace vpmu::soft
