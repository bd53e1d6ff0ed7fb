#pragma once

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Removes every wait of ten plans of real models, one at a time, and counts those that verify()
/// does not miss. Returns the exit status: 0, or 1 when there are any.
int waits(Scorecard::Form form);

}  // namespace shardplan::oracle
