#pragma once

#include <string>

#include "planner/families/block.h"

namespace shardplan {

/// Modules of a mixture of experts.
struct MixtureParts {
  enum class Order { RouterFirst, ExpertsFirst };
  Part router;
  std::string class_name;     // of the module that holds router and experts
  std::string experts_class;  // of "experts"
  Order order = Order::RouterFirst;
  std::vector<Part> shared = {};  // what follows: shared expert and its gate
};

/// Replaces the block's MLP, the module `name`, by a mixture of experts.
void use_experts(Block& block, const std::string& name, const MixtureParts& parts);

}  // namespace shardplan
