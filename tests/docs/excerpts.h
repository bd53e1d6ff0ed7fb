#pragma once

#include <map>
#include <string>

#include "planner/passes/autograd.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan::docs {

/// What the passes of the planner make of a job, one after the other.
struct Passes {
  ModelGraph graph;
  Tape tape;
  Plan plan;
};

/// Runs them. Throws InputError for a job that cannot be planned.
Passes run_passes(const Job& job);

/// What the documentation shows of them: lines of text by the name of the excerpt.
std::map<std::string, std::string> excerpts(const Passes& passes);

}  // namespace shardplan::docs
