#include "planner/families/config_fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shardplan {
namespace {

struct ActivationName {
  std::string_view name;  // in a config
  OperatorKind kind;
  bool tanh_approximation;
  std::string_view class_name;
};

// transformers/activations.py, ACT2CLS.
constexpr std::array kActivations{
    ActivationName{"silu", OperatorKind::Silu, false, "SiLUActivation"},
    ActivationName{"swish", OperatorKind::Silu, false, "SiLUActivation"},
    ActivationName{"gelu", OperatorKind::Gelu, false, "GELUActivation"},
    ActivationName{"gelu_new", OperatorKind::Gelu, true, "NewGELUActivation"},
    ActivationName{"gelu_pytorch_tanh", OperatorKind::Gelu, true, "GELUTanh"},
    ActivationName{"gelu_fast", OperatorKind::Gelu, true, "FastGELUActivation"},
    ActivationName{"quick_gelu", OperatorKind::QuickGelu, false, "QuickGELUActivation"},
    ActivationName{"relu", OperatorKind::Relu, false, "ReLU"},
    ActivationName{"tanh", OperatorKind::Tanh, false, "Tanh"},
};

const Node* find_size(ModelConfig& config, const SizeField& field) {
  const Node* node = config.fields.find(field.key);
  if (node == nullptr && !field.alias.empty()) node = config.fields.find(field.alias);
  return node;
}

/// Constants of a scaled rotation. YaRN, LongRoPE and dynamic scaling change no size.
void read_rope_scaling(Fields& scaling, Attributes& rope) {
  std::string type = "default";
  scaling.read("type", type);  // the older name of the key
  scaling.read("rope_type", type);
  if (type == "default") return;
  if (type == "longrope" || type == "su") {
    rope.set(Attribute::RopeLong, 1);
    return;
  }
  const bool known = type == "linear" || type == "llama3" || type == "yarn" || type == "dynamic";
  if (!known)
    scaling.fail(
        fmt::format("unknown rope type '{}'; known: default, linear, dynamic, yarn, "
                    "longrope, llama3",
                    type));
  const auto number = [&](std::string_view key) {
    const Node* node = scaling.find(key);
    if (node == nullptr) scaling.fail(fmt::format("'{}' is missing", key));
    return real_of(*node, key, kPositive, kNoLimit);
  };
  rope.set(Attribute::RopeFactor, number("factor"));
  if (type == "yarn") rope.set(Attribute::RopeYarn, 1);
  if (type == "dynamic") rope.set(Attribute::RopeDynamic, 1);
  if (type != "llama3") return;
  rope.set(Attribute::RopeLowFrequency, number("low_freq_factor"));
  rope.set(Attribute::RopeHighFrequency, number("high_freq_factor"));
  rope.set(Attribute::RopeOriginalContext, number("original_max_position_embeddings"));
}

}  // namespace

std::int64_t read_size(ModelConfig& config, const SizeField& field) {
  if (const Node* node = find_size(config, field))
    return integer_of(*node, field.key, 1, field.most);
  config.remarks.push_back(fmt::format("{} is missing: the class's {} is taken",
                                       config.fields.name_of(field.key), field.otherwise));
  return field.otherwise;
}

std::int64_t read_derived_size(ModelConfig& config, const SizeField& field) {
  const Node* node = find_size(config, field);
  return node == nullptr ? field.otherwise : integer_of(*node, field.key, 0, field.most);
}

std::int64_t read_layers(ModelConfig& config, const SizeField& field) {
  const std::int64_t layers =
      read_size(config, {field.key, field.otherwise, field.alias, kMostLayers});
  if (!config.layers) return layers;
  if (*config.layers < 1 || *config.layers > kMostLayers)
    throw InputError(fmt::format("{} layers: expected 1 to {}", *config.layers, kMostLayers));
  return *config.layers;
}

bool read_flag(ModelConfig& config, std::string_view key, bool otherwise) {
  config.fields.read(key, otherwise);
  return otherwise;
}

double read_real(ModelConfig& config, std::string_view key, double otherwise, double most) {
  config.fields.read(key, otherwise, 0, most);
  return otherwise;
}

Bias read_bias(ModelConfig& config, std::string_view key, bool otherwise) {
  return read_flag(config, key, otherwise) ? Bias::Yes : Bias::No;
}

Activation read_activation(ModelConfig& config, std::string_view key, std::string_view otherwise) {
  std::string name(otherwise);
  config.fields.read(key, name);
  std::vector<std::string_view> known;
  for (const ActivationName& one : kActivations) {
    if (one.name == name) return {one.kind, one.tanh_approximation, std::string(one.class_name)};
    known.push_back(one.name);
  }
  fail(*config.fields.find(key), fmt::format("{} '{}' is not supported yet; supported: {}", key,
                                             name, fmt::join(known, ", ")));
}

