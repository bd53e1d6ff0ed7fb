#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "planner/families/config_fields.h"

namespace shardplan {

/// A language model: embedding, blocks, norm and head, as its `parts` name them.
struct Decoder {
  std::string_view family;
  std::string model_class;  // of the root module, "LlamaForCausalLM"
  std::vector<Part> parts;  // below the root; one has the role Blocks
  std::vector<Block> blocks;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  // rows of a learned table, `position_offset` of them unused
  std::int64_t position_offset = 0;
  std::int64_t embedding_channels = 0;  // where they are not the blocks'; 0: the same
  bool tied = false;
  Bias head_bias = Bias::No;
  double embedding_scale = 1;
  double logits_scale = 1;
  double logits_soft_cap = 0;  // 0: none
  double deviation = 0.02;     // of matrices at the start
  std::int64_t buffers_bytes = 0;
  std::vector<std::string_view> dropouts = {};  // keys of the config that are not applied
};

/// A decoder of as many equal blocks as the config or the job says.
Decoder repeat_block(ModelConfig& config, const Block& block, const SizeField& layers);
/// Reads the vocabulary, whether head and embedding are tied, and the initial deviation.
void read_vocabulary(ModelConfig& config, Decoder& decoder, std::int64_t vocabulary, bool tied);

/// Bytes of the tables that a rotary module keeps: frequencies in use and original, float32.
std::int64_t rotary_buffers_bytes(const Block& block);

}  // namespace shardplan
