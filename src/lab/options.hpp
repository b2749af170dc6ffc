// Profiles and policies as text: what --profile and --policy take.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "vpmu/policy.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

/// NAME[,KEY=VALUE...]: a named profile and what to change in it; or, in one line, what is wrong and what to write.
std::expected<Profile, std::string> parse_profile(std::string_view text);

/// PRESET[,KEY=VALUE...]: a named policy and what to change in it; or, in one line, what is wrong and what to write.
std::expected<Policy, std::string> parse_policy(std::string_view text);

/// Whether a profile, or a policy, has that key.
bool is_profile_key(std::string_view key);
bool is_policy_key(std::string_view key);

/// Changes a profile, or a policy, as "KEY=VALUE[,KEY=VALUE...]" says; or, in one line, what is wrong.
std::expected<void, std::string> change_profile(Profile& profile, std::string_view settings);
std::expected<void, std::string> change_policy(Policy& policy, std::string_view settings);

/// Every key of a policy, as parse_policy() takes them: "events=keep,reload=direct,...".
std::string to_text(const Policy& policy);

/// "NAME, NAME, ...", for messages and help.
std::string profile_names();
std::string profile_keys();
std::string policy_names();
std::string policy_keys();

}  // namespace vpmu::lab
