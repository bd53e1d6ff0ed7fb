#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/families/block.h"
#include "planner/families/family.h"

namespace shardplan {

// Largest sizes of a config; far above any model, and small enough that no product overflows.
constexpr std::int64_t kMostLayers = 2'048;
constexpr std::int64_t kMostChannels = 1 << 17;
constexpr std::int64_t kMostIntermediate = 1 << 19;
constexpr std::int64_t kMostVocabulary = 1 << 22;
constexpr std::int64_t kMostPositions = 1 << 24;
constexpr std::int64_t kMostExperts = 1 << 14;

/// A size of a model: where the config has it, and what transformers' class takes otherwise.
struct SizeField {
  std::string_view key;
  std::int64_t otherwise = 0;
  std::string_view alias = {};
  std::int64_t most = kMostIntermediate;
};
/// A size of at least 1. A key that is missing or null gives the class default, which is remarked
/// on.
std::int64_t read_size(ModelConfig& config, const SizeField& field);
/// The same for sizes that usually follow from others, without a remark.
std::int64_t read_derived_size(ModelConfig& config, const SizeField& field);
/// Number of blocks: the job's, else the config's.
std::int64_t read_layers(ModelConfig& config, const SizeField& field);
/// A choice of the class.
bool read_flag(ModelConfig& config, std::string_view key, bool otherwise);
double read_real(ModelConfig& config, std::string_view key, double otherwise, double most);
Bias read_bias(ModelConfig& config, std::string_view key, bool otherwise);
/// transformers' name of an activation: "silu", "gelu_new", ... Throws InputError for others.
Activation read_activation(ModelConfig& config, std::string_view key, std::string_view otherwise);

/// Heads, head width and softmax scale of a block whose channels are known. `kv_otherwise` 0: as
/// many as heads. A head width in the config wins; else `head_dim_otherwise`, or, when that is 0,
/// channels / heads.
struct HeadFields {
  std::int64_t heads_otherwise = 32;
  std::int64_t kv_otherwise = 0;
  std::int64_t head_dim_otherwise = 0;
  std::string_view heads_key = "num_attention_heads";
  std::string_view heads_alias = {};
  std::string_view kv_key = "num_key_value_heads";
};
void read_heads(ModelConfig& config, Block& block, const HeadFields& fields);

/// What a class takes for rotation when the config is silent.
struct RopeFields {
  double theta = 10000;
  double rotated = 1;  // share of a head's columns
  std::string_view theta_key = "rope_theta";
  std::string_view rotated_key = "partial_rotary_factor";
};
/// Sets the block's rotation. transformers 5 writes rope_parameters; earlier versions rope_theta
/// and rope_scaling.
void read_rope(ModelConfig& config, Block& block, const RopeFields& fields);

/// Whether each layer slides its window, by `layer_types` when the config has them. A job may ask
/// for more layers than the config lists: they are as its last one.
std::vector<bool> read_sliding_layers(ModelConfig& config, std::int64_t layers,
                                      const std::function<bool(std::int64_t)>& by_class);

/// True when head and embedding share their weight; `by_class` when neither job nor config says.
bool is_tied(ModelConfig& config, bool by_class);

/// Adds remarks on fields that every family leaves out: dropout, quantisation, another class.
void remark_on_the_rest(ModelConfig& config, std::span<const std::string_view> dropouts,
                        std::string_view model_class);

/// The config of a part, e.g. text_config, with what the job says.
ModelConfig part_of(ModelConfig& config, std::string_view key);

}  // namespace shardplan
