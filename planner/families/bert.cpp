#include "planner/families/config_fields.h"
#include "planner/families/module_builder.h"
#include "planner/families/transformer_block.h"

namespace shardplan {
namespace {

/// BERT and the models that changed its names.
struct BertNames {
  std::string_view family;
  std::string prefix;  // of class names
  std::string root;    // path of the encoder
  std::int64_t vocabulary;
  std::int64_t position_offset;  // rows of the table that no token uses
  bool positions_last;           // among the embeddings
};

std::vector<Part> block_parts(const std::string& prefix) {
  const Part dropout{"dropout", PartRole::Module, "Dropout"};
  return {
      {"attention",
       PartRole::Attention,
       prefix + "Attention",
       {{"self",
         PartRole::Module,
         prefix + "SelfAttention",
         {{"query", PartRole::Query}, {"key", PartRole::Key}, {"value", PartRole::Value}, dropout}},
        {"output",
         PartRole::Module,
         prefix + "SelfOutput",
         {{"dense", PartRole::Output}, {"LayerNorm", PartRole::AttentionResidualNorm}, dropout}}}},
      {"intermediate",
       PartRole::Module,
       prefix + "Intermediate",
       {{"dense", PartRole::Up}, {"intermediate_act_fn", PartRole::Activation}}},
      {"output",
       PartRole::Module,
       prefix + "Output",
       {{"dense", PartRole::Down}, {"LayerNorm", PartRole::MlpResidualNorm}, dropout}}};
}

Block read_block(ModelConfig& config, const std::string& prefix) {
  Block block;
  block.class_name = prefix + "Layer";
  block.parts = block_parts(prefix);
  block.channels = read_size(config, {"hidden_size", 768, {}, kMostChannels});
  block.intermediate = read_size(config, {"intermediate_size", 3072});
  read_heads(config, block, {.heads_otherwise = 12, .kv_key = {}});
  block.norm = layer_norm(read_real(config, "layer_norm_eps", 1e-12, 1));
  block.activation = read_activation(config, "hidden_act", "gelu");
  block.qkv_bias = block.key_bias = block.output_bias = block.mlp_bias = Bias::Yes;
  block.bidirectional = true;
  return block;
}

/// Masked language models of one encoder.
class BertBuilder {
 public:
  BertBuilder(ModelConfig& config, const BertNames& names)
      : config_(config), names_(names), block_(read_block(config, names.prefix)) {
    vocabulary_ = read_size(config, {"vocab_size", names.vocabulary, {}, kMostVocabulary});
    positions_ = read_size(config, {"max_position_embeddings", 512, {}, kMostPositions});
    types_ = read_size(config, {"type_vocab_size", 2});
    layers_ = read_layers(config, {"num_hidden_layers", 12});
    tied_ = is_tied(config, true);
  }

  ModelGraph build() {
    graph_.family = names_.family;
    graph_.block_classes = {block_.class_name};
    ModuleBuilder modules(graph_, read_real(config_, "initializer_range", 0.02, 100));
    const auto [tokens, targets] = add_inputs(graph_);
    const int types = add(graph_, OperatorKind::Input, "token_type_ids", Attributes{}, {});
    modules.module("", names_.prefix + "ForMaskedLM");
    modules.module(names_.root, names_.prefix + "Model");
    int hidden = embed(modules, tokens, types);
    modules.module(names_.root + ".encoder", names_.prefix + "Encoder");
    const std::vector<Block> blocks(static_cast<std::size_t>(layers_), block_);
    const auto parts = declare_blocks(modules, names_.root + ".encoder.layer", blocks);
    hidden = run_blocks(graph_, blocks, parts, hidden);
    add_loss(graph_,
             names_.root == "bert" ? bert_head(modules, hidden) : roberta_head(modules, hidden),
             targets, vocabulary_);
    remark_on_the_rest(
        config_,
        std::vector<std::string_view>{"hidden_dropout_prob", "attention_probs_dropout_prob"},
        names_.prefix + "ForMaskedLM");
    graph_.remarks = std::move(config_.remarks);
    // position_ids and token_type_ids, int64.
    graph_.buffers_bytes = 2 * size_of(Dtype::Int64) * positions_;
    return std::move(graph_);
  }

