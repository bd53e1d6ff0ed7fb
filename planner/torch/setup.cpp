#include "planner/torch/setup.h"

#include <array>

#include "plans/names.h"

namespace shardplan::torch {
namespace {

constexpr std::array kLossPlaces{EnumName{LossPlace::Model, "model"},
                                 EnumName{LossPlace::LoopDropsLogits, "loop_drops_logits"},
                                 EnumName{LossPlace::LoopHoldsLogits, "loop_holds_logits"}};

}  // namespace

std::string_view to_string(LossPlace place) { return name_of(kLossPlaces, place); }
LossPlace loss_place_from(std::string_view name) {
  return value_of(kLossPlaces, name, "place of the loss");
}

}  // namespace shardplan::torch
