#pragma once

#include <string>

#include "plans/plan.h"

namespace shardplan::testing {

/// What may vary in the plan below.
struct TwoUnits {
  int world = 1;
  bool sharded = false;  // over all ranks; else every rank holds all parameters
  int steps = 3;
  std::string tokens;  // file of uint16 tokens
  std::string output;  // folder
};

constexpr int kTwoUnitsVocab = 13;
constexpr int kTwoUnitsChannels = 5;

/// A plan written by hand: an embedding and a linear head (two units), cross entropy, SGD with
/// momentum. Sharded plans gather each unit on the `ag` stream and scatter its gradient on `rs`;
/// the others reduce the gradient in place on `ar`. The issuing thread waits for each step's end.
Plan two_unit_plan(const TwoUnits& options);

/// The instruction of that name.
InstructionId find(const Plan& plan, const std::string& name);

}  // namespace shardplan::testing
