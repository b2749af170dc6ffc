// vpmu run --machine kvm as its user meets it; with /dev/kvm, also the guests of the soft machine on it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "cli/run_command.hpp"
#include "machine/kvm/vm.hpp"

namespace vpmu::kvm {
namespace {

using test::CommandResult;
using testing::HasSubstr;

CommandResult run_guest(const std::string& guest, const std::string& options) {
  return test::run(VPMU_COMMAND " run " VPMU_GUESTS "/" + guest + ".elf " + options);
}

void expect_refused(const CommandResult& result, const std::string& expected) {
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(std::ranges::count(result.err, '\n'), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(expected));
}

TEST(KvmCommand, WithoutKvmEndsWith2AndOneLine) {
  if (::access("/dev/kvm", F_OK) == 0) GTEST_SKIP() << "/dev/kvm is here";
  expect_refused(run_guest("counting", "--machine kvm"), "/dev/kvm not found");
}

TEST(KvmCommand, RefusesTheOtherMachinesOptions) {
  expect_refused(run_guest("counting", "--machine kvm --skid 3"), "--skid is for --machine soft");
  expect_refused(run_guest("counting", "--cpus 2"), "--cpus is for --machine kvm");
  expect_refused(run_guest("counting", "--machine kvm --host tcg"), "--host");
  expect_refused(run_guest("counting", "--machine kvm --cpus 0"), "--cpus");
}

class GuestOnKvm : public testing::TestWithParam<const char*> {};

TEST_P(GuestOnKvm, PassesAllChecksWhoseEventsTheHostHas) {
  if (const auto kvm = open_kvm(); !kvm) GTEST_SKIP() << kvm.error();
  const CommandResult result =
      run_guest(GetParam(),
                "--machine kvm --host clock --timeout 60 --append 'scale=1 models=0 user_rdpmc=0 "
                "lvtpc_mask=0 rip=0 cycle_rings=0'");
  if (result.err.find("KVM_EXIT_INTERNAL_ERROR") != std::string::npos) {
    GTEST_SKIP() << "this KVM cannot execute the guest (of the PVM kind?)";
  }
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr(" 0 failed"));
}

INSTANTIATE_TEST_SUITE_P(, GuestOnKvm, testing::Values("counting", "exits", "hostile"),
                         [](const auto& param) { return std::string{param.param}; });

}  // namespace
}  // namespace vpmu::kvm
