#include "planner/families/gpt2_parts.h"

#include <utility>

namespace shardplan {

std::vector<Part> gpt2_model_parts(const std::string& prefix) {
  return {{"transformer",
           PartRole::Module,
           prefix + "Model",
           {{"wte", PartRole::Embedding},
            {"wpe", PartRole::Positions},
            {"drop", PartRole::Module, "Dropout"},
            {"h", PartRole::Blocks},
            {"ln_f", PartRole::FinalNorm}}},
          {"lm_head", PartRole::Head}};
}

std::vector<Part> gpt2_block_parts(const std::string& prefix, Part attention) {
  return {{"ln_1", PartRole::AttentionNorm},
          std::move(attention),
          {"ln_2", PartRole::MlpNorm},
          {"mlp",
           PartRole::Mlp,
           prefix + "MLP",
           {{"c_fc", PartRole::Up},
            {"c_proj", PartRole::Down},
            {"act", PartRole::Activation},
            {"dropout", PartRole::Module, "Dropout"}}}};
}

}  // namespace shardplan
