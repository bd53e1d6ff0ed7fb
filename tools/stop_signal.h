#pragma once

#include <functional>

namespace shardplan {

/// From now on SIGTERM does not end this process; returns what says whether it came.
std::function<bool()> stop_on_sigterm();

}  // namespace shardplan
