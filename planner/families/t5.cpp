#include <array>
#include <cmath>

#include "planner/families/config_fields.h"
#include "planner/families/module_builder.h"
#include "planner/families/transformer_block.h"

namespace shardplan {
namespace {

/// Class defaults in which T5 and mT5 differ.
struct T5Names {
  std::string_view family;
  std::string prefix;
  std::int64_t vocabulary;
  std::int64_t intermediate;
  std::int64_t layers;
  std::int64_t heads;
  std::string feed_forward;
};

enum class Side { Encoder, Decoder };

Part attention_part(const std::string& prefix, const std::string& number, PartRole role,
                    bool has_bias) {
  const bool crosses = role == PartRole::CrossAttention;
  std::vector<Part> projections{{"q", PartRole::Query},
                                {"k", PartRole::Key},
                                {"v", PartRole::Value},
                                {"o", PartRole::Output}};
  if (has_bias) projections.push_back({"relative_attention_bias", PartRole::RelativeBias});
  return {number,
          PartRole::Module,
          prefix + (crosses ? "LayerCrossAttention" : "LayerSelfAttention"),
          {{crosses ? "EncDecAttention" : "SelfAttention", role, prefix + "Attention", projections},
           {"layer_norm", crosses ? PartRole::CrossNorm : PartRole::AttentionNorm},
           {"dropout", PartRole::Module, "Dropout"}}};
}

Part mlp_part(const std::string& prefix, const std::string& number, bool gated) {
  std::vector<Part> dense{{"wi", PartRole::Up}};
  if (gated) dense = {{"wi_0", PartRole::Gate}, {"wi_1", PartRole::Up}};
  dense.push_back({"wo", PartRole::Down});
  dense.push_back({"dropout", PartRole::Module, "Dropout"});
  dense.push_back({"act", PartRole::Activation});
  return {number,
          PartRole::Module,
          prefix + "LayerFF",
          {{"DenseReluDense", PartRole::Mlp,
            prefix + (gated ? "DenseGatedActDense" : "DenseActDense"), dense},
           {"layer_norm", PartRole::MlpNorm},
           {"dropout", PartRole::Module, "Dropout"}}};
}

std::vector<Part> block_parts(const std::string& prefix, Side side, bool has_bias, bool gated) {
  std::vector<Part> layers{attention_part(prefix, "0", PartRole::Attention, has_bias)};
  if (side == Side::Decoder)
    layers.push_back(attention_part(prefix, "1", PartRole::CrossAttention, false));
  layers.push_back(mlp_part(prefix, std::to_string(layers.size()), gated));
  return {{"layer", PartRole::Module, "ModuleList", layers}};
}

/// "relu", "gated-gelu" (which means the approximation), "gated-silu".
Activation read_feed_forward(ModelConfig& config, const std::string& otherwise, bool& gated) {
  std::string name = otherwise;
  config.fields.read("feed_forward_proj", name);
  gated = name.starts_with("gated-");
  if (name == "gated-gelu") return {OperatorKind::Gelu, true, "NewGELUActivation"};
  if (name == "relu") return {OperatorKind::Relu, false, "ReLU"};
  if (name == "gated-silu") return {OperatorKind::Silu, false, "SiLUActivation"};
  fail(*config.fields.find("feed_forward_proj"),
       "feed_forward_proj: expected relu, gated-gelu or gated-silu, got '" + name + "'");
}

class T5Builder {
 public:
  T5Builder(ModelConfig& config, const T5Names& names) : config_(config), names_(names) {
    block_.class_name = names.prefix + "Block";
    block_.channels = read_size(config, {"d_model", 512, "hidden_size", kMostChannels});
    block_.intermediate = read_size(config, {"d_ff", names.intermediate});
    block_.heads =
        read_size(config, {"num_heads", names.heads, "num_attention_heads", kMostChannels});
    block_.kv_heads = block_.heads;
    block_.head_dim = read_size(config, {"d_kv", 64, "head_dim", kMostChannels});
    block_.norm = {.class_name = names.prefix + "LayerNorm",
                   .epsilon = read_real(config, "layer_norm_epsilon", 1e-6, 1)};
    block_.activation = read_feed_forward(config, names.feed_forward, gated_);
    block_.relative_buckets = read_size(config, {"relative_attention_num_buckets", 32});
    layers_ = read_layers(config, {"num_layers", names.layers, "num_hidden_layers"});
    decoder_layers_ = read_derived_size(config, {"num_decoder_layers", layers_, {}, kMostLayers});
    vocabulary_ = read_size(config, {"vocab_size", names.vocabulary, {}, kMostVocabulary});
    // transformers 5 ties the tables whatever the file says, which then only unscales the output.
    tied_ = config.tie_word_embeddings.value_or(true);
    says_tied_ = read_flag(config, "tie_word_embeddings", true);
  }

