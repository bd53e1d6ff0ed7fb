#include "planner/families/mixture.h"

#include <algorithm>

#include "plans/error.h"

namespace shardplan {

void use_experts(Block& block, const std::string& name, const MixtureParts& parts) {
  std::vector<Part> children{
      parts.router,
      {"experts", PartRole::Experts, parts.experts_class, {{"act_fn", PartRole::Activation}}}};
  if (parts.order == MixtureParts::Order::ExpertsFirst) std::swap(children[0], children[1]);
  children.insert(children.end(), parts.shared.begin(), parts.shared.end());
  const auto mlp = std::ranges::find(block.parts, name, &Part::name);
  check(mlp != block.parts.end(), "the block has the MLP that experts replace");
  *mlp = {name, PartRole::Mlp, parts.class_name, std::move(children)};
}

}  // namespace shardplan
