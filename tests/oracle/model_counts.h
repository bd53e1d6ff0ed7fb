#pragma once

#include <cstdint>
#include <string>

#include "plans/model_graph.h"

namespace shardplan::oracle {

/// Numbers of parameters of a model, tied ones once, as params.csv has them.
struct ModelCounts {
  std::int64_t total = 0;
  std::int64_t trainable = 0;
  std::int64_t embedding = 0;        // of modules that are embeddings, outside of blocks
  std::int64_t token_embedding = 0;  // of the table that tokens are looked up in
  std::int64_t lm_head = 0;          // of the head, without what it shares
  std::int64_t per_layer = 0;        // most common size in the last list of blocks
  std::int64_t n_layers = 0;         // of that list
  std::int64_t other = 0;            // outside of embeddings, head and blocks
  std::string layer_class;
  std::string all_blocks;  // "model.layers[LlamaDecoderLayer]=32x202383360", lists by ';'
  bool tied = false;
  std::string model_class;
};
ModelCounts count_parameters(const ModelGraph& graph);

}  // namespace shardplan::oracle
