#include "lab/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace vpmu::lab {
namespace {

using testing::HasSubstr;

Policy policy(const std::string& text) {
  const auto parsed = parse_policy(text);
  EXPECT_TRUE(parsed.has_value()) << parsed.error();
  return parsed.value_or(Policy{});
}

Profile profile(const std::string& text) {
  const auto parsed = parse_profile(text);
  EXPECT_TRUE(parsed.has_value()) << parsed.error();
  return parsed.value_or(Profile{});
}

template <class Parsed>
std::string error_of(const Parsed& parsed) {
  return parsed.has_value() ? "no error" : parsed.error();
}

TEST(PolicyText, a_name_is_its_policy) {
  for (const NamedPolicy& named : named_policies()) EXPECT_EQ(policy(named.name), named.policy) << named.name;
}

TEST(PolicyText, keys_change_one_thing_each) {
  Policy expected = find_policy("before-s0")->policy;
  expected.events = Policy::Events::keep;
  EXPECT_EQ(policy("before-s0,events=keep"), expected);
  expected.reload = Policy::Reload::direct;
  expected.release = Policy::Release::slice;
  expected.pause = Policy::Pause::tracked;
  expected.retire = Policy::Retire::cached;
  expected.mode_switch = Policy::Switch::ownership;
  expected.fold = 500;
  EXPECT_EQ(policy("before-s0,events=keep,reload=direct,release=slice,pause=tracked,retire=cached,switch=ownership,"
                   "fold=500"),
            expected);
  EXPECT_EQ(policy("best,fold=each").fold, 0);
  EXPECT_EQ(policy("best,fold=0").fold, 0);
  EXPECT_EQ(policy("before-s0,fold=auto").fold, Policy::fold_auto);
  EXPECT_EQ(policy("best,fold=1,fold=2").fold, 2);
}

TEST(PolicyText, writes_what_it_reads) {
  for (const NamedPolicy& named : named_policies()) {
    EXPECT_EQ(policy("best," + to_text(named.policy)), named.policy) << named.name;
  }
  EXPECT_EQ(to_text(policy("best,fold=12")),
            "events=soft,reload=direct,release=slice,pause=tracked,retire=cached,switch=elide,fold=12");
}

TEST(PolicyText, says_what_is_wrong_and_what_to_write) {
  const std::pair<const char*, const char*> cases[]{
      {"", "unknown policy ''; policies: before-s0"},
      {"worst", "unknown policy 'worst'; policies: before-s0, before-s1"},
      {"best,", "unknown policy key ''; keys: events, reload"},
      {"best,,", "unknown policy key ''"},
      {"best,events", "policy key events takes recreate, keep or soft, not ''"},
      {"best,events=", "policy key events takes recreate, keep or soft, not ''"},
      {"best,event=keep", "unknown policy key 'event'"},
      {"best,events=keep ", "not 'keep '"},
      {"best,fold=-1", "policy key fold takes each, auto or a number of events, not '-1'"},
      {"best,fold=1e3", "not '1e3'"},
      {"best,fold=18446744073709551615", "not '18446744073709551615'"},
      {"best,fold=99999999999999999999", "not '99999999999999999999'"},
      {"events=keep", "unknown policy 'events=keep'"},
      {"be\nst", "unknown policy 'be?st'"},
  };
  for (const auto& [text, expected] : cases) EXPECT_THAT(error_of(parse_policy(text)), HasSubstr(expected)) << text;
}

TEST(ProfileText, a_name_is_its_profile) {
  for (const NamedProfile& named : named_profiles()) EXPECT_EQ(profile(named.name), named.profile) << named.name;
  EXPECT_EQ(profile("none"), profile("intel-none"));
}

TEST(ProfileText, keys_change_one_thing_each) {
  const Profile small = profile("intel-v2,gp=4,fixed=2,width=40");
  EXPECT_EQ(small.gp_counters, 4);
  EXPECT_EQ(small.fixed_mask, 0b11);
  EXPECT_EQ(small.gp_width, 40);
  EXPECT_EQ(small.fixed_width, 40);
  EXPECT_EQ(profile("intel-v2,gp-width=40").fixed_width, 48);
  EXPECT_EQ(profile("intel-v2,fixed-width=40").gp_width, 48);
  EXPECT_EQ(profile("intel-v5,fixed-mask=0x5").fixed_mask, 5);
  EXPECT_EQ(profile("intel-v2,events-unavailable=0x7f").events_unavailable, 0x7F);
  EXPECT_FALSE(profile("intel-v2,full-width-writes=off").full_width_writes());
  EXPECT_TRUE(profile("intel-v2,full-width-writes=off,full-width-writes=on").full_width_writes());
  EXPECT_TRUE(profile("intel-v2,pebs=on").pebs());
  EXPECT_FALSE(profile("intel-v2,pebs=on").pebs_baseline());
  EXPECT_TRUE(profile("intel-v2,pebs=on,pebs-baseline=on").pebs_baseline());
  EXPECT_TRUE(profile("intel-v4,freeze-while-smm=on").freeze_while_smm());
  EXPECT_TRUE(profile("intel-v2,tsx=on").tsx);
  EXPECT_TRUE(profile("intel-v2,ds=on").ds);
  EXPECT_TRUE(profile("amd-v2,nested=on").nested_virtualization);
  EXPECT_EQ(profile("amd-v2,gp=4").gp_counters, 4);
}

TEST(ProfileText, says_what_is_wrong_and_what_to_write) {
  const std::pair<const char*, const char*> cases[]{
      {"", "unknown profile ''; profiles: intel-v1"},
      {"intel-v9", "unknown profile 'intel-v9'; profiles: intel-v1, intel-v2"},
      {"intel-v2,cores=4", "unknown profile key 'cores'; keys: gp, fixed"},
      {"intel-v2,gp", "profile key gp takes the number of general-purpose counters, not ''"},
      {"intel-v2,gp=-1", "not '-1'"},
      {"intel-v2,gp=256", "not '256'"},
      {"intel-v2,gp=17", "a profile with 'gp=17' is not possible: more than 16 general-purpose counters"},
      {"intel-v2,fixed=9", "profile key fixed takes the number of fixed counters, not '9'"},
      {"intel-v2,width=80", "is not possible: general-purpose counters are 32 to 63 bits wide"},
      {"intel-v2,width=4.5", "not '4.5'"},
      {"intel-v2,tsx=yes", "profile key tsx takes on or off, not 'yes'"},
      {"intel-v2,fixed-mask=0x5", "is not possible: fixed counters with gaps need perfmon v5"},
      {"amd-v2,fixed=1", "is not possible: AMD has no fixed counters"},
      {"none,gp=1", "is not possible"},
  };
  for (const auto& [text, expected] : cases) EXPECT_THAT(error_of(parse_profile(text)), HasSubstr(expected)) << text;
}

}  // namespace
}  // namespace vpmu::lab
