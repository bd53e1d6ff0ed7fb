#pragma once

#include <optional>
#include <string>

namespace shardplan {

/// The number that the whole text is; nothing when it is none.
std::optional<double> number_from(const std::string& text);

/// The number greater than 0 that an option gives; nothing for an empty one. Throws InputError that
/// begins with `where`.
std::optional<double> amount_of(const std::string& where, const std::string& text);

}  // namespace shardplan
