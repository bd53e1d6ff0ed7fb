#include "planner/families/decoder.h"

namespace shardplan {

Decoder repeat_block(ModelConfig& config, const Block& block, const SizeField& layers) {
  Decoder decoder;
  decoder.blocks.assign(static_cast<std::size_t>(read_layers(config, layers)), block);
  return decoder;
}

void read_vocabulary(ModelConfig& config, Decoder& decoder, std::int64_t vocabulary, bool tied) {
  decoder.vocabulary = read_size(config, {"vocab_size", vocabulary, {}, kMostVocabulary});
  decoder.tied = is_tied(config, tied);
  decoder.deviation = read_real(config, "initializer_range", 0.02, 100);
}

std::int64_t rotary_buffers_bytes(const Block& block) {
  const std::int64_t rotated = block.rope.integer(Attribute::RotaryDim, block.head_dim);
  return 2 * (rotated / 2) * size_of(Dtype::Float32);
}

}  // namespace shardplan
