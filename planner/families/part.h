#pragma once

#include <string>
#include <vector>

namespace shardplan {

/// What a module of a model does. Those before Query open a part whose modules belong together.
enum class PartRole {
  Module,  // holds others
  Attention,
  CrossAttention,
  Mlp,
  SharedExpert,
  Query,
  Key,
  Value,
  Output,
  PackedQkv,  // one projection for queries, keys and values
  QueryNorm,
  KeyNorm,
  QueryDown,  // DeepSeek's latent attention: down, norm, up
  QueryDownNorm,
  KeyValueDown,
  KeyValueDownNorm,
  KeyValueUp,
  RelativeBias,
  Gate,
  Up,
  PackedGateUp,
  Down,
  Activation,
  Router,
  Experts,
  ExpertsDown,
  SharedGate,
  AttentionNorm,  // before attention
  AttentionPostNorm,
  CrossNorm,
  MlpNorm,
  MlpPostNorm,
  AttentionResidualNorm,  // after the addition (BERT)
  MlpResidualNorm,
  Embedding,  // the ends of a language model
  Positions,
  EmbeddingNorm,
  ProjectIn,
  ProjectOut,
  Blocks,
  FinalNorm,
  Head,
};

/// A module as a family declares it; the order is that in which the model lists its parameters.
struct Part {
  std::string name;
  PartRole role = PartRole::Module;
  std::string class_name = {};  // where it does not follow from the role
  std::vector<Part> children = {};
};

}  // namespace shardplan
