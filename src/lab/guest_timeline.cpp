#include "lab/guest_timeline.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "lab/options.hpp"
#include "lab/post_mortem.hpp"

namespace vpmu::lab {
namespace {

// LVT entries (SDM volume 3, figure "Local Vector Table").
constexpr soft::u32 lvt_mask = 1U << 16;
constexpr soft::u32 lvt_mode = 7U << 8;
constexpr soft::u32 lvt_nmi = 4U << 8;
constexpr soft::u8 nmi_vector = 2;
/// Handlers that leave without IRET would pile up.
constexpr std::size_t most_handlers = 8;

}  // namespace

GuestTimeline::GuestTimeline(const GuestOptions& options)
    : out_{*options.timeline},
      tsc_mhz_{static_cast<std::uint64_t>(options.platform.tsc_mhz.value)},
      pmu_{out_, out_.add_process(options.timeline_process), [this] { return now(); }} {
  out_.note("time", "modelled guest time");
  out_.note("platform", options.platform.name);
  out_.note("policy", to_text(options.policy));
}

void GuestTimeline::attach(soft::Machine& machine) {
  machine_ = &machine;
  machine.set_observer(this);
}

std::uint64_t GuestTimeline::now() const {
  constexpr std::uint64_t ns_per_us = 1000;
  const std::uint64_t tsc = machine_->cpu().tsc();
  return tsc / tsc_mhz_ * ns_per_us + tsc % tsc_mhz_ * ns_per_us / tsc_mhz_;
}

void GuestTimeline::exited(const soft::Exit& exit) {
  exit_ = OpenExit{.name = exit_name(exit.reason), .at = now(), .args = {}};
  switch (exit.reason) {
    case soft::ExitReason::rdmsr:
    case soft::ExitReason::wrmsr:
      exit_->args = register_args(exit.index);
      break;
    case soft::ExitReason::rdpmc:
      exit_->args["ecx"] = hex(exit.index);
      break;
    case soft::ExitReason::port:
      exit_->args["port"] = hex(exit.index);
      break;
    default:
      break;
  }
  pmu_.exited(exit_->at);
}

void GuestTimeline::entering() {
  end_exit();
  pmu_.entered();
}

void GuestTimeline::end_exit() {
  if (!exit_) return;
  out_.slice(pmu_.row(PmuTimeline::exits, "VM exits"), exit_->at, now(), exit_->name, exit_->args);
  exit_.reset();
}

void GuestTimeline::answered(std::optional<std::uint64_t> value) {
  if (!exit_) return;
  if (value) {
    exit_->args["value"] = hex(*value);
  } else {
    exit_->args["answer"] = "#GP";
  }
}

void GuestTimeline::read_msr(soft::u32 /*index*/, std::optional<soft::u64> value) { answered(value); }

void GuestTimeline::wrote_msr(soft::u32 index, soft::u64 value, bool accepted) {
  answered(value);
  if (!accepted) answered(std::nullopt);
  pmu_.wrote(Msr{index});
}

void GuestTimeline::read_pmc(soft::u32 /*ecx*/, std::optional<soft::u64> value) { answered(value); }

void GuestTimeline::pmi(soft::u32 lvtpc) {
  std::string how = "LVTPC is masked: dropped";
  if ((lvtpc & lvt_mask) == 0) {
    const bool nmi = (lvtpc & lvt_mode) == lvt_nmi;
    pmi_vector_ = nmi ? nmi_vector : static_cast<soft::u8>(lvtpc);
    how = nmi ? "NMI" : fmt::format("vector {:#x}", *pmi_vector_);
  }
  pmu_.pmi({{"delivered as", how}});
}

Timeline::Row GuestTimeline::handler_row() { return pmu_.row(PmuTimeline::handler, "PMI handler"); }

void GuestTimeline::interrupt_taken(soft::u8 vector, soft::u64 frame) {
  if (pmi_vector_ != vector) return;
  pmi_vector_.reset();
  // Where a frame lies now, the handler of the one that lay there is gone.
  const auto same = std::ranges::find(handlers_, frame);
  if (same != handlers_.end()) end_handlers(static_cast<std::size_t>(same - handlers_.begin()));
  if (handlers_.size() == most_handlers) end_handlers(0);
  handlers_.push_back(frame);
  out_.begin(handler_row(), now(), vector == nmi_vector ? "NMI handler" : "PMI handler");
}

void GuestTimeline::interrupt_returns(soft::u64 frame) {
  const auto ended = std::ranges::find(handlers_, frame);
  if (ended != handlers_.end()) end_handlers(static_cast<std::size_t>(ended - handlers_.begin()));
}

void GuestTimeline::end_handlers(std::size_t from) {
  for (; handlers_.size() > from; handlers_.pop_back()) out_.end(handler_row(), now());
}

void GuestTimeline::finish() {
  end_exit();
  out_.finish(now());
}

}  // namespace vpmu::lab
