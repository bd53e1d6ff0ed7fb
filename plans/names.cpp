#include "plans/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>

#include "plans/nearest.h"

namespace shardplan {
namespace {

/// Bytes; a longer text is no name.
constexpr std::size_t kLongestName = 128;

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

enum class CharacterKind { Separator, Letter, Digit };
CharacterKind kind_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (std::isdigit(byte)) return CharacterKind::Digit;
  return std::isalpha(byte) || byte >= 0x80 ? CharacterKind::Letter : CharacterKind::Separator;
}

/// Runs of letters and runs of digits, in order, without those that do not count. A point between
/// digits belongs to the number ("3.2"); all else separates.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words;
  auto last = CharacterKind::Separator;
  const std::string text = lower(name);
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto kind = kind_of(text[i]);
    const bool point = text[i] == '.' && last == CharacterKind::Digit && i + 1 < text.size() &&
                       kind_of(text[i + 1]) == CharacterKind::Digit;
    if (point) kind = CharacterKind::Digit;
    if (kind != CharacterKind::Separator) {
      if (kind != last) words.emplace_back();
      words.back() += text[i];
    }
    last = kind;
  }
  std::vector<std::string> counted;
  for (const std::string& word : words) {
    // "gb" is a unit after a number only: GB200 is the name of a GPU.
    const bool unit =
        word == "gb" && !counted.empty() && kind_of(counted.back()[0]) == CharacterKind::Digit;
    if (!unit && word != "nvidia" && word != "geforce") counted.push_back(word);
  }
  return counted;
}

std::string joined(const std::vector<std::string>& words) {
  return std::accumulate(words.begin(), words.end(), std::string{});
}

/// True when `all` holds every word of `some`, as often.
bool holds_words(const std::vector<std::string>& all, const std::vector<std::string>& some) {
  return std::ranges::all_of(some, [&](const std::string& word) {
    return std::ranges::count(all, word) >= std::ranges::count(some, word);
  });
}

std::vector<std::string> keys_of(std::span<const Spellings> catalogue) {
  std::vector<std::string> keys;
  for (const Spellings& entry : catalogue)
    keys.push_back(entry.front());
  return keys;
}

/// Indices of the entries of which some spelling satisfies `matches(words of the spelling)`.
template <typename Predicate>
std::vector<std::size_t> entries_where(std::span<const Spellings> catalogue, Predicate matches) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < catalogue.size(); ++i) {
    const auto fits = [&](const std::string& spelling) { return matches(words_of(spelling)); };
    if (std::ranges::any_of(catalogue[i], fits)) found.push_back(i);
  }
  return found;
}

}  // namespace

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kLongestName) return {};
  std::string nearest;
  // Half of the letters may be wrong; full_shard must still find FULL_SHARD, hence no case.
  std::size_t smallest = std::max<std::size_t>(1, word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t distance = edit_distance(lower(word), lower(candidate));
    if (distance >= smallest) continue;
    smallest = distance;
    nearest = candidate;
  }
  return nearest;
}

std::string unknown_name(std::string_view what, std::string_view word,
                         std::span<const std::string> known) {
  const std::string nearest = nearest_name(word, known);
  const std::string question = nearest.empty() ? "" : fmt::format(" did you mean '{}'?", nearest);
  return fmt::format("unknown {} '{}';{} known: {}", what, word.substr(0, kLongestName), question,
                     fmt::join(known, ", "));
}

std::size_t match_catalogue(std::string_view what, std::string_view wanted,
                            std::span<const Spellings> catalogue) {
  const std::vector<std::string> keys = keys_of(catalogue);
  if (wanted.size() > kLongestName) throw InputError(unknown_name(what, wanted, keys));
  const std::vector<std::string> words = words_of(wanted);
  auto found =
      entries_where(catalogue, [&](const auto& other) { return joined(other) == joined(words); });
  if (found.empty() && !words.empty())
    found = entries_where(catalogue, [&](const auto& other) { return holds_words(other, words); });
  if (found.size() == 1) return found.front();
  if (found.empty()) throw InputError(unknown_name(what, wanted, keys));
  std::vector<std::string> candidates;
  for (const std::size_t index : found)
    candidates.push_back(keys[index]);
  throw InputError(fmt::format("'{}' could be any {} of: {}; give one of these names", wanted, what,
                               fmt::join(candidates, ", ")));
}

}  // namespace shardplan