 private:
  int embed(ModuleBuilder& modules, int tokens, int types) {
    const std::string path = names_.root + ".embeddings";
    const std::int64_t channels = block_.channels;
    modules.module(path, names_.prefix + "Embeddings");
    embedding_ = modules.embedding(path + ".word_embeddings", vocabulary_, channels);
    const auto declare_positions = [&] {
      return modules.position_embedding(path + ".position_embeddings", positions_, channels,
                                        names_.position_offset);
    };
    std::optional<Operator> positions;
    if (!names_.positions_last) positions = declare_positions();
    const Operator type = modules.embedding(path + ".token_type_embeddings", types_, channels);
    const Operator norm = modules.norm(path + ".LayerNorm", block_.norm, {.channels = channels});
    modules.module(path + ".dropout", "Dropout");
    if (names_.positions_last) positions = declare_positions();
    const int sum = add(graph_, OperatorKind::Add, path, channels,
                        {graph_.add(embedding_, {tokens}), graph_.add(type, {types})});
    return graph_.add(norm, {graph_.add(*positions, {sum})});
  }

  struct Transform {
    Operator dense;
    Operator norm;
  };

  int transform(const Transform& parts, const std::string& path, int hidden) {
    const int dense = graph_.add(parts.dense, {hidden});
    const int activated = activate(graph_, block_.activation, path, block_.channels, dense);
    return graph_.add(parts.norm, {activated});
  }

  Operator output(ModuleBuilder& modules, const std::string& path) {
    return tied_ ? modules.tied_head(path, embedding_)
                 : modules.linear(path, block_.channels, vocabulary_, Bias::No);
  }

  int bert_head(ModuleBuilder& modules, int hidden) {
    const std::string predictions = "cls.predictions";
    const std::string path = predictions + ".transform";
    modules.module("cls", "BertOnlyMLMHead");
    modules.module(predictions, "BertLMPredictionHead");
    Operator bias;  // stands before the transform among the parameters
    modules.add_bias(bias, predictions + ".bias", vocabulary_);
    modules.module(path, "BertPredictionHeadTransform");
    Transform parts;
    parts.dense = modules.linear(path + ".dense", block_.channels, block_.channels, Bias::Yes);
    modules.module(path + ".transform_act_fn", block_.activation.class_name);
    parts.norm = modules.norm(path + ".LayerNorm", block_.norm, {.channels = block_.channels});
    Operator decoder = output(modules, predictions + ".decoder");
    decoder.parameters.push_back(bias.parameters.front());
    return graph_.add(decoder, {transform(parts, path + ".transform_act_fn", hidden)});
  }

  int roberta_head(ModuleBuilder& modules, int hidden) {
    modules.module("lm_head", names_.prefix + "LMHead");
    Operator bias;
    modules.add_bias(bias, "lm_head.bias", vocabulary_);
    Transform parts;
    parts.dense = modules.linear("lm_head.dense", block_.channels, block_.channels, Bias::Yes);
    parts.norm = modules.norm("lm_head.layer_norm", block_.norm, {.channels = block_.channels});
    Operator decoder = output(modules, "lm_head.decoder");
    decoder.parameters.push_back(bias.parameters.front());
    return graph_.add(decoder, {transform(parts, "lm_head", hidden)});
  }

  ModelConfig& config_;
  const BertNames& names_;
  Block block_;
  std::int64_t vocabulary_ = 0;
  std::int64_t positions_ = 0;
  std::int64_t types_ = 0;
  std::int64_t layers_ = 0;
  bool tied_ = true;
  ModelGraph graph_;
  Operator embedding_;
};

}  // namespace

ModelGraph build_bert(ModelConfig& config) {
  return BertBuilder(config, {"bert", "Bert", "bert", 30522, 0, false}).build();
}

ModelGraph build_roberta(ModelConfig& config) {
  return BertBuilder(config, {"roberta", "Roberta", "roberta", 50265, 2, true}).build();
}

ModelGraph build_xlm_roberta(ModelConfig& config) {
  return BertBuilder(config, {"xlm-roberta", "XLMRoberta", "roberta", 30522, 2, true}).build();
}

}  // namespace shardplan
