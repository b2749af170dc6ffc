// A CPU with memory and nothing else, for tests: flat 64-bit or 32-bit code, recorded events, a scripted environment.
#pragma once

#include <cstring>
#include <initializer_list>
#include <limits>
#include <vector>

#include "machine/soft/cpu.hpp"

namespace vpmu::soft::test {

/// Counts all activity; can stop the CPU after a chosen number of one event.
class CountingSink final : public EventSink {
 public:
  bool advance(const model::Activity& activity, model::Ring ring) override {
    ++advances;
    auto& to = ring == model::Ring::kernel ? kernel : user;
    for (std::size_t n = 0; n < model::event_count; ++n) {
      to.count[n] += activity.count[n];
      to.edges[n] += activity.edges[n];
    }
    bool overflowed = false;
    const auto take = [&](u64& left, u64 happened) {
      if (left == Headroom::unlimited) return;
      if (happened > left) {
        overflowed = true;
        left = Headroom::unlimited;
      } else {
        left -= happened;
      }
    };
    take(room.instructions, activity[model::Event::instructions]);
    take(room.cycles, activity[model::Event::cycles]);
    take(room.ref_cycles, activity[model::Event::ref_cycles]);
    take(room.branches, activity[model::Event::branches]);
    return overflowed;
  }
  Headroom headroom(model::Ring) override { return room; }
  bool uses(model::Event event) override { return used[model::index_of(event)]; }
  bool uses_edges() override { return edges; }

  [[nodiscard]] u64 total(model::Event event) const { return kernel[event] + user[event]; }

  model::Activity kernel;
  model::Activity user;
  Headroom room;
  std::array<bool, model::event_count> used{};
  bool edges = false;
  u64 advances = 0;
};

class ScriptedEnvironment final : public Environment {
 public:
  u64 mmio_read(u64 physical, unsigned) override {
    mmio.push_back(physical);
    return mmio_value;
  }
  void mmio_write(u64 physical, unsigned, u64 value) override {
    mmio.push_back(physical);
    mmio_value = value;
  }
  u32 port_in(u16, unsigned) override { return 0x12345678; }
  void port_out(u16 port, unsigned, u32 value) override { ports.emplace_back(port, value); }
  std::optional<u64> rdmsr(u32 index) override {
    if (index == known_msr) return msr_value;
    return std::nullopt;
  }
  bool wrmsr(u32 index, u64 value) override {
    if (index != known_msr) return false;
    msr_value = value;
    return true;
  }
  std::optional<u64> rdpmc(u32 index) override {
    if (index == 0) return 77;
    return std::nullopt;
  }
  bool passes_msr(u32 index) override { return index == passed_msr; }
  bool passes_rdpmc() override { return rdpmc_passes; }
  CpuidLeaf cpuid(u32 leaf, u32) override { return {leaf + 1, 2, 3, 4}; }
  std::optional<u8> pending_vector() override { return vector; }
  void acknowledge(u8) override { vector.reset(); }
  u64 task_priority() override { return cr8; }
  void set_task_priority(u64 value) override { cr8 = value; }
  std::optional<u64> hypercall(u64, u64) override { return std::nullopt; }

  static constexpr u32 known_msr = 0x1234;
  std::optional<u32> passed_msr;
  bool rdpmc_passes = false;
  u64 msr_value = 0;
  u64 mmio_value = 0;
  u64 cr8 = 0;
  std::optional<u8> vector;
  std::vector<u64> mmio;
  std::vector<std::pair<u16, u32>> ports;
};

struct Rig {
  static constexpr u64 code = 0x10000, data = 0x20000, stack = 0x30000;
  static constexpr u64 tables = 0x100000;  ///< Page tables: identity, the first GiB, all rights.
  static constexpr u64 gdt = 0x1000, idt = 0x2000, tss = 0x3000, handlers = 0x4000;
  static constexpr u16 cs64 = 0x08, ds = 0x10, user_ds = 0x23, user_cs64 = 0x2b, cs32 = 0x30, tss_selector = 0x40;

