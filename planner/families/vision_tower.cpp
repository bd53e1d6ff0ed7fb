#include "planner/families/vision_tower.h"

#include "plans/names.h"

namespace shardplan {

const std::vector<VisionTower::Names>& VisionTower::known() {
  // Class defaults of CLIPVisionConfig and SiglipVisionConfig.
  static const std::vector<Names> kNames{
      {"clip_vision_model", "CLIP", true, "quick_gelu", 1e-5, {224, 32}, 768, 3072, 12, 12},
      {"siglip_vision_model",
       "Siglip",
       false,
       "gelu_pytorch_tanh",
       1e-6,
       {224, 16},
       768,
       3072,
       12,
       12},
  };
  return kNames;
}

VisionTower::VisionTower(ModelConfig config, std::string_view otherwise_type)
    : config_(std::move(config)) {
  std::string type(otherwise_type);
  config_.fields.read("model_type", type);
  config_.layers.reset();  // a job's number of blocks is that of the language model
  std::vector<std::string> types;
  for (const Names& names : known()) {
    if (names.type == type) names_ = &names;
    types.emplace_back(names.type);
  }
  if (names_ == nullptr)
    config_.fields.fail("not supported yet: " + unknown_name("vision model", type, types));
  block_.class_name = names_->prefix + "EncoderLayer";
  block_.parts = block_parts();
  block_.channels = read_size(config_, {"hidden_size", names_->channels, {}, kMostChannels});
  block_.intermediate = read_size(config_, {"intermediate_size", names_->intermediate});
  read_heads(config_, block_, {.heads_otherwise = names_->heads, .kv_key = {}});
  block_.norm = layer_norm(read_real(config_, "layer_norm_eps", names_->epsilon, 1));
  block_.activation = read_activation(config_, "hidden_act", names_->activation);
  block_.qkv_bias = block_.key_bias = block_.output_bias = block_.mlp_bias = Bias::Yes;
  block_.bidirectional = true;
  image_ = read_image(config_, names_->image);
  blocks_.assign(
      static_cast<std::size_t>(read_layers(config_, {"num_hidden_layers", names_->layers})),
      block_);
}

std::vector<Part> VisionTower::block_parts() const {
  const Part attention{"self_attn",
                       PartRole::Attention,
                       names_->prefix + "Attention",
                       {{"k_proj", PartRole::Key},
                        {"v_proj", PartRole::Value},
                        {"q_proj", PartRole::Query},
                        {"out_proj", PartRole::Output}}};
  const Part mlp{
      "mlp",
      PartRole::Mlp,
      names_->prefix + "MLP",
      {{"activation_fn", PartRole::Activation}, {"fc1", PartRole::Up}, {"fc2", PartRole::Down}}};
  const Part first{"layer_norm1", PartRole::AttentionNorm};
  const Part second{"layer_norm2", PartRole::MlpNorm};
  if (names_->has_class_token) return {attention, first, mlp, second};
  return {first, attention, second, mlp};
}

void VisionTower::declare(ModuleBuilder& modules, const std::string& path) {
  graph_ = &modules.graph();
  const std::int64_t channels = block_.channels;
  const std::string embeddings = path + ".embeddings";
  modules.module(path, names_->prefix + "VisionModel");
  modules.module(embeddings, names_->prefix + "VisionEmbeddings");
  if (names_->has_class_token)
    token_ = modules.leading_token(embeddings, "class_embedding", {channels});
  patches_ =
      modules.convolution(embeddings + ".patch_embedding", "Conv2d", image_.channels, channels,
                          image_.window(), names_->has_class_token ? Bias::No : Bias::Yes);
  positions_ = modules.position_embedding(embeddings + ".position_embedding",
                                          image_.patches() + (token_ ? 1 : 0), channels);
  // CLIP's name has this spelling in transformers.
  if (names_->has_class_token)
    first_norm_ = modules.norm(path + ".pre_layrnorm", block_.norm, {.channels = channels});
  modules.module(path + ".encoder", names_->prefix + "Encoder");
  parts_ = declare_blocks(modules, path + ".encoder.layers", blocks_);
  last_norm_ = modules.norm(path + ".post_layernorm", block_.norm, {.channels = channels});
  if (!names_->has_class_token && read_flag(config_, "vision_use_head", true))
    declare_pooling(modules, path + ".head");
}

/// SigLIP's pooling by attention: part of the class, but no features are taken from it.
void VisionTower::declare_pooling(ModuleBuilder& modules, const std::string& path) {
  const std::int64_t channels = block_.channels;
  modules.module(path, "SiglipMultiheadAttentionPoolingHead");
  modules.unused(path + ".probe", {1, 1, channels});
  modules.module(path + ".attention", "MultiheadAttention");
  modules.unused(path + ".attention.in_proj_weight", {3 * channels, channels});
  modules.unused(path + ".attention.in_proj_bias", {3 * channels});
  modules.linear(path + ".attention.out_proj", channels, channels, Bias::Yes,
                 "NonDynamicallyQuantizableLinear");
  modules.norm(path + ".layernorm", block_.norm, {.channels = channels});
  modules.module(path + ".mlp", "SiglipMLP");
  modules.module(path + ".mlp.activation_fn", block_.activation.class_name);
  modules.linear(path + ".mlp.fc1", channels, block_.intermediate, Bias::Yes);
  modules.linear(path + ".mlp.fc2", block_.intermediate, channels, Bias::Yes);
}

int VisionTower::embed(int pixels) {
  int hidden = graph_->add(*patches_, {pixels});
  if (token_) hidden = graph_->add(*token_, {hidden});
  hidden = graph_->add(*positions_, {hidden});
  return first_norm_ ? graph_->add(*first_norm_, {hidden}) : hidden;
}

int VisionTower::run_to_layer(int pixels, std::int64_t layer) {
  const auto count = static_cast<std::int64_t>(blocks_.size());
  // transformers lists the embeddings and the output of every block.
  const std::int64_t run = layer < 0 ? count + 1 + layer : layer;
  if (run < 0 || run > count)
    config_.fields.fail("vision_feature_layer lies outside of the " + std::to_string(count) +
                        " layers");
  std::vector<Block> first(blocks_.begin(), blocks_.begin() + run);
  return run_blocks(*graph_, first, parts_, embed(pixels));
}

int VisionTower::run_to_norm(int pixels) {
  return graph_->add(*last_norm_, {run_blocks(*graph_, blocks_, parts_, embed(pixels))});
}

std::int64_t VisionTower::buffers_bytes() const {
  return 8 * (image_.patches() + (names_->has_class_token ? 1 : 0));  // position_ids, int64
}

}  // namespace shardplan
