#pragma once

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// Plans every preset with every strategy on 8 GPUs and holds arena / live bound against 1.02.
/// Returns the exit status: 0, or 1 when a plan passes the bar or is not right.
int arena(Scorecard::Form form);

}  // namespace shardplan::oracle
