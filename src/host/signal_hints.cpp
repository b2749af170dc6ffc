#include "vpmu/host/signal_hints.hpp"

#include <sched.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <mutex>

namespace vpmu::signal_hints {
namespace {

/// Zero pages until used.
constinit std::array<std::atomic<SignalReceiver*>, max_descriptors> descriptors{};
constinit std::array<std::atomic<SignalReceiver*>, max_timer_hosts> timer_hosts{};
/// Above every descriptor that ever had a receiver.
constinit std::atomic<int> descriptors_end{0};
constinit std::atomic<std::uint32_t> in_handler{0};

constexpr int signal_numbers = 65;
constinit std::array<std::atomic<bool>, signal_numbers> installed{};
/// Written before `installed` says so.
std::array<struct sigaction, signal_numbers> previous{};

void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& old = previous[static_cast<std::size_t>(signal)];
  if ((old.sa_flags & SA_SIGINFO) != 0) {
    old.sa_sigaction(signal, info, context);
  } else if (old.sa_handler != SIG_DFL && old.sa_handler != SIG_IGN) {
    old.sa_handler(signal);
  }
}

bool give(SignalReceiver* receiver, int number) {
  if (receiver == nullptr) return false;
  receiver->on_signal(number);
  return true;
}

bool on_timer(int value) {
  if (value < 0 || value >= max_timer_hosts * timers_per_host) return false;
  return give(timer_hosts[static_cast<std::size_t>(value / timers_per_host)].load(), value % timers_per_host);
}

bool on_descriptor(int fd) {
  if (fd < 0 || fd >= max_descriptors) return false;
  return give(descriptors[static_cast<std::size_t>(fd)].load(), fd);
}

void handle_signal(int signal, siginfo_t* info, void* context) {
  in_handler.fetch_add(1);
  const bool ours = info->si_code == SI_TIMER ? on_timer(info->si_value.sival_int) : on_descriptor(info->si_fd);
  in_handler.fetch_sub(1);
  if (!ours) pass_on(signal, info, context);
}

/// Real-time signals were lost, and nothing says whose: all have to look.
void handle_overflow(int signal, siginfo_t* info, void* context) {
  in_handler.fetch_add(1);
  const int end = descriptors_end.load();
  for (int fd = 0; fd < end; ++fd) on_descriptor(fd);
  in_handler.fetch_sub(1);
  pass_on(signal, info, context);
}

int install_one(int signal, void (*handler)(int, siginfo_t*, void*)) {
  if (signal <= 0 || signal >= signal_numbers) return EINVAL;
  const auto index = static_cast<std::size_t>(signal);
  if (installed[index].load()) return 0;
  if (::sigaction(signal, nullptr, &previous[index]) != 0) return errno;
  struct sigaction action = {};
  action.sa_sigaction = handler;
  // KVM_RUN returns EINTR all the same; other calls of the VMM's thread need not know.
  action.sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  if (::sigaction(signal, &action, nullptr) != 0) return errno;
  installed[index].store(true);
  return 0;
}

}  // namespace

int default_signal() { return SIGRTMIN + 4; }

int install(int signal) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock{one_at_a_time};
  if (const int error = install_one(SIGIO, handle_overflow); error != 0) return error;
  return signal == SIGIO ? EINVAL : install_one(signal, handle_signal);
}

bool bind_descriptor(int fd, SignalReceiver* receiver) {
  if (fd < 0 || fd >= max_descriptors) return false;
  descriptors[static_cast<std::size_t>(fd)].store(receiver);
  if (receiver == nullptr) return true;
  int end = descriptors_end.load();
  while (end <= fd && !descriptors_end.compare_exchange_weak(end, fd + 1)) {
  }
  return true;
}

int add_timer_host(SignalReceiver& receiver) {
  for (int host = 0; host < max_timer_hosts; ++host) {
    SignalReceiver* none = nullptr;
    if (timer_hosts[static_cast<std::size_t>(host)].compare_exchange_strong(none, &receiver)) return host;
  }
  return -1;
}

void remove_timer_host(int host) {
  if (host >= 0 && host < max_timer_hosts) timer_hosts[static_cast<std::size_t>(host)].store(nullptr);
}

void wait_for_handlers() {
  while (in_handler.load() != 0) sched_yield();
}

}  // namespace vpmu::signal_hints
