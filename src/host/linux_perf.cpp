#include "vpmu/host/linux_perf.hpp"

#include <cpuid.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "arch/events.hpp"
#include "vpmu/event_select.hpp"

namespace vpmu {
namespace {

HostError error_of(int error) {
  switch (error) {
    case EBUSY:
    case ENOSPC:
      return HostError::no_counter;
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return HostError::no_resources;
    case EACCES:
    case EPERM:
      return HostError::not_permitted;
    case ENOENT:
    case EOPNOTSUPP:
    case EINVAL:
    case ENODEV:
    case ENOSYS:
      return HostError::unsupported;
    default:
      return HostError::failed;
  }
}

/// Repeats a call that a signal interrupted. Signals are frequent here: they are the hints.
template <class Call>
auto uninterrupted(Call&& call) {
  auto result = call();
  while (result == -EINTR) result = call();
  return result;
}

Vendor this_vendor() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned first_letters_of_genuine_intel = 0x756E6547;
  __get_cpuid(0, &eax, &ebx, &ecx, &edx);
  return ebx == first_letters_of_genuine_intel ? Vendor::intel : Vendor::amd;
}

constexpr std::uint64_t not_generic = ~std::uint64_t{0};

/// What perf calls the event on every processor.
constexpr std::uint64_t generic_code(arch::EventKind kind) {
  switch (kind) {
    case arch::EventKind::instructions:
      return PERF_COUNT_HW_INSTRUCTIONS;
    case arch::EventKind::cycles:
      return PERF_COUNT_HW_CPU_CYCLES;
    case arch::EventKind::ref_cycles:
      return PERF_COUNT_HW_REF_CPU_CYCLES;
    case arch::EventKind::branches:
      return PERF_COUNT_HW_BRANCH_INSTRUCTIONS;
    case arch::EventKind::branch_misses:
      return PERF_COUNT_HW_BRANCH_MISSES;
    case arch::EventKind::llc_references:
      return PERF_COUNT_HW_CACHE_REFERENCES;
    case arch::EventKind::llc_misses:
      return PERF_COUNT_HW_CACHE_MISSES;
  }
  return not_generic;
}

std::uint64_t generic_code(const HostEventSpec& spec) {
  if (spec.counter.is_fixed()) {
    const std::uint32_t number = spec.counter.number();
    return number < arch::fixed_events.size() ? generic_code(arch::fixed_events[number]) : not_generic;
  }
  for (const auto& known : arch::event_codes) {
    if (known.vendor == spec.vendor && known.select == spec.select) return generic_code(known.kind);
  }
  return not_generic;
}

/// Bits of a selector that perf's raw code has in the same place (/sys/devices/cpu/format). Intel: bit 34 asks for
/// records and is not the host's matter.
constexpr std::uint64_t raw_bits(Vendor vendor) {
  constexpr std::uint64_t transactions = evtsel::in_tx | evtsel::in_tx_cp;
  return vendor == Vendor::amd ? evtsel::host : (evtsel::host & ~evtsel::event_high) | transactions;
}

}  // namespace

LinuxPerf::LinuxPerf(const Options& options)
    : options_{options},
      system_{options.system != nullptr ? *options.system : linux_perf_system()},
      host_vendor_{options.host_vendor.value_or(this_vendor())} {
  if (options_.thread == 0) options_.thread = ::gettid();
  if (options_.signal == 0) options_.signal = signal_hints::default_signal();
  signal_error_ = signal_hints::install(options_.signal);
  if (options_.reads == Reads::group) leader_error_ = open_leader();
}

LinuxPerf::~LinuxPerf() {
  for (std::size_t i = 0; i < slots_.size(); ++i) close(static_cast<HostEvent>(i));
  if (leader_ != no_fd) system_.close(leader_);
  signal_hints::wait_for_handlers();
}

HostCallCounts LinuxPerf::calls() const {
  HostCallCounts calls = calls_;
  calls.signals = signals_.load(std::memory_order_relaxed);
  return calls;
}

void LinuxPerf::reset_calls() {
  calls_ = {};
  system_calls_ = 0;
  signals_.store(0, std::memory_order_relaxed);
}

void LinuxPerf::on_signal(int fd) {
  for (const Slot& slot : slots_) {
    if (slot.fd.load(std::memory_order_relaxed) != fd) continue;
    signals_.fetch_add(1, std::memory_order_relaxed);
    hint(slot.counter.load(std::memory_order_relaxed));
    if (options_.kick != nullptr) std::atomic_ref{*options_.kick}.store(1, std::memory_order_relaxed);
    return;
  }
}

LinuxPerf::Slot* LinuxPerf::find(HostEvent event) {
  const auto index = static_cast<std::size_t>(static_cast<std::int64_t>(event));
  if (index >= slots_.size() || slots_[index].fd.load(std::memory_order_relaxed) == no_fd) return nullptr;
  return &slots_[index];
}

std::uint64_t LinuxPerf::clock_code() const {
  return options_.source == Source::task_clock ? PERF_COUNT_SW_TASK_CLOCK : PERF_COUNT_SW_CPU_CLOCK;
}

