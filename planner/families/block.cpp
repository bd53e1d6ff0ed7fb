#include "planner/families/block.h"

namespace shardplan {

Norm layer_norm(double epsilon) {
  return {
      .kind = Norm::Kind::Layer, .class_name = "LayerNorm", .epsilon = epsilon, .parameters = 2};
}

}  // namespace shardplan
