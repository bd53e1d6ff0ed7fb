#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace shardplan {

/// Texts between all ranks, on the host stream. All ranks call them in the same order. Throw
/// SystemError as the communicator does.
std::string broadcast_text(Communicator& communicator, std::string text_of_rank_0);
/// By rank, on every rank.
std::vector<std::string> gather_texts(Communicator& communicator, const std::string& own);
/// Returns once all ranks have come this far.
void barrier(Communicator& communicator);

}  // namespace shardplan
