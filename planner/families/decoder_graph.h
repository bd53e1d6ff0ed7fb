#pragma once

#include <string>
#include <vector>

#include "planner/families/decoder.h"
#include "planner/families/transformer_block.h"

namespace shardplan {

/// The graph of the model. Adds the remarks of the config.
ModelGraph build_decoder(ModelConfig& config, const Decoder& decoder);

/// The decoder without inputs and loss, as a part of another model: modules below `root`
/// ("model.language_model"), and operators from embedded tokens to the final norm.
class DecoderStack {
 public:
  DecoderStack(ModuleBuilder& modules, const Decoder& decoder, const std::string& root = "");

  int embed(int tokens);
  int run(int hidden);
  int logits(int hidden);

 private:
  ModuleBuilder& modules_;
  const Decoder& decoder_;
  Parts parts_;
  std::vector<Parts> blocks_;
};

}  // namespace shardplan
