#include "tests/oracle/launch_meaning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <utility>
#include <vector>

namespace shardplan::oracle {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

/// Ideas that go by several words; looked for in lower case, and taken out of the text.
constexpr std::array<std::pair<std::string_view, std::string_view>, 37> kPhrases{{
    {"rank 0", "rank-0"},
    {"rank0", "rank-0"},
    {"every rank", "every-rank"},
    {"each rank", "every-rank"},
    {"all ranks", "every-rank"},
    {"every process", "every-rank"},
    {"each process", "every-rank"},
    {"no exact", "no-equivalent"},
    {"no fsdp", "no-equivalent"},
    {"no equivalent", "no-equivalent"},
    {"nearest", "nearest"},
    {"closest", "nearest"},
    {"one root unit", "whole-model"},
    {"one unit", "whole-model"},
    {"single unit", "whole-model"},
    {"no wrapping", "whole-model"},
    {"no_wrap", "whole-model"},
    {"whole model", "whole-model"},
    {"16-bit", "16-bit"},
    {"16 bits", "16-bit"},
    {"8-bit", "8-bit"},
    {"size", "by-size"},
    {"broadcast", "broadcast"},
    {"meta", "meta"},
    {"trainable", "trained"},
    {"trained", "trained"},
    {"all weights", "all-weights"},
    {"all parameters", "all-weights"},
    {"implicit", "implicit"},
    {"trainer", "trainer"},
    {"loss scal", "loss-scaling"},
    {"autocast", "autocast"},
    {"as loaded", "as-loaded"},
    {"host", "host"},
    {"cpu", "host"},
    {"nvme", "nvme"},
    {"ignored", "ignored"},
}};

/// Words in capitals or mixed case that name no key, value or class.
bool is_common_name(const std::string& word) {
  constexpr std::array kWords{"fsdp", "fsdp1", "fsdp2",   "zero",      "gpu",   "gpus", "json",
                              "yaml", "hf",    "pytorch", "deepspeed", "adamw", "adam", "hpz"};
  return std::ranges::find(kWords, word) != kWords.end();
}

std::string dtype_word(const std::string& word) {
  if (word == "bfloat16" || word == "bf16") return "bf16";
  if (word == "float16" || word == "fp16" || word == "half") return "fp16";
  if (word == "float32" || word == "fp32") return "fp32";
  if (word == "fp8" || word == "float8") return "fp8";
  return "";
}

bool is_off(const std::string& word) {
  constexpr std::array kWords{"off", "none", "disabled", "false", "null", "no_prefetch"};
  return std::ranges::find(kWords, word) != kWords.end();
}

/// A key, a value or a class: with an underscore, in capitals, or in mixed case.
bool is_name(std::string_view word) {
  const auto is_upper = [](unsigned char c) { return std::isupper(c) != 0; };
  const auto is_lower = [](unsigned char c) { return std::islower(c) != 0; };
  const auto capitals = std::ranges::count_if(word, is_upper);
  const bool mixed = std::ranges::any_of(word, is_lower) && word.size() > 3 &&
                     std::ranges::any_of(word.substr(1), is_upper);
  return word.find('_') != word.npos || mixed ||
         (capitals >= 3 && std::ranges::none_of(word, is_lower));
}

/// "2e8" and "200,000,000" are one number.
std::string number_word(const std::string& word) {
  char* end = nullptr;
  const double number = std::strtod(word.c_str(), &end);
  return *end == '\0' ? fmt::format("{}", number) : "";
}

void add_word(std::string_view word, std::set<std::string>& concepts) {
  while (!word.empty() && (word.front() == '_' || word.front() == '.'))
    word.remove_prefix(1);
  while (!word.empty() && (word.back() == '.' || word.back() == '_'))
    word.remove_suffix(1);
  if (word.empty()) return;
  const std::string plain = lower(word);
  if (const std::string dtype = dtype_word(plain); !dtype.empty()) {
    concepts.insert(dtype);
  } else if (is_off(plain)) {
    concepts.insert("off");
  } else if (std::isdigit(static_cast<unsigned char>(word.front()))) {
    if (const std::string number = number_word(plain); !number.empty()) concepts.insert(number);
  } else if (is_name(word) && !is_common_name(plain)) {
    // "zero_optimization.stage" is two names: the section may be left out.
    concepts.insert(plain.substr(plain.rfind('.') + 1));
  }
}

/// Takes the phrases out of the text and adds what they stand for.
std::string without_phrases(std::string text, std::set<std::string>& concepts) {
  std::string plain = lower(text);
  for (const auto& [phrase, idea] : kPhrases)
    for (auto at = plain.find(phrase); at != plain.npos; at = plain.find(phrase, at + 1)) {
      const auto in_word = [&](std::size_t i) {
        const auto c = static_cast<unsigned char>(plain[i]);
        return std::isalnum(c) || c == '_';
      };
      const auto end = at + phrase.size();
      // A phrase inside a longer name ("fsdp_min_num_params") is no phrase; endings may follow.
      if ((at > 0 && in_word(at - 1)) || (end < plain.size() && plain[end] == '_')) continue;
      concepts.emplace(idea);
      text.replace(at, phrase.size(), phrase.size(), ' ');
      plain.replace(at, phrase.size(), phrase.size(), ' ');
    }
  return text;
}

/// Concepts of which another one contradicts: dtypes, values of an enumeration, classes. Keys do
/// not: a sentence may name more of them.
bool is_strong(const std::string& word) {
  if (!dtype_word(word).empty() || word.ends_with("_state_dict") || word.starts_with("backward_p"))
    return true;
  const bool is_idea = word == "off" || std::ranges::any_of(kPhrases, [&](const auto& phrase) {
                         return phrase.second == word;
                       });
  return !is_idea && std::isalpha(static_cast<unsigned char>(word.front())) &&
         word.find('_') == word.npos;
}

/// Words of at least four letters, by their first five: "parameters" and "params" are one.
std::set<std::string> stems_of(std::string_view text) {
  std::set<std::string> stems;
  std::string word;
  for (const char c : lower(text) + " ") {
    if (std::isalpha(static_cast<unsigned char>(c))) {
      word += c;
      continue;
    }
    if (word.size() >= 4) stems.insert(word.substr(0, 5));
    word.clear();
  }
  return stems;
}

}  // namespace

