#pragma once

#include <string>

#include "tools/search.h"

namespace shardplan {

/// What was searched, the best candidates as a table, why the first of them wins, and what was left
/// out on what grounds.
std::string search_text(const SearchResult& result, const SearchQuestion& question);

/// The flags that ask other commands for that candidate's job.
std::string flags_of(const Job& job);

}  // namespace shardplan
