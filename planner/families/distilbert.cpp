#include <array>

#include "planner/families/config_fields.h"
#include "planner/families/module_builder.h"
#include "planner/families/transformer_block.h"

namespace shardplan {
namespace {

std::vector<Part> block_parts() {
  return {{"attention",
           PartRole::Attention,
           "DistilBertSelfAttention",
           {{"q_lin", PartRole::Query},
            {"k_lin", PartRole::Key},
            {"v_lin", PartRole::Value},
            {"out_lin", PartRole::Output},
            {"dropout", PartRole::Module, "Dropout"}}},
          {"sa_layer_norm", PartRole::AttentionResidualNorm},
          {"ffn",
           PartRole::Mlp,
           "FFN",
           {{"dropout", PartRole::Module, "Dropout"},
            {"lin1", PartRole::Up},
            {"lin2", PartRole::Down},
            {"activation", PartRole::Activation}}},
          {"output_layer_norm", PartRole::MlpResidualNorm}};
}

Block read_block(ModelConfig& config) {
  Block block;
  block.class_name = "TransformerBlock";
  block.parts = block_parts();
  block.channels = read_size(config, {"dim", 768, "hidden_size", kMostChannels});
  block.intermediate = read_size(config, {"hidden_dim", 3072});
  read_heads(config, block,
             {.heads_otherwise = 12,
              .heads_key = "n_heads",
              .heads_alias = "num_attention_heads",
              .kv_key = {}});
  block.norm = layer_norm(1e-12);
  block.activation = read_activation(config, "activation", "gelu");
  block.qkv_bias = block.key_bias = block.output_bias = block.mlp_bias = Bias::Yes;
  block.bidirectional = true;
  return block;
}

}  // namespace

ModelGraph build_distilbert(ModelConfig& config) {
  const Block block = read_block(config);
  const std::int64_t channels = block.channels;
  const std::int64_t vocabulary = read_size(config, {"vocab_size", 30522, {}, kMostVocabulary});
  const std::int64_t positions =
      read_size(config, {"max_position_embeddings", 512, {}, kMostPositions});
  const std::vector<Block> blocks(
      static_cast<std::size_t>(read_layers(config, {"n_layers", 6, "num_hidden_layers"})), block);

  ModelGraph graph;
  graph.family = "distilbert";
  graph.block_classes = {block.class_name};
  ModuleBuilder modules(graph, read_real(config, "initializer_range", 0.02, 100));
  const auto [tokens, targets] = add_inputs(graph);
  modules.module("", "DistilBertForMaskedLM");
  modules.module("activation", block.activation.class_name);
  modules.module("distilbert", "DistilBertModel");
  const std::string path = "distilbert.embeddings";
  modules.module(path, "Embeddings");
  const Operator embedding = modules.embedding(path + ".word_embeddings", vocabulary, channels);
  const Operator position =
      modules.position_embedding(path + ".position_embeddings", positions, channels);
  const Operator norm = modules.norm(path + ".LayerNorm", block.norm, {.channels = channels});
  modules.module(path + ".dropout", "Dropout");
  modules.module("distilbert.transformer", "Transformer");
  const auto parts = declare_blocks(modules, "distilbert.transformer.layer", blocks);
  const Operator transform = modules.linear("vocab_transform", channels, channels, Bias::Yes);
  const Operator transform_norm =
      modules.norm("vocab_layer_norm", block.norm, {.channels = channels});
  const Operator head = is_tied(config, true)
                            ? modules.tied_head("vocab_projector", embedding, Bias::Yes)
                            : modules.linear("vocab_projector", channels, vocabulary, Bias::Yes);
  modules.module("mlm_loss_fct", "CrossEntropyLoss");

  int hidden = graph.add(norm, {graph.add(position, {graph.add(embedding, {tokens})})});
  hidden = graph.add(transform, {run_blocks(graph, blocks, parts, hidden)});
  hidden = activate(graph, block.activation, "activation", channels, hidden);
  add_loss(graph, graph.add(head, {graph.add(transform_norm, {hidden})}), targets, vocabulary);
  graph.buffers_bytes = 8 * positions;  // position_ids, int64
  remark_on_the_rest(config, std::array<std::string_view, 2>{"dropout", "attention_dropout"},
                     "DistilBertForMaskedLM");
  graph.remarks = std::move(config.remarks);
  return graph;
}

}  // namespace shardplan