std::set<std::string> concepts_of(std::string_view text) {
  std::set<std::string> concepts;
  const std::string rest = without_phrases(std::string(text), concepts);
  std::string word;
  for (std::size_t i = 0; i <= rest.size(); ++i) {
    const char c = i < rest.size() ? rest[i] : ' ';
    const bool separates_thousands = c == ',' && !word.empty() && i + 3 < rest.size() &&
                                     std::isdigit(static_cast<unsigned char>(word.back())) &&
                                     std::isdigit(static_cast<unsigned char>(rest[i + 1])) &&
                                     std::isdigit(static_cast<unsigned char>(rest[i + 3]));
    if (separates_thousands) continue;
    const bool exponent_sign = (c == '+' || c == '-') && word.ends_with('e') &&
                               std::isdigit(static_cast<unsigned char>(word.front()));
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || exponent_sign) {
      word += c;
      continue;
    }
    add_word(word, concepts);
    word.clear();
  }
  return concepts;
}

std::set<std::string> missing_concepts(std::string_view expected, std::string_view said) {
  const auto wanted = concepts_of(expected);
  const auto there = concepts_of(said);
  std::set<std::string> missing;
  std::ranges::set_difference(wanted, there, std::inserter(missing, missing.end()));
  return missing;
}

std::string first_strategy_in(std::string_view text) {
  constexpr std::array<std::string_view, 6> kNames{
      "HYBRID_SHARD_ZERO2", "HYBRID_SHARD", "FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "DDP"};
  std::string_view first;
  auto at = text.npos;
  for (const std::string_view name : kNames)
    if (const auto found = text.find(name); found < at) {
      at = found;
      first = name;
    }
  return std::string(first == "DDP" ? "NO_SHARD" : first);  // one strategy under two names
}

bool means_the_same(std::string_view expected, std::string_view said) {
  const auto wanted = concepts_of(expected);
  if (wanted.empty()) {
    const auto stems = stems_of(expected);
    return !stems.empty() && std::ranges::includes(stems_of(said), stems);
  }
  const auto there = concepts_of(said);
  if (!std::ranges::includes(there, wanted)) return false;
  // What the trainer decides has several dtypes, of which a sentence may name one.
  const bool exclusive = std::ranges::any_of(wanted, is_strong) && !there.contains("trainer");
  return !exclusive || std::ranges::all_of(there, [&](const std::string& word) {
    return !is_strong(word) || wanted.contains(word);
  });
}

}  // namespace shardplan::oracle