  explicit Rig(const CpuOptions& options = {}, u64 mib = 16) : memory(mib), cpu(memory, sink, environment, options) {
    start64();
  }

  void put(u64 at, std::initializer_list<unsigned> bytes) {
    for (const unsigned each : bytes) *memory.at(at++) = static_cast<u8>(each);
  }
  void put_u64(u64 at, u64 value) { memory.write(at, &value, 8); }
  [[nodiscard]] u64 get_u64(u64 at) const { return memory.read_u64(at); }

  static u64 flat(unsigned access, unsigned flags) {
    return 0xffff | (u64{0xf} << 48) | (u64{access} << 40) | (u64{flags} << 52);
  }

  void start64() {
    put_u64(tables, (tables + 0x1000) | 7);
    put_u64(tables + 0x1000, (tables + 0x2000) | 7);
    for (u64 n = 0; n < 512; ++n) put_u64(tables + 0x2000 + n * 8, (n << 21) | 0xe7);
    put_u64(gdt + cs64, flat(0x9b, 0xa));
    put_u64(gdt + ds, flat(0x93, 0xc));
    put_u64(gdt + 0x20, flat(0xf3, 0xc));
    put_u64(gdt + 0x28, flat(0xfb, 0xa));
    put_u64(gdt + cs32, flat(0x9b, 0xc));
    put_u64(gdt + tss_selector, 0x67 | (tss << 16) | (u64{0x89} << 40));
    put_u64(gdt + tss_selector + 8, 0);
    CpuState& s = cpu.state();
    s.cr0 = cr0::pe | cr0::et | cr0::ne | cr0::wp | cr0::pg;
    s.cr4 = cr4::pae | cr4::osfxsr;
    s.cr3 = tables;
    s.efer = efer::lme | efer::lma | efer::nxe | efer::sce;
    s.gdtr = {gdt, 0x4f};
    s.idtr = {idt, 0xfff};
    load(Seg::cs, cs64, 0x9b, 0xa);
    for (const Seg each : {Seg::ds, Seg::es, Seg::ss, Seg::fs, Seg::gs}) load(each, ds, 0x93, 0xc);
    Segment& task = s.tr;
    task.selector = tss_selector;
    task.base = tss;
    task.limit = 0x67;
    task.access = 0x8b;
    task.usable = true;
    put(tss + 0x66, {0x68, 0});  // No I/O permission map.
    put_u64(tss + 4, 0x38000);   // RSP0
    put_u64(tss + 36, 0x3a000);  // IST1
    for (unsigned n = 0; n < 256; ++n) gate(n, handlers + n * 16, 0x8e, 0);
    for (unsigned n = 0; n < 256; ++n) put(handlers + n * 16, {0xf4});
    s.rip = code;
    s.gpr[rsp] = stack;
    s.system_flags = 0;
    cpu.state_changed();
  }

  void gate(unsigned which, u64 handler, unsigned access, unsigned ist) {
    put_u64(idt + which * 16, (handler & 0xffff) | (u64{cs64} << 16) | (u64{ist} << 32) | (u64{access} << 40) |
                                  ((handler & 0xffff0000) << 32));
    put_u64(idt + which * 16 + 8, handler >> 32);
  }

  void load(Seg which, u16 selector, u8 access, u8 flags) {
    Segment s;
    s.selector = selector;
    s.access = access;
    s.flags = flags;
    s.limit = 0xffffffff;
    s.usable = true;
    cpu.state().segment(which) = s;
  }

  /// 32-bit code under the 64-bit system.
  void compatibility_mode() {
    load(Seg::cs, cs32, 0x9b, 0xc);
    cpu.state_changed();
  }

  void user_mode() {
    load(Seg::cs, user_cs64, 0xfb, 0xa);
    load(Seg::ss, user_ds, 0xf3, 0xc);
    cpu.state().cpl = 3;
    cpu.state_changed();
  }

  Memory memory;
  CountingSink sink;
  ScriptedEnvironment environment;
  Cpu cpu;
};

}  // namespace vpmu::soft::test
