// Platforms as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "lab/platform_file.hpp"

namespace vpmu::lab {
namespace {

using model::Basis;
using testing::HasSubstr;

std::string refusal(const std::string& text) {
  const auto platform = parse_platform(text);
  return platform ? "accepted" : platform.error();
}

TEST(PlatformFile, every_platform_comes_back_as_it_was_written) {
  for (const model::Platform& platform : model::platforms()) {
    const std::string text = platform_json(platform);
    const auto again = parse_platform(text);
    ASSERT_TRUE(again) << again.error();
    EXPECT_EQ(platform_json(*again), text);
  }
}

TEST(PlatformFile, takes_numbers_alone_and_leaves_the_rest_generic) {
  const auto platform =
      parse_platform(R"({"name": "mine", "vendor": "amd", "figures": {"exit_cycles": 1200, "signal_ns":
                         {"value": 9000, "lo": 5000, "hi": 20000, "basis": "measured", "source": "bench"}}})");
  ASSERT_TRUE(platform) << platform.error();
  EXPECT_EQ(platform->vendor, Vendor::amd);
  EXPECT_EQ(platform->title, "mine");
  EXPECT_EQ(platform->exit_cycles.value, 1200);
  EXPECT_EQ(platform->signal_ns.hi, 20000);
  EXPECT_EQ(platform->signal_ns.basis, Basis::measured);
  EXPECT_EQ(platform->open_ns.value, model::platforms().front().open_ns.value);
}

TEST(PlatformFile, says_in_one_line_what_is_wrong) {
  EXPECT_EQ(refusal("{"), "not JSON");
  EXPECT_EQ(refusal("[]"), "a platform is a JSON object");
  EXPECT_EQ(refusal("{}"), "a platform needs a name");
  EXPECT_THAT(refusal(R"({"name": "a", "cores": 4})"), HasSubstr("unknown key cores"));
  EXPECT_EQ(refusal(R"({"name": 4})"), "name must be a text");
  EXPECT_EQ(refusal(R"({"name": "a", "vendor": "via"})"), "vendor is intel or amd");
  EXPECT_EQ(refusal(R"({"name": "a", "figures": 1})"), "figures must be an object");
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"exits": 1}})"),
              HasSubstr("unknown figure exits; figures: core_mhz"));
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"open_ns": "5"}})"), HasSubstr("a number or an object"));
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"open_ns": {"lo": 5}}})"), HasSubstr("needs a value"));
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"open_ns": {"value": 5, "hi": "9"}}})"), HasSubstr("hi of figure"));
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"open_ns": {"value": 5, "basis": "guess"}}})"), HasSubstr("basis"));
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"open_ns": -5}})"), HasSubstr("open_ns is negative"));
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"open_ns": {"value": 5, "lo": 6, "hi": 7}}})"),
              HasSubstr("outside of its range"));
  EXPECT_THAT(refusal(R"({"name": "a", "figures": {"core_mhz": 0}})"), HasSubstr("from 100 to 10,000"));
}

}  // namespace
}  // namespace vpmu::lab
