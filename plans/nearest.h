#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace shardplan {

/// Changes (insert, drop or replace a character) that turn `a` into `b`; only the first 64
/// characters of either count, so that a hostile name costs little.
std::size_t edit_distance(std::string_view a, std::string_view b);

/// The candidate with the least edit distance to `word`, the first of equals; "" when there is
/// none.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace shardplan