bool LinuxPerf::describe_event(const HostEventSpec& spec, perf_event_attr& attr) const {
  attr.size = sizeof attr;
  attr.disabled = 1;
  // Pinned: counts or fails, but is never counted for part of the time. In a group that is the leader's to say.
  attr.pinned = leader_ == no_fd ? 1 : 0;
  attr.wakeup_events = 1;
  switch (options_.source) {
    case Source::hardware:
      return describe_hardware(spec, attr);
    case Source::task_clock:
    case Source::cpu_clock:
      attr.type = PERF_TYPE_SOFTWARE;
      attr.config = clock_code();
      return true;
  }
  return false;
}

bool LinuxPerf::describe_hardware(const HostEventSpec& spec, perf_event_attr& attr) const {
  if (!spec.counter.is_fixed() && spec.vendor == host_vendor_) {
    attr.type = PERF_TYPE_RAW;
    attr.config = spec.select & raw_bits(spec.vendor);
  } else {
    // A code of the other vendor means something else here.
    attr.type = PERF_TYPE_HARDWARE;
    attr.config = generic_code(spec);
    if (attr.config == not_generic) return false;
  }
  attr.exclude_host = 1;
  attr.exclude_hv = 1;
  attr.exclude_user = spec.user ? 0 : 1;
  attr.exclude_kernel = spec.kernel ? 0 : 1;
  return true;
}

std::uint64_t LinuxPerf::usable_period(std::uint64_t period, CounterId counter) {
  const bool too_short = options_.source != Source::hardware && period < shortest_clock_period;
  set_clamped(too_short ? clamped() | counter.mask() : clamped() & ~counter.mask());
  return too_short ? shortest_clock_period : std::min(period, longest_period);
}

int LinuxPerf::call_ioctl(int fd, unsigned long request, std::uint64_t* argument) {
  return uninterrupted([&] {
    ++system_calls_;
    return system_.ioctl(fd, request, argument);
  });
}

int LinuxPerf::request_signals(int fd) {
  f_owner_ex owner{F_OWNER_TID, options_.thread};
  const auto set = [&](int command, std::uintptr_t argument) {
    return uninterrupted([&] {
      ++system_calls_;
      return system_.fcntl(fd, command, argument);
    });
  };
  if (const int error = set(F_SETOWN_EX, std::bit_cast<std::uintptr_t>(&owner)); error < 0) return error;
  if (const int error = set(F_SETSIG, static_cast<std::uintptr_t>(options_.signal)); error < 0) return error;
  return set(F_SETFL, O_ASYNC | O_NONBLOCK);
}

/// An event that holds the others together from the first to the last. It is of their own PMU: Linux 6.18 puts off
/// enabling a software clock in a group that another software PMU leads until the thread is next switched in.
int LinuxPerf::open_leader() {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = PERF_TYPE_SOFTWARE;
  attr.config = options_.source == Source::hardware ? std::uint64_t{PERF_COUNT_SW_DUMMY} : clock_code();
  attr.pinned = 1;
  attr.exclude_kernel = 1;  // its own count is not used, and so needs no privilege
  attr.exclude_hv = 1;
  attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_ID;
  const int fd = uninterrupted([&] { return system_.perf_event_open(attr, options_.thread, no_fd); });
  if (fd < 0) return -fd;
  leader_ = fd;
  return 0;
}

Result<HostEvent, HostError> LinuxPerf::open(const HostEventSpec& spec, std::uint64_t period) {
  ++calls_.open;
  if (period == 0 || signal_error_ != 0) return HostError::failed;
  if (leader_error_ != 0) return error_of(leader_error_);
  const auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.fd.load() == no_fd; });
  if (slot == slots_.end()) return HostError::no_resources;

  perf_event_attr attr{};
  if (!describe_event(spec, attr)) return HostError::unsupported;
  attr.sample_period = usable_period(period, spec.counter);
  const int fd = uninterrupted([&] {
    ++system_calls_;
    return system_.perf_event_open(attr, options_.thread, leader_);
  });
  if (fd < 0) return error_of(-fd);

  const auto give_up = [&](HostError error) {
    ++system_calls_;
    static_cast<void>(system_.close(fd));
    return error;
  };
  if (const int error = request_signals(fd); error < 0) return give_up(error_of(-error));
  slot->counter.store(spec.counter.mask(), std::memory_order_relaxed);
  slot->fd.store(fd, std::memory_order_release);
  if (!signal_hints::bind_descriptor(fd, this)) {
    slot->fd.store(no_fd, std::memory_order_relaxed);
    return give_up(HostError::no_resources);
  }
  slot->enabled = false;
  slot->page = nullptr;
  slot->count = 0;
  if (leader_ != no_fd) {
    if (const int error = call_ioctl(fd, PERF_EVENT_IOC_ID, &slot->id); error < 0) {
      close(static_cast<HostEvent>(slot - slots_.begin()));
      return error_of(-error);
    }
  } else if (options_.source == Source::hardware) {
    // Without it, reads are not free: that is all.
    ++system_calls_;
    slot->page = system_.map(fd);
  }
  return static_cast<HostEvent>(slot - slots_.begin());
}