void read_heads(ModelConfig& config, Block& block, const HeadFields& names) {
  Fields& fields = config.fields;
  block.heads =
      read_size(config, {names.heads_key, names.heads_otherwise, names.heads_alias, kMostChannels});
  // A null counts as absent for the class, but not for its default of another number.
  block.kv_heads = names.kv_otherwise > 0 && fields.find_any(names.kv_key) == nullptr
                       ? names.kv_otherwise
                       : block.heads;
  fields.read(names.kv_key, block.kv_heads, 1, kMostChannels);
  if (block.heads % block.kv_heads != 0)
    fields.fail(fmt::format("{} {} does not divide {} {}", names.kv_key, block.kv_heads,
                            names.heads_key, block.heads));
  block.head_dim = names.head_dim_otherwise;
  const bool has_head_dim = fields.find("head_dim") != nullptr;
  fields.read("head_dim", block.head_dim, 1, kMostChannels);
  if (!has_head_dim && block.head_dim == 0) {
    if (block.channels % block.heads != 0)
      fields.fail(fmt::format("{} {} does not divide the {} channels", names.heads_key, block.heads,
                              block.channels));
    block.head_dim = block.channels / block.heads;
  }
  if (block.heads * block.head_dim > kMostIntermediate)
    fields.fail(fmt::format("{} x head_dim is more than {}", names.heads_key, kMostIntermediate));
  block.scale = 1 / std::sqrt(static_cast<double>(block.head_dim));
}

void read_rope(ModelConfig& config, Block& block, const RopeFields& names) {
  Fields& fields = config.fields;
  Fields scaling = fields.section(fields.find("rope_parameters") != nullptr ? "rope_parameters"
                                                                            : "rope_scaling");
  double theta = names.theta;
  double rotated = names.rotated;
  fields.read(names.theta_key, theta, kPositive);
  scaling.read("rope_theta", theta, kPositive);
  fields.read(names.rotated_key, rotated, 0, 1);
  scaling.read("partial_rotary_factor", rotated, 0, 1);
  const auto rotary_dim = static_cast<std::int64_t>(rotated * static_cast<double>(block.head_dim));
  if (rotary_dim % 2 != 0 || rotary_dim == 0)
    fields.fail(
        fmt::format("head_dim {}: rotary embedding needs an even part of it", block.head_dim));
  block.rotates = true;
  block.rope = {{Attribute::HeadDim, static_cast<double>(block.head_dim)},
                {Attribute::RopeTheta, theta}};
  if (rotary_dim != block.head_dim)
    block.rope.set(Attribute::RotaryDim, static_cast<double>(rotary_dim));
  read_rope_scaling(scaling, block.rope);
}

std::vector<bool> read_sliding_layers(ModelConfig& config, std::int64_t layers,
                                      const std::function<bool(std::int64_t)>& by_class) {
  std::vector<std::string> types;
  if (const Node* node = config.fields.find("layer_types")) {
    types = texts_of(*node, "layer_types");
    if (types.empty()) fail(*node, "layer_types is empty");
  }
  std::vector<bool> slides(static_cast<std::size_t>(layers));
  for (std::size_t layer = 0; layer < slides.size(); ++layer)
    slides[layer] = types.empty() ? by_class(static_cast<std::int64_t>(layer))
                                  : types[std::min(layer, types.size() - 1)] == "sliding_attention";
  return slides;
}

bool is_tied(ModelConfig& config, bool by_class) {
  return config.tie_word_embeddings.value_or(read_flag(config, "tie_word_embeddings", by_class));
}

void remark_on_the_rest(ModelConfig& config, std::span<const std::string_view> dropouts,
                        std::string_view model_class) {
  for (const std::string_view key : dropouts) {
    double probability = 0;
    config.fields.read(key, probability, 0, 1);
    if (probability > 0)
      config.remarks.push_back(fmt::format("{} {} is not applied", key, probability));
  }
  if (config.fields.find("quantization_config") != nullptr)
    config.remarks.emplace_back("quantization_config is ignored: parameters count unquantised");
  if (const Node* classes = config.fields.find("architectures")) {
    const auto names = texts_of(*classes, "architectures");
    if (!names.empty() && names.front() != model_class)
      config.remarks.push_back(fmt::format("planned as {}, not as {}", model_class, names.front()));
  }
}

ModelConfig part_of(ModelConfig& config, std::string_view key) {
  return {config.fields.section(key), config.tie_word_embeddings, config.layers, {}};
}

}  // namespace shardplan
