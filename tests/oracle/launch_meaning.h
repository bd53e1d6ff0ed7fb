#pragma once

#include <set>
#include <string>
#include <string_view>

namespace shardplan::oracle {

/// What two sentences must share to mean the same, as words in one spelling: dtypes ("bf16"),
/// numbers ("200000000"), names of keys, values and classes ("full_shard", "gpt2block"), and ideas
/// that go by several words ("off", "every-rank", "no-equivalent").
std::set<std::string> concepts_of(std::string_view text);

/// Concepts of `expected` that `said` lacks.
std::set<std::string> missing_concepts(std::string_view expected, std::string_view said);

/// The first name of an FSDP strategy in the text, "" when there is none; DDP counts as NO_SHARD.
std::string first_strategy_in(std::string_view text);

/// Whether `said` means what `expected` does: it has its concepts and names no other dtype, value
/// or class; of a text without any concept, the words must be there.
bool means_the_same(std::string_view expected, std::string_view said);

}  // namespace shardplan::oracle
