#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/error.h"

namespace shardplan {

/// "unknown strategy 'DPP'; did you mean 'DDP'? known: DDP, NO_SHARD" (asks when one is near).
std::string unknown_name(std::string_view what, std::string_view word,
                         std::span<const std::string> known);

/// The candidate nearest to `word`; empty when none is near enough to be a slip of the pen.
std::string nearest_name(std::string_view word, std::span<const std::string> candidates);

/// An entry of a catalogue: its key first, then every other spelling it answers to.
using Spellings = std::vector<std::string>;

/// Index of the entry that a user means by `wanted`. Only words count, which are runs of letters or
/// of digits: not case, spaces, '-', '_' or '/', nor "nvidia", "geforce" and "gb" after a number.
/// A spelling that is equal then wins; else the one entry that has all words of `wanted` in one of
/// its spellings. Throws InputError with the candidates when several match, with the nearest when
/// none does.
std::size_t match_catalogue(std::string_view what, std::string_view wanted,
                            std::span<const Spellings> catalogue);

/// One row of an enumeration's table of names.
template <typename Enum>
struct EnumName {
  Enum value;
  std::string_view text;
};
// clang 14 does not deduce the arguments of aggregates by itself.
template <typename Enum>
EnumName(Enum, const char*) -> EnumName<Enum>;

template <typename Enum, std::size_t N>
std::string_view name_of(const std::array<EnumName<Enum>, N>& names, Enum value) {
  for (const auto& name : names)
    if (name.value == value) return name.text;
  check(false, "every enumerator has a name");
  return "";
}

/// The enumerator called `text`. Throws InputError with the nearest name and all known ones.
template <typename Enum, std::size_t N>
Enum value_of(const std::array<EnumName<Enum>, N>& names, std::string_view text,
              std::string_view what) {
  std::vector<std::string> known;
  for (const auto& name : names) {
    if (name.text == text) return name.value;
    known.emplace_back(name.text);
  }
  throw InputError(unknown_name(what, text, known));
}

}  // namespace shardplan
