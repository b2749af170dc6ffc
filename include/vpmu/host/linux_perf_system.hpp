// The system calls of LinuxPerf, so that tests can put a kernel of their own in their place.
#pragma once

#include <linux/perf_event.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace vpmu {

/// Each call answers as the system call does, but with the negative error number where that sets errno.
class PerfSystem {
 public:
  /// Of one thread, on whatever CPU it runs; `leader`: of its group, or -1 (perf_event_open(2)).
  virtual int perf_event_open(perf_event_attr& attr, pid_t thread, int leader) = 0;
  virtual int close(int fd) = 0;
  virtual int ioctl(int fd, unsigned long request, std::uint64_t* argument) = 0;
  virtual int fcntl(int fd, int command, std::uintptr_t argument) = 0;
  virtual ssize_t read(int fd, void* buffer, std::size_t size) = 0;
  /// The event's user page, or a null pointer.
  virtual const volatile perf_event_mmap_page* map(int fd) = 0;
  virtual void unmap(const volatile perf_event_mmap_page* page) = 0;
  /// The instruction; only where the user page says that it is allowed.
  virtual std::uint64_t rdpmc(std::uint32_t index) = 0;

 protected:
  PerfSystem() = default;
  ~PerfSystem() = default;
  PerfSystem(const PerfSystem&) = delete;
  PerfSystem& operator=(const PerfSystem&) = delete;
};

/// This Linux.
PerfSystem& linux_perf_system();

}  // namespace vpmu
