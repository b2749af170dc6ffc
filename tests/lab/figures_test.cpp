// What the experiments read from guests, and what they make of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string_view>
#include <utility>

#include "lab/experiments/guest_pool.hpp"
#include "lab/experiments/kvm_guest.hpp"
#include "lab/experiments/section_report.hpp"
#include "lab/experiments/throttling.hpp"

namespace vpmu::lab {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

TEST(FigureLines, are_found_with_their_prefix_among_other_lines) {
  const auto lines = figure_lines(
      "tick: intel\nfigure tick count=3 mean=12 p99.9=40 unit=tsc\nno figures here\ntogether, global: figure handler "
      "mean=7\nfigure last a=1");
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_EQ(lines[0].name, "tick");
  EXPECT_EQ(lines[0].number("p99.9"), 40);
  EXPECT_EQ(lines[0].text("unit"), "tsc");
  EXPECT_EQ(lines[1].prefix, "together, global: ");
  EXPECT_EQ(lines[1].number("mean"), 7);
  EXPECT_EQ(lines[2].number("a"), 1);
}

TEST(FigureLines, that_lack_a_key_or_hold_no_number_are_errors) {
  const auto lines = figure_lines("figure tick mean= unit=tsc bare\n");
  ASSERT_THAT(lines, SizeIs(1));
  EXPECT_THROW(static_cast<void>(lines[0].number("mean")), LabError);
  EXPECT_THROW(static_cast<void>(lines[0].number("unit")), LabError);
  EXPECT_THROW(static_cast<void>(lines[0].number("p50")), LabError);
  const GuestFigures figures{.result = {}, .lines = lines};
  EXPECT_THROW(static_cast<void>(figures.line("tock")), LabError);
}

TEST(SamplingThrottle, leaves_what_linux_leaves) {
  constexpr std::uint64_t many = 10'000;
  EXPECT_EQ(rate_after(many, 4'500'000), 250);
  // A quarter of a tick holds 88 samples of 1.25 x 9 us, and 111 without that reserve.
  EXPECT_GE(rate_after(many, 9'000), 22'000);
  EXPECT_LE(rate_after(many, 9'000), 27'750);
  EXPECT_EQ(rate_after(many, 2'500), 100'000);
}

TEST(SamplingThrottle, takes_some_42_pmis_of_9_us_to_notice) {
  EXPECT_EQ(rate_after(40, 9'000), 100'000);
  EXPECT_LT(rate_after(44, 9'000), 100'000);
}

TEST(SamplingThrottle, never_forbids_sampling) { EXPECT_EQ(rate_after(1000, 1'000'000'000), 250); }

TEST(Numbers, have_commas_between_thousands) {
  EXPECT_EQ(with_commas(0, 0), "0");
  EXPECT_EQ(with_commas(999, 0), "999");
  EXPECT_EQ(with_commas(1000, 0), "1,000");
  EXPECT_EQ(with_commas(-1234567.891, 1), "-1,234,567.9");
  EXPECT_EQ(with_commas(-0.001, 1), "0.0");
}

TEST(Cells, that_are_missing_give_no_figure) {
  EXPECT_TRUE(percent_off(Cell{}, Cell{2.0}).empty());
  EXPECT_TRUE(percent_off(Cell{2.0}, Cell{"not permitted"}).empty());
  EXPECT_TRUE(times_less(Cell{2.0}, Cell{0.0}).empty());
  EXPECT_EQ(percent_off(Cell{3.0}, Cell{2.0}).number, 50.0);
  EXPECT_EQ(times_less(Cell{3.0}, Cell{2.0}).number, 1.5);
}

Section small() {
  return {.key = "s",
          .title = "Small",
          .summary = "A section.",
          .tables = {{.key = "t",
                      .title = "Times",
                      .columns = {{"policy", "policy"},
                                  {"ns", "ns", Origin::modelled},
                                  {"here_ns", "ns", Origin::measured, 1},
                                  {"told_ns", "ns", Origin::published}},
                      .rows = {{"before", 1234.0, "no perf here", 5000.0}, {"after", 12.0, {}, {}}}}},
          .charts = {},
          .notes = {"A note."}};
}

TEST(SectionText, says_above_each_figure_where_it_comes_from) {
  EXPECT_EQ(section_text(small(), Colour::no),
            "== s: Small\n"
            "A section.\n"
            "\n"
            "Times\n"
            "        modelled  measured ---  published\n"
            "policy        ns            ns         ns\n"
            "before     1,234  no perf here      5,000\n"
            "after         12\n"
            "\n"
            "- A note.\n"
            "\n");
}

TEST(SectionText, has_colours_only_if_asked) {
  EXPECT_THAT(section_text(small(), Colour::yes), HasSubstr("\x1b["));
  EXPECT_THAT(section_text(small(), Colour::no), testing::Not(HasSubstr("\x1b")));
}

TEST(SectionJson, keeps_the_origins_apart) {
  const std::string json = sections_json(std::vector{small()});
  EXPECT_THAT(json, testing::ContainsRegex("\"modelled\": \\{\n *\"ns\": 1234.0\n"));
  EXPECT_THAT(json, HasSubstr("\"here_ns\": \"no perf here\""));
}

Table with_kvm(Cell first, Cell second) {
  return {.key = "t",
          .title = "T",
          .columns = {{"name", "name"}, {"kvm", "kvm"}, {"gain", "gain"}, {"last", "last"}},
          .rows = {{"before", std::move(first), Cell{}, 1.0}, {"after", std::move(second), Cell{}, 2.0}}};
}
constexpr std::array<std::string_view, 2> kvm_columns{"kvm", "gain"};

TEST(Columns, without_a_number_are_dropped_and_say_why) {
  Table table = with_kvm({}, "no kvm here");
  EXPECT_EQ(drop_if_empty(table, kvm_columns), "no kvm here");
  ASSERT_THAT(table.columns, SizeIs(2));
  EXPECT_EQ(table.columns[1].key, "last");
  ASSERT_THAT(table.rows[1], SizeIs(2));
  EXPECT_EQ(table.rows[1][1].number, 2.0);
}

TEST(Columns, with_one_number_all_stay) {
  Table table = with_kvm("no kvm here", 7.0);
  EXPECT_EQ(drop_if_empty(table, kvm_columns), "");
  EXPECT_THAT(table.columns, SizeIs(4));
  EXPECT_THAT(table.rows[0], SizeIs(4));
}

TEST(OnKvm, a_figure_that_the_host_cannot_count_says_so) {
  const KvmReading reading{"exit", {}, kvm_exit_ns};
  KvmFigures figures{.lines = figure_lines("figure exits elapsed=100 count=10\n")};
  EXPECT_GT(reading.of(figures).value(), 0);
  figures.lines.clear();
  EXPECT_EQ(reading.of(figures).error(), "the host clock counts cycles alone");
  figures.host = kvm::HostKind::perf;
  EXPECT_THAT(reading.of(figures).error(), HasSubstr("no figure exits"));
}

}  // namespace
}  // namespace vpmu::lab
