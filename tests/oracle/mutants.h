#pragma once

#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

struct MutantsOptions {
  Scorecard::Form form = Scorecard::Form::Text;
  int every = 1;  // only every so manieth mutant
};

/// Changes real plans of tiny models in every way of for_each_mutant(), and prints for each kind of
/// change how many verify() finds a fault in, and how many of the others are harmless: trained on
/// CPU ranks they give the same bits as the unchanged plan. Returns the exit status: 0, or 1 when a
/// mutant is neither.
int mutants(const MutantsOptions& options);

}  // namespace shardplan::oracle
