#include "vpmu/host/linux_perf_system.hpp"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include <cerrno>

namespace vpmu {
namespace {

class LinuxPerfSystem final : public PerfSystem {
 public:
  int perf_event_open(perf_event_attr& attr, pid_t thread, int leader) override {
    constexpr int any_cpu = -1;
    return answer(::syscall(SYS_perf_event_open, &attr, thread, any_cpu, leader, PERF_FLAG_FD_CLOEXEC));
  }
  int close(int fd) override { return answer(::close(fd)); }
  int ioctl(int fd, unsigned long request, std::uint64_t* argument) override {
    return answer(::ioctl(fd, request, argument));
  }
  int fcntl(int fd, int command, std::uintptr_t argument) override { return answer(::fcntl(fd, command, argument)); }
  ssize_t read(int fd, void* buffer, std::size_t size) override {
    const ssize_t result = ::read(fd, buffer, size);
    return result < 0 ? -errno : result;
  }
  const volatile perf_event_mmap_page* map(int fd) override {
    void* page = ::mmap(nullptr, page_size(), PROT_READ, MAP_SHARED, fd, 0);
    return page == MAP_FAILED ? nullptr : static_cast<const volatile perf_event_mmap_page*>(page);
  }
  void unmap(const volatile perf_event_mmap_page* page) override {
    ::munmap(const_cast<perf_event_mmap_page*>(page), page_size());
  }
  std::uint64_t rdpmc(std::uint32_t index) override { return __rdpmc(static_cast<int>(index)); }

 private:
  static int answer(long result) { return result < 0 ? -errno : static_cast<int>(result); }
  static std::size_t page_size() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
};

}  // namespace

PerfSystem& linux_perf_system() {
  static LinuxPerfSystem system;
  return system;
}

}  // namespace vpmu
