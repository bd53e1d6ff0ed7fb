#include <algorithm>
#include <array>
#include <cmath>

#include "planner/families/config_fields.h"
#include "planner/families/module_builder.h"
#include "planner/families/transformer_block.h"

namespace shardplan {
namespace {

const std::vector<Part>& projections() {
  static const std::vector<Part> kParts{{"k_proj", PartRole::Key},
                                        {"v_proj", PartRole::Value},
                                        {"q_proj", PartRole::Query},
                                        {"out_proj", PartRole::Output}};
  return kParts;
}

std::vector<Part> encoder_parts() {
  return {{"self_attn", PartRole::Attention, "WhisperAttention", projections()},
          {"self_attn_layer_norm", PartRole::AttentionNorm},
          {"activation_fn", PartRole::Activation},
          {"fc1", PartRole::Up},
          {"fc2", PartRole::Down},
          {"final_layer_norm", PartRole::MlpNorm}};
}

std::vector<Part> decoder_parts() {
  return {{"self_attn", PartRole::Attention, "WhisperAttention", projections()},
          {"activation_fn", PartRole::Activation},
          {"self_attn_layer_norm", PartRole::AttentionNorm},
          {"encoder_attn", PartRole::CrossAttention, "WhisperAttention", projections()},
          {"encoder_attn_layer_norm", PartRole::CrossNorm},
          {"fc1", PartRole::Up},
          {"fc2", PartRole::Down},
          {"final_layer_norm", PartRole::MlpNorm}};
}

/// One side of the model: "encoder" or "decoder".
std::vector<Block> read_blocks(ModelConfig& config, const std::string& side) {
  Block block;
  block.channels = read_size(config, {"d_model", 384, "hidden_size", kMostChannels});
  block.intermediate = read_size(config, {side + "_ffn_dim", 1536});
  block.heads = block.kv_heads =
      read_size(config, {side + "_attention_heads", 6, {}, kMostChannels});
  if (block.channels % block.heads != 0)
    config.fields.fail(side + "_attention_heads does not divide d_model");
  block.head_dim = block.channels / block.heads;
  block.scale = 1 / std::sqrt(static_cast<double>(block.head_dim));
  block.norm = layer_norm(1e-5);
  block.activation = read_activation(config, "activation_function", "gelu");
  block.qkv_bias = block.output_bias = block.mlp_bias = Bias::Yes;
  const bool encodes = side == "encoder";
  block.class_name = encodes ? "WhisperEncoderLayer" : "WhisperDecoderLayer";
  block.parts = encodes ? encoder_parts() : decoder_parts();
  block.bidirectional = encodes;
  const std::int64_t layers = read_layers(config, {side + "_layers", 4});
  return std::vector<Block>(static_cast<std::size_t>(layers), block);
}

class WhisperBuilder {
 public:
  explicit WhisperBuilder(ModelConfig& config)
      : config_(config),
        encoder_(read_blocks(config, "encoder")),
        decoder_(read_blocks(config, "decoder")),
        channels_(encoder_.front().channels) {}

  ModelGraph build() {
    graph_.family = "whisper";
    graph_.block_classes = {"WhisperEncoderLayer", "WhisperDecoderLayer"};
    const std::int64_t vocabulary = read_size(config_, {"vocab_size", 51865, {}, kMostVocabulary});
    ModuleBuilder modules(graph_, read_real(config_, "init_std", 0.02, 100));
    const auto [tokens, targets] = add_inputs(graph_);
    modules.module("", "WhisperForConditionalGeneration");
    modules.module("model", "WhisperModel");
    const int memory = encode(modules);
    modules.module("model.decoder", "WhisperDecoder");
    const Operator embedding =
        modules.embedding("model.decoder.embed_tokens", vocabulary, channels_);
    const int hidden = decode(modules, graph_.add(embedding, {tokens}), memory);
    const Operator head = is_tied(config_, true)
                              ? modules.tied_head("proj_out", embedding)
                              : modules.linear("proj_out", channels_, vocabulary, Bias::No);
    add_loss(graph_, graph_.add(head, {hidden}), targets, vocabulary);
    remark_on_the_rest(
        config_,
        std::array<std::string_view, 3>{"dropout", "attention_dropout", "activation_dropout"},
        "WhisperForConditionalGeneration");
    graph_.remarks = std::move(config_.remarks);
    return std::move(graph_);
  }

 private:
  /// Sound in mel bands; two convolutions halve its length; sinusoids that do not train.
  int encode(ModuleBuilder& modules) {
    const std::int64_t bands = read_size(config_, {"num_mel_bins", 80});
    const std::int64_t positions =
        read_size(config_, {"max_source_positions", 1500, {}, kMostPositions / 2});
    const std::string path = "model.encoder";
    const int sound = add(graph_, OperatorKind::Input, "input_features",
                          Attributes{{Attribute::Tokens, static_cast<double>(2 * positions)},
                                     {Attribute::OutFeatures, static_cast<double>(bands)}},
                          {});
    const Window window{.width = 2 * positions, .size = 3, .padding = 1};
    Window halving = window;
    halving.stride = 2;
    modules.module(path, "WhisperEncoder");
    const Operator first =
        modules.convolution(path + ".conv1", "Conv1d", bands, channels_, window, Bias::Yes);
    const Operator second =
        modules.convolution(path + ".conv2", "Conv1d", channels_, channels_, halving, Bias::Yes);
    const Operator position =
        modules.position_embedding(path + ".embed_positions", positions, channels_);
    graph_.parameters[position.parameters.front()].trainable = false;
    const auto parts = declare_blocks(modules, path + ".layers", encoder_);
    const Operator norm = modules.norm(path + ".layer_norm", layer_norm(1e-5), {channels_});

    const Activation gelu{OperatorKind::Gelu, false, "GELUActivation"};
    int hidden = activate(graph_, gelu, path + ".conv1", channels_, graph_.add(first, {sound}));
    hidden = activate(graph_, gelu, path + ".conv2", channels_, graph_.add(second, {hidden}));
    hidden = graph_.add(position, {hidden});
    return graph_.add(norm, {run_blocks(graph_, encoder_, parts, hidden)});
  }

  int decode(ModuleBuilder& modules, int hidden, int memory) {
    const std::string path = "model.decoder";
    const Operator position = modules.position_embedding(
        path + ".embed_positions",
        read_size(config_, {"max_target_positions", 448, {}, kMostPositions}), channels_, 0,
        "WhisperPositionalEmbedding");
    const auto parts = declare_blocks(modules, path + ".layers", decoder_);
    const Operator norm = modules.norm(path + ".layer_norm", layer_norm(1e-5), {channels_});
    if (read_flag(config_, "scale_embedding", false))
      hidden = add(graph_, OperatorKind::Scale, path,
                   Attributes{{Attribute::OutFeatures, static_cast<double>(channels_)},
                              {Attribute::Scale, std::sqrt(static_cast<double>(channels_))}},
                   {hidden});
    hidden = run_blocks(graph_, decoder_, parts, graph_.add(position, {hidden}), memory);
    return graph_.add(norm, {hidden});
  }

  ModelConfig& config_;
  const std::vector<Block> encoder_;
  const std::vector<Block> decoder_;
  const std::int64_t channels_;
  ModelGraph graph_;
};

}  // namespace

ModelGraph build_whisper(ModelConfig& config) { return WhisperBuilder(config).build(); }

}  // namespace shardplan
