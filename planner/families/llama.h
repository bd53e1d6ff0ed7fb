#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "planner/families/decoder.h"

namespace shardplan {

/// Class defaults, in transformers, of a family whose block is Llama's.
struct LlamaDefaults {
  std::string_view prefix;  // of class names
  std::int64_t channels = 4096;
  std::int64_t intermediate = 11008;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 0;  // 0: as many as heads
  std::int64_t head_dim = 0;  // 0: channels / heads
  std::int64_t vocabulary = 32000;
  double epsilon = 1e-6;
  double theta = 10000;
  bool tied = false;
  enum class QueryKeyNorms { No, Yes } query_key_norms = QueryKeyNorms::No;
};
using QueryKeyNorms = LlamaDefaults::QueryKeyNorms;

/// Modules of Llama's block, MLP and model; `prefix` starts the class names.
std::vector<Part> llama_block_parts(const std::string& prefix, QueryKeyNorms norms);
std::vector<Part> gated_mlp_parts();
std::vector<Part> llama_model_parts(const std::string& prefix);

/// A block as the config gives it, without biases.
Block read_llama_block(ModelConfig& config, const LlamaDefaults& defaults);
/// attention_bias: of all four projections.
void read_attention_bias(ModelConfig& config, Block& block);
/// Sets the window of the layers that slide.
void slide_windows(std::vector<Block>& blocks, const std::vector<bool>& slides,
                   std::int64_t window);
/// A model of such blocks.
Decoder llama_decoder(ModelConfig& config, std::string_view family, const LlamaDefaults& defaults,
                      const Block& block);

}  // namespace shardplan
