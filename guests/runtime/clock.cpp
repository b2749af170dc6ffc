#include "runtime/clock.hpp"

#include "runtime/interrupts.hpp"
#include "runtime/local_apic.hpp"
#include "runtime/options.hpp"
#include "runtime/processor.hpp"

namespace vpmu::guest {
namespace {

constexpr std::uint32_t divide_by_one = 0b1011;

/// SDM volume 2, CPUID leaf 15H: TSC = crystal * EBX / EAX.
std::uint64_t rate_by_crystal() {
  if (cpuid(0).eax < 0x15) return 0;
  const CpuidResult leaf = cpuid(0x15);
  return leaf.eax == 0 ? 0 : std::uint64_t{leaf.ecx} * leaf.ebx / leaf.eax;
}

/// The timing leaf that hypervisors agree on: EAX is the TSC's kHz.
std::uint64_t rate_by_hypervisor() {
  constexpr std::uint32_t first_leaf = 0x40000000;
  constexpr std::uint32_t timing_leaf = 0x40000010;
  if ((cpuid(1).ecx >> 31 & 1) == 0) return 0;
  const std::uint32_t last_leaf = cpuid(first_leaf).eax;
  if (last_leaf < timing_leaf || last_leaf > first_leaf + 0xFFFF) return 0;
  return std::uint64_t{cpuid(timing_leaf).eax} * 1000;
}

/// Channel 2 of the 8254 counts 10 ms down; its output is bit 5 of port 61H. 0 where nothing answers.
std::uint64_t rate_by_8254() {
  constexpr std::uint64_t pit_hz = 1193182;
  constexpr std::uint16_t gate_port = 0x61;
  constexpr std::uint64_t give_up = 1ULL << 32;
  constexpr std::uint64_t polls = 2'000'000;
  if (port_in(gate_port) == 0xFF) return 0;
  const auto gate = static_cast<std::uint8_t>(port_in(gate_port) & ~3U);
  constexpr auto count = static_cast<std::uint16_t>(pit_hz / 100);
  port_out(gate_port, gate);
  port_out(0x43, 0b10110000);  // channel 2, both bytes, mode 0
  port_out(0x42, count & 0xFF);
  port_out(0x42, count >> 8);
  port_out(gate_port, gate | 1U);
  const std::uint64_t start = read_tsc();
  for (std::uint64_t i = 0; i < polls && read_tsc() - start < give_up; ++i) {
    if ((port_in(gate_port) & 0x20) != 0) return i < 2 ? 0 : (read_tsc() - start) * 100;
  }
  return 0;
}

/// Counts of the APIC timer in a stretch of the TSC.
std::uint32_t apic_counts(std::uint64_t tsc_ticks) {
  write_apic(ApicRegister::lvt_timer, lvt::masked | vector::timer);
  write_apic(ApicRegister::timer_divide, divide_by_one);
  write_apic(ApicRegister::timer_initial, 0xFFFFFFFF);
  const std::uint64_t start = read_tsc();
  while (read_tsc() - start < tsc_ticks) asm volatile("pause");
  const std::uint32_t counted = 0xFFFFFFFF - read_apic(ApicRegister::timer_current);
  write_apic(ApicRegister::timer_initial, 0);
  return counted == 0 ? 1 : counted;
}

}  // namespace

TscRate tsc_rate() {
  if (const std::uint64_t khz = option("tsc_khz", 0); khz != 0) return {khz * 1000, "option"};
  if (const std::uint64_t hz = rate_by_crystal(); hz != 0) return {hz, "cpuid-15h"};
  if (const std::uint64_t hz = rate_by_hypervisor(); hz != 0) return {hz, "cpuid-40000010h"};
  if (const std::uint64_t hz = rate_by_8254(); hz != 0) return {hz, "8254"};
  return {1'000'000'000, "assumed"};
}

Ticker::Ticker(std::uint64_t tsc_period)
    : period_{tsc_period}, by_deadline_{has_tsc_deadline() && option("deadline", 1) != 0} {
  if (!by_deadline_) apic_count_ = apic_counts(period_);
}

void Ticker::start() {
  if (by_deadline_) {
    write_apic(ApicRegister::lvt_timer, lvt::tsc_deadline | vector::timer);
    // SDM volume 3, "TSC-Deadline Mode": the MMIO write above has to come first.
    asm volatile("mfence" : : : "memory");
  } else {
    write_apic(ApicRegister::timer_divide, divide_by_one);
    write_apic(ApicRegister::lvt_timer, vector::timer);
  }
  restart();
}

void Ticker::stop() {
  if (by_deadline_) {
    write_msr(msr::tsc_deadline, 0);
  } else {
    write_apic(ApicRegister::timer_initial, 0);
  }
  write_apic(ApicRegister::lvt_timer, lvt::masked);
}

std::uint64_t Ticker::next() {
  const std::uint64_t was_due = due_;
  const std::uint64_t now = read_tsc();
  due_ += period_;
  if (due_ <= now) due_ = now + period_;
  arm(now);
  return was_due;
}

void Ticker::restart() {
  const std::uint64_t now = read_tsc();
  due_ = now + period_;
  arm(now);
}

void Ticker::arm(std::uint64_t now) const {
  if (by_deadline_) {
    write_msr(msr::tsc_deadline, due_);
    return;
  }
  const std::uint64_t count = (due_ - now) * apic_count_ / period_;
  write_apic(ApicRegister::timer_initial, static_cast<std::uint32_t>(count == 0 ? 1 : count));
}

}  // namespace vpmu::guest
