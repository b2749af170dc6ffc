// Event filters as JSON files.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "vpmu/event_filter.hpp"
#include "vpmu/profile.hpp"

namespace vpmu::lab {

/// Loads
///   {"action": "allow" | "deny", "fixed": [0, 1], "events": ["0x00c0", "INSTRUCTION_RETIRED", {"select": "0xc0",
///    "mask": "0xff", "match": "0x00", "exclude": false}]}
/// An event is its code (event select in bits 7:0 and 35:32, unit mask in bits 15:8), a name that libpfm4 knows, or a
/// masked entry; `fixed` and `events` may be absent, of a masked entry all but `select`. Errors are one line that names
/// the entry.
std::expected<EventFilter, std::string> parse_filter(Vendor vendor, std::string_view text);

}  // namespace vpmu::lab
