#include "lab/input_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lzma.h>

#include <string>
#include <vector>

#include "cli/run_command.hpp"

namespace vpmu::lab {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using Next = InputFile::Next;

std::string xz(const std::string& text) {
  std::string packed(lzma_stream_buffer_bound(text.size()), '\0');
  std::size_t size = 0;
  EXPECT_EQ(lzma_easy_buffer_encode(1, LZMA_CHECK_CRC32, nullptr, reinterpret_cast<const std::uint8_t*>(text.data()),
                                    text.size(), reinterpret_cast<std::uint8_t*>(packed.data()), &size, packed.size()),
            LZMA_OK);
  packed.resize(size);
  return packed;
}

struct Lines {
  std::vector<std::string> lines;
  Next end = Next::end;
  std::uint64_t number = 0;
  bool complete = true;
  std::string error;
};

Lines read_all(const std::string& path, std::size_t max_line = InputFile::default_max_line) {
  auto input = InputFile::open(path, max_line);
  EXPECT_TRUE(input.has_value()) << input.error();
  Lines read;
  std::string_view line;
  while ((read.end = input->next(line)) == Next::line) {
    read.lines.emplace_back(line);
    read.complete = input->line_complete();
  }
  read.number = input->line_number();
  read.error = input->error();
  return read;
}

class InputFiles : public testing::TestWithParam<bool> {
 protected:
  std::string write(const std::string& text) { return directory_.write("input", GetParam() ? xz(text) : text); }
  TemporaryDirectory directory_;
};
INSTANTIATE_TEST_SUITE_P(PlainAndXz, InputFiles, testing::Bool(),
                         [](const auto& param) { return param.param ? "xz" : "plain"; });

TEST_P(InputFiles, give_their_lines) {
  const Lines read = read_all(write("one\n\n two \r\nthree\n"));
  EXPECT_EQ(read.end, Next::end);
  EXPECT_THAT(read.lines, ElementsAre("one", "", " two ", "three"));
  EXPECT_TRUE(read.complete);
  EXPECT_EQ(read.number, 4U);
}

TEST_P(InputFiles, say_when_the_last_line_has_no_end) {
  const Lines read = read_all(write("one\ntwo"));
  EXPECT_THAT(read.lines, ElementsAre("one", "two"));
  EXPECT_FALSE(read.complete);
}

TEST_P(InputFiles, may_be_empty) {
  const Lines read = read_all(write(""));
  EXPECT_EQ(read.end, Next::end);
  EXPECT_TRUE(read.lines.empty());
}

TEST_P(InputFiles, lines_of_all_lengths_around_the_buffers_come_whole) {
  std::string text;
  std::vector<std::string> expected;
  for (std::size_t length = 0; length < 1500; ++length) {
    expected.emplace_back(length, static_cast<char>('a' + length % 26));
    text += expected.back() + '\n';
  }
  EXPECT_EQ(read_all(write(text)).lines, expected);
}

TEST_P(InputFiles, a_line_may_have_the_longest_length_and_no_more) {
  EXPECT_EQ(read_all(write("a\n" + std::string(100, 'x') + "\r\nb\n"), 100).lines.size(), 3U);
  const Lines over = read_all(write("a\n" + std::string(101, 'x') + "\nb\n"), 100);
  EXPECT_EQ(over.end, Next::too_long);
  EXPECT_EQ(over.number, 2U);
  const Lines endless = read_all(write("a\n" + std::string(3'000'000, 'x')));
  EXPECT_EQ(endless.end, Next::too_long);
  EXPECT_EQ(endless.number, 2U);
}

TEST_P(InputFiles, show_their_beginning_without_losing_it) {
  auto input = InputFile::open(write("one\ntwo and more than that\n"));
  ASSERT_TRUE(input);
  EXPECT_EQ(input->peek(), "one\ntwo and more");
  std::string_view line;
  ASSERT_EQ(input->next(line), Next::line);
  EXPECT_EQ(line, "one");
}

TEST(InputFile, several_xz_streams_are_one_text) {
  const TemporaryDirectory directory;
  EXPECT_THAT(read_all(directory.write("input", xz("one\ntw") + xz("o\nthree\n"))).lines,
              ElementsAre("one", "two", "three"));
}

TEST(InputFile, a_cut_or_damaged_xz_file_is_an_error) {
  const TemporaryDirectory directory;
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i * 7919) + '\n';
  const std::string whole = xz(text);
  for (const std::size_t size : {std::size_t{6}, std::size_t{12}, whole.size() / 2, whole.size() - 1}) {
    const Lines read = read_all(directory.write("input", whole.substr(0, size)));
    EXPECT_EQ(read.end, Next::failed) << size;
    EXPECT_THAT(read.error, HasSubstr("cut off")) << size;
  }
  std::string damaged = whole;
  damaged[damaged.size() / 2] = static_cast<char>(damaged[damaged.size() / 2] ^ 0x10);
  EXPECT_EQ(read_all(directory.write("input", damaged)).end, Next::failed);
  EXPECT_EQ(read_all(directory.write("input", whole + "junk")).end, Next::failed);
}

TEST(InputFile, what_cannot_be_opened_or_read_is_named) {
  const auto missing = InputFile::open("/nonexistent/trace");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error(), "/nonexistent/trace: No such file or directory");
  EXPECT_THAT(read_all("/").error, HasSubstr("Is a directory"));
}

}  // namespace
}  // namespace vpmu::lab
