// Signals as hints: from a signal of the kernel to the host event that it is about.
//
// One handler serves every host of the process. What it reads is fixed tables of atomics, so that it can run at any
// time, on any thread, beside any call.
#pragma once

#include <csignal>
#include <cstdint>

namespace vpmu {

/// Whom a signal is for.
class SignalReceiver {
 public:
  /// Runs in the signal handler. `number`: the descriptor, or the timer's number.
  virtual void on_signal(int number) = 0;

 protected:
  SignalReceiver() = default;
  ~SignalReceiver() = default;
  SignalReceiver(const SignalReceiver&) = delete;
  SignalReceiver& operator=(const SignalReceiver&) = delete;
};

namespace signal_hints {

/// Descriptors below it can have a receiver.
inline constexpr int max_descriptors = 1 << 16;
/// Hosts with timers in one process, and timers that each can have.
inline constexpr int max_timer_hosts = 1024;
inline constexpr int timers_per_host = 32;

/// The signal that hosts use unless told otherwise. A VMM that needs it for itself names another.
int default_signal();

/// Makes the handler serve this signal, and plain SIGIO: that is what the kernel sends instead when the queue of
/// real-time signals is full, and what ends a process that does not expect it (fcntl(2), F_SETSIG). A handler that was
/// there before gets what is not ours. 0, or the error number. A handler stays for good: a signal may be on its way.
int install(int signal);

/// Signals about this descriptor go to `receiver` from now on; a null pointer: to nobody. False if it is too large.
bool bind_descriptor(int fd, SignalReceiver* receiver);

/// A number for a host with timers, or -1 if there are too many. Timer t of host h sends the value h * timers_per_host
/// + t, and the receiver sees t.
int add_timer_host(SignalReceiver& receiver);
void remove_timer_host(int host);

/// Waits until no thread is in the handler: afterwards, none still uses a receiver that was unbound before.
void wait_for_handlers();

}  // namespace signal_hints
}  // namespace vpmu
