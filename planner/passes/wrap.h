#pragma once

#include <span>
#include <string>
#include <vector>

#include "planner/passes/autograd.h"
#include "plans/job.h"
#include "plans/model_graph.h"

namespace shardplan {

/// Parameters that one collective moves together: an FSDP unit or a DDP bucket.
struct ParameterGroup {
  std::string name;                       // module path, "root", "bucket.0" or "frozen"
  std::vector<int> parameters;            // into ModelGraph::parameters, in flat order
  std::vector<std::string> modules = {};  // paths of what is wrapped; "" is the root
};

/// Index of the deepest of `modules` that contains `path` or is it ("" is the root and contains
/// all); -1: none.
int deepest_containing(std::span<const std::string> modules, const std::string& path);

/// Groups the parameters by the job's wrap policy: each belongs to the deepest wrapped module that
/// contains all of its users; what is left belongs to the root, which comes first. With DDP:
/// buckets in the order in which backward finishes gradients, the first of 1 MiB, then of
/// bucket_cap_mb (PyTorch's reducer: kDefaultFirstBucketBytes and rebuilt buckets), and what is not
/// trained apart. With DeepSpeed, which wraps nothing: all that trains, or with stage 3 each
/// module. Throws InputError when a class or module that the policy names does not occur in the
/// model.
std::vector<ParameterGroup> wrap(const ModelGraph& graph, const Tape& tape, const Job& job);

}  // namespace shardplan
