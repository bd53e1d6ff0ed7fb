#pragma once

#include <optional>
#include <string_view>

#include "plans/units.h"

namespace shardplan::torch {

/// The kernel behind scaled_dot_product_attention (torch.nn.attention.SDPBackend).
enum class SdpaBackend { Flash, Efficient, Math };

/// Where the loss is computed.
enum class LossPlace {
  Model,            // in the model, whose output it is
  LoopDropsLogits,  // in the training loop, from the logits that the model returns; then they go
  LoopHoldsLogits,  // the same, but the loop's variable lives through backward
};
/// "model", "loop_drops_logits", "loop_holds_logits".
std::string_view to_string(LossPlace place);
LossPlace loss_place_from(std::string_view name);

/// What a loss in chunks (TrainingJob::loss_chunks) does with a part of the tokens.
enum class LossChunk {
  Checkpointed,     // logits and loss, of which nothing is kept
  AfterLogits,      // only the loss, of which all is kept: the logits of all parts are there before
  WithOwnBackward,  // logits, loss and their backward, in the loop; the model's backward follows
};

/// What of a PyTorch process no job says.
struct Setup {
  bool fake = false;           // FakeTensorMode, which reference figures come from
  bool cpu = false;            // with fake tensors: of a CPU
  bool transformers = true;    // its modeling code; false: minimal models that fuse GELU and drop
                               // narrow logits once they have a float32 copy
  bool use_cache = false;      // transformers' models copy keys and values into a cache
  bool padding = false;        // sequences are padded: attention has a mask that says so
  bool dropout = false;        // GPT-2's, which its configuration has by default
  bool keeps_outputs = false;  // the loop holds what a model returns to the end of the next step
  SdpaBackend backend = SdpaBackend::Flash;
  LossPlace loss = LossPlace::Model;
  bool float32_logits = false;  // what a model returns whose loss is the loop's
  bool compiles_loss = false;   // with profile torch-compile, as a graph of its own
  LossChunk loss_chunk = LossChunk::Checkpointed;
  std::optional<Dtype> autocast = std::nullopt;  // torch.autocast around FSDP
};

}  // namespace shardplan::torch
