#pragma once

#include <functional>
#include <string>

#include "plans/plan.h"

namespace shardplan::oracle {

/// A plan with one thing changed.
struct Mutant {
  std::string kind;  // "dropped", "operands swapped", ...
  std::string what;  // the name of the instruction or buffer that was changed
  Plan plan;
};

/// Calls visit(mutant) for every mutant of the plan: each instruction dropped, duplicated, put
/// behind the next one, moved to two other streams; each operand and each buffer resized; each wait
/// removed; each two operands of an instruction that are alike swapped, and with those of the next
/// instruction.
void for_each_mutant(const Plan& plan, const std::function<void(const Mutant&)>& visit);

}  // namespace shardplan::oracle
