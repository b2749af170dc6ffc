// A kernel's perf events for tests: exact, failing on demand, and sending real signals to this thread.
#pragma once

#include <fcntl.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>
#include <vector>

#include "vpmu/host/linux_perf_system.hpp"
#include "vpmu/host/signal_hints.hpp"

namespace vpmu::test {

enum class PerfCall { open, close, enable, disable, period, id, set_owner, set_signal, set_flags, read, map };

class FakePerfKernel final : public PerfSystem {
 public:
  /// Beyond what a test process opens for real.
  static constexpr int first_fd = 50000;

  struct Event {
    perf_event_attr attr{};
    int leader = -1;
    bool enabled = false;
    bool in_error = false;  // taken away
    bool asynchronous = false;
    int signal = 0;
    f_owner_ex owner{};
    std::uint64_t count = 0;
    std::uint64_t left = 0;
    perf_event_mmap_page page{};
    bool mapped = false;
  };

  enum class Signals {
    sent,
    held,  // until send_held(): late, and several of one event are one
    lost,
    overflowing,  // the queue is full: plain SIGIO
  };

  // --- What it is like ---

  void fail(PerfCall call, int error, int times = 1) { failures_[call] = {error, times}; }
  void set_signals(Signals mode) { signals_ = mode; }
  void set_rdpmc(bool on) { rdpmc_ = on; }

  // --- What happens ---