void LinuxPerf::close(HostEvent event) {
  Slot* slot = find(event);
  if (slot == nullptr) return;
  ++calls_.close;
  const int fd = slot->fd.exchange(no_fd, std::memory_order_relaxed);
  signal_hints::bind_descriptor(fd, nullptr);
  set_clamped(clamped() & ~slot->counter.load(std::memory_order_relaxed));
  if (slot->page != nullptr) {
    ++system_calls_;
    system_.unmap(slot->page);
    slot->page = nullptr;
  }
  ++system_calls_;
  static_cast<void>(system_.close(fd));  // on Linux the descriptor is gone whatever this answers, EINTR included
}

Status<HostError> LinuxPerf::set_period(HostEvent event, std::uint64_t period) {
  ++calls_.set_period;
  Slot* slot = find(event);
  if (slot == nullptr || period == 0) return HostError::failed;
  if (slot->enabled) ++calls_.live_set_period;
  const auto counter = CounterId::from_bit(static_cast<std::uint32_t>(std::countr_zero(slot->counter.load())));
  std::uint64_t argument = usable_period(period, counter);
  const int result = call_ioctl(slot->fd, PERF_EVENT_IOC_PERIOD, &argument);
  if (result < 0) return error_of(-result);
  return {};
}

Status<HostError> LinuxPerf::enable(HostEvent event) {
  ++calls_.enable;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  const int result = call_ioctl(slot->fd, PERF_EVENT_IOC_ENABLE, nullptr);
  if (result < 0) return error_of(-result);
  slot->enabled = true;
  return {};
}

Status<HostError> LinuxPerf::disable(HostEvent event) {
  ++calls_.disable;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  const int result = call_ioctl(slot->fd, PERF_EVENT_IOC_DISABLE, nullptr);
  if (result < 0) return error_of(-result);
  slot->enabled = false;
  return {};
}

Result<std::uint64_t, HostError> LinuxPerf::read(HostEvent event) {
  ++calls_.read;
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if (slot->enabled) ++calls_.live_read;
  if (leader_ != no_fd) {
    const auto done = read_group();
    if (!done) return done.error();
    return slot->count;
  }
  std::uint64_t count = 0;
  const ssize_t size = uninterrupted([&] {
    ++system_calls_;
    return system_.read(slot->fd, &count, sizeof count);
  });
  if (size < 0) return error_of(static_cast<int>(-size));
  // A pinned event that found no counter, or lost it, is in error: it reads as the end of a file (perf_event_open(2),
  // `pinned`).
  if (size != sizeof count) return HostError::lost;
  return count;
}

Status<HostError> LinuxPerf::read_group() {
  struct {
    std::uint64_t number;
    struct {
      std::uint64_t value;
      std::uint64_t id;
    } events[1 + max_counters];  // the leader comes first
  } group;
  const ssize_t size = uninterrupted([&] {
    ++system_calls_;
    return system_.read(leader_, &group, sizeof group);
  });
  if (size < 0) return error_of(static_cast<int>(-size));
  if (static_cast<std::size_t>(size) < sizeof group.number) return HostError::lost;
  const std::size_t number = std::min<std::size_t>(group.number, std::size(group.events));
  for (Slot& slot : slots_) {
    if (slot.fd.load(std::memory_order_relaxed) == no_fd) continue;
    const auto found =
        std::find_if(group.events, group.events + number, [&](const auto& e) { return e.id == slot.id; });
    if (found == group.events + number) return HostError::lost;
    slot.count = found->value;
  }
  group_is_read_ = true;
  return {};
}

Result<std::uint64_t, HostError> LinuxPerf::peek(HostEvent event) {
  Slot* slot = find(event);
  if (slot == nullptr) return HostError::failed;
  if (leader_ == no_fd) return peek_page(*slot);
  if (!group_is_read_) return read(event);
  ++calls_.peek;
  return slot->count;
}

Result<std::uint64_t, HostError> LinuxPerf::peek_page(const Slot& slot) {
  const volatile perf_event_mmap_page* page = slot.page;
  if (page == nullptr) return HostError::unavailable;
  // perf_event_open(2), "MMAP layout": `lock` changes with each change of the page. The kernel makes those while this
  // thread does not run, so the order of the program is enough.
  std::uint64_t count = 0;
  std::uint32_t lock = 0;
  do {
    lock = page->lock;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (page->cap_user_rdpmc == 0) return HostError::unavailable;
    const std::uint32_t index = page->index;
    count = static_cast<std::uint64_t>(page->offset);
    if (index != 0) {
      const int unused = 64 - page->pmc_width;
      const std::uint64_t counted = system_.rdpmc(index - 1) << unused;
      count += static_cast<std::uint64_t>(static_cast<std::int64_t>(counted) >> unused);
    } else if (slot.enabled) {
      return HostError::unavailable;  // it should be on a counter and is not: read() knows why
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } while (page->lock != lock);
  ++calls_.peek;
  return count;
}

}  // namespace vpmu
