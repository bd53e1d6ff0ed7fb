#pragma once

#include <string>
#include <vector>

#include "plans/plan.h"
#include "plans/report.h"
#include "tests/oracle/execution.h"
#include "tests/oracle/numerics_case.h"
#include "tests/oracle/scorecard.h"

namespace shardplan::oracle {

/// What one run left behind.
struct Training {
  Report report;
  TensorsByName weights;  // after the last step
};

/// Loss and gradient norm of every step, and the final weights, against PyTorch's.
std::vector<Check> against_pytorch(const NumericsCase& one, const Training& got);

/// `gradient`: of the first step, averaged over ranks, before clipping.
std::vector<Check> gradient_against_pytorch(const NumericsCase& one, const TensorsByName& gradient);

/// Values that differ in any bit between two runs, of which there must be none.
Check same_bits(const std::string& what, const Training& a, const Training& b);

/// Bytes by which measured memory misses what was planned and predicted, on any rank: none may.
std::vector<Check> memory_as_predicted(const Plan& plan, const Report& predicted,
                                       const Report& measured);

}  // namespace shardplan::oracle