  /// n events happen in everything that counts.
  void happen(std::uint64_t n) {
    for (auto& [fd, event] : events) {
      const bool led = event.leader < 0 || events.at(event.leader).enabled;
      if (!event.enabled || event.in_error || !led) continue;
      if (event.attr.type == PERF_TYPE_SOFTWARE && event.attr.config == PERF_COUNT_SW_DUMMY) continue;
      event.count += n;
      if (event.attr.sample_period == 0) continue;
      if (n < event.left) {
        event.left -= n;
        continue;
      }
      event.left = event.attr.sample_period - (n - event.left) % event.attr.sample_period;
      overflow(fd, event);
    }
  }
  /// The host takes all of them away, as from pinned events that find no counter.
  void take_away() {
    for (auto& [fd, event] : events) event.in_error = true;
  }
  void send_held() {
    for (const int fd : held_) send(fd, events.contains(fd) ? events.at(fd).signal : 0);
    held_.clear();
  }
  /// A signal about a descriptor that has no event (any more).
  static void send(int fd, int signal) {
    siginfo_t info{};
    info.si_signo = signal != 0 ? signal : signal_hints::default_signal();
    info.si_code = POLL_IN;
    info.si_fd = fd;
    syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), info.si_signo, &info);
    usleep(0);  // sanitizers hold signals back until a call that they know
  }

  // --- The calls ---

  int perf_event_open(perf_event_attr& attr, pid_t, int leader) override {
    if (const int error = next(PerfCall::open)) return error;
    const int fd = next_fd_++;
    Event& event = events[fd];
    event.attr = attr;
    event.leader = leader;
    event.left = attr.sample_period;
    event.enabled = attr.disabled == 0;
    last_attr = attr;
    return fd;
  }
  int close(int fd) override {
    const int error = next(PerfCall::close);
    if (events.erase(fd) == 0) ++mistakes;
    return error;
  }
  int ioctl(int fd, unsigned long request, std::uint64_t* argument) override {
    Event* event = find(fd);
    if (event == nullptr) return -EBADF;
    switch (request) {
      case PERF_EVENT_IOC_ENABLE:
        if (const int error = next(PerfCall::enable)) return error;
        event->enabled = true;
        return 0;
      case PERF_EVENT_IOC_DISABLE:
        if (const int error = next(PerfCall::disable)) return error;
        event->enabled = false;
        return 0;
      case PERF_EVENT_IOC_PERIOD:
        if (const int error = next(PerfCall::period)) return error;
        // Zero, 2^63 and events that do not sample are refused (KVM.md).
        if (*argument == 0 || *argument >> 63 != 0 || event->attr.sample_period == 0) {
          ++mistakes;
          return -EINVAL;
        }
        event->attr.sample_period = event->left = *argument;
        return 0;
      case PERF_EVENT_IOC_ID:
        if (const int error = next(PerfCall::id)) return error;
        *argument = id_of(fd);
        return 0;
      default:
        ++mistakes;
        return -ENOTTY;
    }
  }
  int fcntl(int fd, int command, std::uintptr_t argument) override {
    Event* event = find(fd);
    if (event == nullptr) return -EBADF;
    switch (command) {
      case F_SETOWN_EX:
        if (const int error = next(PerfCall::set_owner)) return error;
        std::memcpy(&event->owner, reinterpret_cast<const void*>(argument), sizeof event->owner);
        return 0;
      case F_SETSIG:
        if (const int error = next(PerfCall::set_signal)) return error;
        event->signal = static_cast<int>(argument);
        return 0;
      case F_SETFL:
        if (const int error = next(PerfCall::set_flags)) return error;
        event->asynchronous = (argument & O_ASYNC) != 0;
        return 0;
      default:
        ++mistakes;
        return -EINVAL;
    }
  }
  ssize_t read(int fd, void* buffer, std::size_t size) override {
    Event* event = find(fd);
    if (event == nullptr) return -EBADF;
    if (const int error = next(PerfCall::read)) return error;
    if (event->in_error) return 0;
    if ((event->attr.read_format & PERF_FORMAT_GROUP) == 0) {
      if (size < sizeof event->count) return -ENOSPC;
      std::memcpy(buffer, &event->count, sizeof event->count);
      return sizeof event->count;
    }
    std::array<std::uint64_t, 65> words{};
    std::size_t used = 1;
    for (const auto& [member, other] : events) {
      if (member != fd && other.leader != fd) continue;
      ++words[0];
      words[used++] = other.count;
      words[used++] = id_of(member);
    }
    if (size < used * sizeof words[0]) return -ENOSPC;
    std::memcpy(buffer, words.data(), used * sizeof words[0]);
    return static_cast<ssize_t>(used * sizeof words[0]);
  }
  const volatile perf_event_mmap_page* map(int fd) override {
    if (next(PerfCall::map) != 0) return nullptr;
    Event& event = events.at(fd);
    event.mapped = true;
    event.page.cap_user_rdpmc = rdpmc_ ? 1 : 0;
    event.page.pmc_width = 48;
    ++maps;
    return &event.page;
  }
  void unmap(const volatile perf_event_mmap_page*) override { --maps; }
  std::uint64_t rdpmc(std::uint32_t index) override {
    ++rdpmcs;
    if (on_rdpmc != nullptr) on_rdpmc(*this);
    return hardware[index];
  }

  std::map<int, Event> events;
  perf_event_attr last_attr{};
  std::array<std::uint64_t, 8> hardware{};
  void (*on_rdpmc)(FakePerfKernel&) = nullptr;
  int rdpmcs = 0;
  int maps = 0;
  int mistakes = 0;  // calls that a right program does not make

 private:
  struct Failure {
    int error = 0;
    int times = 0;
  };

  static std::uint64_t id_of(int fd) { return static_cast<std::uint64_t>(fd) * 7; }
  int next(PerfCall call) {
    Failure& failure = failures_[call];
    if (failure.times == 0) return 0;
    --failure.times;
    return -failure.error;
  }
  Event* find(int fd) {
    const auto found = events.find(fd);
    if (found == events.end()) ++mistakes;
    return found == events.end() ? nullptr : &found->second;
  }
  void overflow(int fd, const Event& event) {
    if (!event.asynchronous || event.owner.pid != gettid()) return;
    switch (signals_) {
      case Signals::sent:
        return send(fd, event.signal);
      case Signals::held:
        held_.push_back(fd);
        return;
      case Signals::lost:
        return;
      case Signals::overflowing:
        syscall(SYS_tgkill, getpid(), gettid(), SIGIO);
        usleep(0);
        return;
    }
  }

  int next_fd_ = first_fd;
  bool rdpmc_ = false;
  Signals signals_ = Signals::sent;
  std::vector<int> held_;
  std::map<PerfCall, Failure> failures_;
};

}  // namespace vpmu::test