  ModelGraph build() {
    graph_.family = names_.family;
    graph_.block_classes = {block_.class_name};
    ModuleBuilder modules(graph_, 0.02);
    const auto [tokens, targets] = add_inputs(graph_);
    const int shifted = add(graph_, OperatorKind::Input, "decoder_input_ids", Attributes{}, {});
    modules.module("", names_.prefix + "ForConditionalGeneration");
    embedding_ = modules.embedding("shared", vocabulary_, block_.channels);
    const int memory = stack(modules, Side::Encoder, tokens, -1);
    int hidden = stack(modules, Side::Decoder, shifted, memory);
    if (says_tied_)
      hidden =
          add(graph_, OperatorKind::Scale, "",
              Attributes{{Attribute::OutFeatures, static_cast<double>(block_.channels)},
                         {Attribute::Scale, 1 / std::sqrt(static_cast<double>(block_.channels))}},
              {hidden});
    const Operator head = tied_ ? modules.tied_head("lm_head", embedding_)
                                : modules.linear("lm_head", block_.channels, vocabulary_, Bias::No);
    add_loss(graph_, graph_.add(head, {hidden}), targets, vocabulary_);
    remark();
    graph_.remarks = std::move(config_.remarks);
    return std::move(graph_);
  }

 private:
  int stack(ModuleBuilder& modules, Side side, int tokens, int memory) {
    const std::string path = side == Side::Encoder ? "encoder" : "decoder";
    modules.module(path, names_.prefix + "Stack");
    modules.module(path + ".embed_tokens", "Embedding");
    Operator lookup = embedding_;
    lookup.module = path + ".embed_tokens";
    const std::int64_t layers = side == Side::Encoder ? layers_ : decoder_layers_;
    std::vector<Block> blocks(static_cast<std::size_t>(layers), block_);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i].parts = block_parts(names_.prefix, side, i == 0, gated_);
      blocks[i].bidirectional = side == Side::Encoder;
    }
    const auto parts = declare_blocks(modules, path + ".block", blocks);
    const Operator norm =
        modules.norm(path + ".final_layer_norm", block_.norm, {.channels = block_.channels});
    modules.module(path + ".dropout", "Dropout");
    const int hidden = run_blocks(graph_, blocks, parts, graph_.add(lookup, {tokens}), memory);
    return graph_.add(norm, {hidden});
  }

  void remark() {
    if (tied_ && !says_tied_)
      config_.remarks.push_back(
          "tie_word_embeddings is false, but transformers ties the tables of this class: they "
          "count "
          "once; a checkpoint with a head of its own holds " +
          std::to_string(vocabulary_ * block_.channels) + " parameters more");
    remark_on_the_rest(config_, std::array<std::string_view, 1>{"dropout_rate"},
                       names_.prefix + "ForConditionalGeneration");
  }

  ModelConfig& config_;
  const T5Names& names_;
  Block block_;
  bool gated_ = false;
  bool tied_ = true;
  bool says_tied_ = true;
  std::int64_t layers_ = 0;
  std::int64_t decoder_layers_ = 0;
  std::int64_t vocabulary_ = 0;
  ModelGraph graph_;
  Operator embedding_;
};

}  // namespace

ModelGraph build_t5(ModelConfig& config) {
  return T5Builder(config, {"t5", "T5", 32128, 2048, 6, 8, "relu"}).build();
}

ModelGraph build_mt5(ModelConfig& config) {
  return T5Builder(config, {"mt5", "MT5", 250112, 1024, 8, 6, "gated-gelu"}).build();
}

}  // namespace shardplan
