#include "cli/output_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

#include "cli/run_command.hpp"

namespace vpmu::cli {
namespace {

using test::read_file;
using test::TemporaryDirectory;
using testing::HasSubstr;

mode_t mode_of(const std::string& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST(OutputFile, appears_when_committed) {
  const TemporaryDirectory directory;
  auto output = OutputFile::create(directory.file("report"));
  ASSERT_TRUE(output.has_value()) << output.error();
  output->write("one\n");
  output->write("two\n");
  EXPECT_FALSE(std::filesystem::exists(directory.file("report")));
  ASSERT_TRUE(output->commit().has_value());
  EXPECT_EQ(read_file(directory.file("report")), "one\ntwo\n");
  EXPECT_EQ(directory.entries(), 1);
}

TEST(OutputFile, leaves_nothing_behind_and_the_old_file_alone_when_not_committed) {
  const TemporaryDirectory directory;
  {
    auto output = OutputFile::create(directory.write("old", "old\n"));
    ASSERT_TRUE(output.has_value());
    output->write("half");
    auto other = OutputFile::create(directory.file("new"));
    ASSERT_TRUE(other.has_value());
  }
  EXPECT_EQ(read_file(directory.file("old")), "old\n");
  EXPECT_EQ(directory.entries(), 1);
}

TEST(OutputFile, keeps_the_access_of_the_file_that_it_replaces) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("old", "old\n");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  auto output = OutputFile::create(path);
  ASSERT_TRUE(output.has_value());
  ASSERT_TRUE(output->commit().has_value());
  EXPECT_EQ(mode_of(path), 0640);
}

TEST(OutputFile, a_new_file_has_the_access_that_the_umask_leaves) {
  const TemporaryDirectory directory;
  const mode_t before = ::umask(022);
  auto output = OutputFile::create(directory.file("new"));
  ::umask(before);
  ASSERT_TRUE(output.has_value());
  ASSERT_TRUE(output->commit().has_value());
  EXPECT_EQ(mode_of(directory.file("new")), 0644);
}

TEST(OutputFile, writes_through_a_symbolic_link) {
  const TemporaryDirectory directory;
  const std::string target = directory.write("target", "old\n");
  std::filesystem::create_symlink(target, directory.file("link"));
  auto output = OutputFile::create(directory.file("link"));
  ASSERT_TRUE(output.has_value());
  output->write("new\n");
  ASSERT_TRUE(output->commit().has_value());
  EXPECT_TRUE(std::filesystem::is_symlink(directory.file("link")));
  EXPECT_EQ(read_file(target), "new\n");
}

TEST(OutputFile, a_device_is_written_and_stays_one) {
  auto output = OutputFile::create("/dev/null");
  ASSERT_TRUE(output.has_value());
  output->write("text");
  EXPECT_TRUE(output->commit().has_value());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST(OutputFile, a_path_that_cannot_be_written_is_found_at_once) {
  const TemporaryDirectory directory;
  const auto missing = OutputFile::create(directory.file("no/such/place"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error(), HasSubstr("no/such/place: No such file or directory"));
  EXPECT_THAT(missing.error(), HasSubstr("cannot write"));
  const auto a_directory = OutputFile::create(directory.file(""));
  ASSERT_FALSE(a_directory.has_value());
  EXPECT_THAT(a_directory.error(), HasSubstr("Is a directory"));
  EXPECT_FALSE(OutputFile::create("").has_value());
}

TEST(OutputFile, a_read_only_file_is_refused) {
  const TemporaryDirectory directory;
  const std::string path = directory.write("old", "old\n");
  ASSERT_EQ(::chmod(directory.file("").c_str(), 0777), 0);
  ASSERT_EQ(::chmod(path.c_str(), 0444), 0);
  // Root may write everything: be somebody else for a moment.
  constexpr uid_t somebody = 65534;
  const uid_t before = ::geteuid();
  if (before == 0) {
    ASSERT_EQ(::seteuid(somebody), 0);
  }
  const auto refused = OutputFile::create(path);
  if (before == 0) {
    ASSERT_EQ(::seteuid(before), 0);
  }
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error(), HasSubstr("Permission denied"));
  EXPECT_EQ(read_file(path), "old\n");
}

TEST(OutputFile, a_full_device_shows_in_commit) {
  auto output = OutputFile::create("/dev/full");
  ASSERT_TRUE(output.has_value());
  output->write("text");
  const auto done = output->commit();
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error(), "cannot write /dev/full: No space left on device");
}

TEST(OutputFile, can_be_moved) {
  const TemporaryDirectory directory;
  auto output = OutputFile::create(directory.file("report"));
  ASSERT_TRUE(output.has_value());
  OutputFile moved = std::move(*output);
  moved.write("x");
  ASSERT_TRUE(moved.commit().has_value());
  EXPECT_EQ(read_file(directory.file("report")), "x");
}

}  // namespace
}  // namespace vpmu::cli
