#pragma once

#include <optional>

#include "plans/units.h"

namespace shardplan {

/// Resident set of this process, which all its ranks share; nothing where the system does not tell.
std::optional<Bytes> resident_set_bytes();

/// What this machine could still give without swapping; nothing where the system does not tell.
std::optional<Bytes> available_memory_bytes();

}  // namespace shardplan
