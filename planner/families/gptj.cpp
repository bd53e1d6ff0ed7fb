#include "planner/families/decoder.h"

namespace shardplan {
namespace {

std::vector<Part> block_parts(const std::string& prefix, std::vector<Part> projections) {
  return {{"ln_1", PartRole::AttentionNorm},
          {"attn", PartRole::Attention, prefix + "Attention", std::move(projections)},
          {"mlp",
           PartRole::Mlp,
           prefix + "MLP",
           {{"fc_in", PartRole::Up},
            {"fc_out", PartRole::Down},
            {"act", PartRole::Activation},
            {"dropout", PartRole::Module, "Dropout"}}}};
}

std::vector<Part> model_parts(const std::string& prefix) {
  return {{"transformer",
           PartRole::Module,
           prefix + "Model",
           {{"wte", PartRole::Embedding},
            {"drop", PartRole::Module, "Dropout"},
            {"h", PartRole::Blocks},
            {"ln_f", PartRole::FinalNorm},
            {"rotary_emb", PartRole::Module, prefix + "RotaryEmbedding"}}},
          {"lm_head", PartRole::Head}};
}

/// Attention and MLP read one norm; neighbouring columns rotate, in a part of the head.
Decoder describe(ModelConfig& config, std::string_view family, const std::string& prefix,
                 std::vector<Part> projections) {
  Block block;
  block.class_name = prefix + "Block";
  block.parts = block_parts(prefix, std::move(projections));
  block.channels = read_size(config, {"n_embd", 4096, "hidden_size", kMostChannels});
  block.intermediate = read_derived_size(config, {"n_inner", 4 * block.channels});
  read_heads(config, block,
             {.heads_otherwise = 16, .heads_key = "n_head", .heads_alias = "num_attention_heads"});
  block.norm = layer_norm(read_real(config, "layer_norm_epsilon", 1e-5, 1));
  block.activation = read_activation(config, "activation_function", "gelu_new");
  block.mlp_bias = Bias::Yes;
  block.parallel = true;
  const std::int64_t rotary = read_derived_size(config, {"rotary_dim", 64});
  block.rotates = true;
  block.rope = {{Attribute::HeadDim, static_cast<double>(block.head_dim)},
                {Attribute::RotaryDim, static_cast<double>(rotary)},
                {Attribute::RopeInterleaved, 1},
                {Attribute::RopeTheta, 10000}};
  Decoder decoder = repeat_block(config, block, {"n_layer", 28, "num_hidden_layers"});
  decoder.family = family;
  decoder.model_class = prefix + "ForCausalLM";
  decoder.parts = model_parts(prefix);
  read_vocabulary(config, decoder, 50400, false);
  decoder.head_bias = Bias::Yes;
  // One table of sines and cosines for every position.
  const std::int64_t positions =
      read_derived_size(config, {"n_positions", 2048, "max_position_embeddings", kMostPositions});
  decoder.buffers_bytes = positions * rotary * size_of(Dtype::Float32);
  decoder.dropouts = {"resid_pdrop", "embd_pdrop", "attn_pdrop"};
  return decoder;
}

}  // namespace

Decoder describe_gptj(ModelConfig& config) {
  return describe(config, "gptj", "GPTJ",
                  {{"k_proj", PartRole::Key},
                   {"v_proj", PartRole::Value},
                   {"q_proj", PartRole::Query},
                   {"out_proj", PartRole::Output},
                   {"resid_dropout", PartRole::Module, "Dropout"}});
}

Decoder describe_codegen(ModelConfig& config) {
  return describe(config, "codegen", "CodeGen",
                  {{"out_proj", PartRole::Output},
                   {"resid_dropout", PartRole::Module, "Dropout"},
                   {"qkv_proj", PartRole::PackedQkv}});
}

}  // namespace shardplan
