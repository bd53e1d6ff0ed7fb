#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/families/family.h"
#include "planner/families/module_builder.h"

namespace shardplan {
namespace {

/// What distinguishes the families that share Llama's block: their class defaults in transformers.
struct Variant {
  std::string_view family;
  std::string_view prefix;            // of class names
  std::int64_t default_kv_heads = 0;  // when the config has no such key; 0: as many as heads
  std::int64_t default_head_dim = 0;  // 0: channels / heads
  std::int64_t default_window = 0;    // tokens; 0: no sliding window
  bool window_is_opt_in = false;      // use_sliding_window, and in upper layers only
  bool qkv_bias = false;              // whatever attention_bias says
  bool reads_biases = false;          // attention_bias and mlp_bias count
  bool normalises_query_and_key = false;
};

/// One block's sizes and constants, as the config gives them.
struct Block {
  std::int64_t channels = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  double epsilon = 1e-6;
  Bias qkv_bias = Bias::No;
  Bias output_bias = Bias::No;
  Bias mlp_bias = Bias::No;
  Attributes rope;                    // without Heads
  std::vector<std::int64_t> windows;  // tokens, by layer; 0: full causal attention
};

void read_heads(ModelConfig& config, const Variant& variant, Block& block) {
  Fields& fields = config.fields;
  block.heads = required_integer(config, "num_attention_heads", kMostChannels);
  // A null counts as absent for the class, but not for its default of another number.
  block.kv_heads = variant.default_kv_heads > 0 && fields.find_any("num_key_value_heads") == nullptr
                       ? variant.default_kv_heads
                       : block.heads;
  fields.read("num_key_value_heads", block.kv_heads, 1, kMostChannels);
  if (block.heads % block.kv_heads != 0)
    fields.fail(fmt::format("num_key_value_heads {} does not divide num_attention_heads {}",
                            block.kv_heads, block.heads));
  const bool has_head_dim = fields.find("head_dim") != nullptr;
  block.head_dim = variant.default_head_dim;
  fields.read("head_dim", block.head_dim, 1, kMostChannels);
  if (!has_head_dim && block.head_dim == 0) {
    if (block.channels % block.heads != 0)
      fields.fail(fmt::format("num_attention_heads {} does not divide hidden_size {}", block.heads,
                              block.channels));
    block.head_dim = block.channels / block.heads;
  }
  if (block.head_dim % 2 != 0)
    fields.fail(fmt::format("head_dim {}: rotary embedding needs an even one", block.head_dim));
  if (block.heads * block.head_dim > kMostIntermediate)
    fields.fail(fmt::format("num_attention_heads x head_dim is more than {}", kMostIntermediate));
}

/// transformers 5 writes rope_parameters; earlier versions rope_theta and rope_scaling.
Attributes read_rope(ModelConfig& config, std::int64_t head_dim) {
  Fields& fields = config.fields;
  Fields scaling = fields.section(fields.find("rope_parameters") != nullptr ? "rope_parameters"
                                                                            : "rope_scaling");
  double theta = 10000;
  fields.read("rope_theta", theta, kPositive);
  scaling.read("rope_theta", theta, kPositive);
  Attributes rope{{Attribute::HeadDim, static_cast<double>(head_dim)},
                  {Attribute::RopeTheta, theta}};
  for (Fields* place : {&fields, &scaling}) {
    double rotated = 1;
    place->read("partial_rotary_factor", rotated, 0, 1);
    if (rotated != 1) place->fail("partial_rotary_factor is not supported yet");
  }
  std::string type = "default";
  scaling.read("type", type);  // the older name of the key
  scaling.read("rope_type", type);
  if (type == "default") return rope;
  if (type != "linear" && type != "llama3")
    scaling.fail(fmt::format(
        "rope type '{}' is not supported yet; supported: default, linear, llama3", type));
  const auto number = [&](std::string_view key) {
    const Node* node = scaling.find(key);
    if (node == nullptr) scaling.fail(fmt::format("'{}' is missing", key));
    return real_of(*node, key, kPositive, kNoLimit);
  };
  rope.set(Attribute::RopeFactor, number("factor"));
  if (type == "llama3") {
    rope.set(Attribute::RopeLowFrequency, number("low_freq_factor"));
    rope.set(Attribute::RopeHighFrequency, number("high_freq_factor"));
    rope.set(Attribute::RopeOriginalContext, number("original_max_position_embeddings"));
  }
  return rope;
}

/// Sliding window of every layer in tokens, the token itself included.
std::vector<std::int64_t> read_windows(ModelConfig& config, const Variant& variant,
                                       std::int64_t layers) {
  std::vector<std::int64_t> windows(static_cast<std::size_t>(layers), 0);
  if (variant.default_window == 0) return windows;
  Fields& fields = config.fields;
  std::int64_t window =
      fields.find_any("sliding_window") == nullptr ? variant.default_window : 0;  // null: none
  fields.read("sliding_window", window, 1, kMostPositions);
  if (!variant.window_is_opt_in) {
    std::ranges::fill(windows, window);
    return windows;
  }
  bool used = false;
  std::int64_t full_layers = 28;  // class default
  fields.read("use_sliding_window", used);
  fields.read("max_window_layers", full_layers, 0, kMostLayers);
  if (!used) return windows;
  std::vector<std::string> types;
  if (const Node* node = fields.find("layer_types")) {
    types = texts_of(*node, "layer_types");
    if (types.empty()) fail(*node, "layer_types is empty");
  }
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    // A job may ask for more layers than the config lists: they are as its last one.
    const auto listed = std::min(static_cast<std::size_t>(layer), types.size() - 1);
    const bool slides = types.empty() ? layer >= full_layers : types[listed] == "sliding_attention";
    if (slides) windows[static_cast<std::size_t>(layer)] = window;
  }
  return windows;
}

void read_biases(ModelConfig& config, const Variant& variant, Block& block) {
  if (variant.qkv_bias) block.qkv_bias = Bias::Yes;
  if (!variant.reads_biases) return;
  bool attention = false;
  bool mlp = false;
  config.fields.read("attention_bias", attention);
  config.fields.read("mlp_bias", mlp);
  if (attention) block.qkv_bias = block.output_bias = Bias::Yes;
  if (mlp) block.mlp_bias = Bias::Yes;
}

Block read_block(ModelConfig& config, const Variant& variant, std::int64_t layers) {
  Block block;
  block.channels = required_integer(config, "hidden_size", kMostChannels);
  block.intermediate = required_integer(config, "intermediate_size", kMostIntermediate);
  read_heads(config, variant, block);
  config.fields.read("rms_norm_eps", block.epsilon, 0, 1);
  std::string activation = "silu";
  config.fields.read("hidden_act", activation);
  if (activation != "silu" && activation != "swish")
    fail(*config.fields.find("hidden_act"),
         fmt::format("hidden_act '{}' is not supported yet; supported: silu", activation));
  read_biases(config, variant, block);
  block.rope = read_rope(config, block.head_dim);
  block.windows = read_windows(config, variant, layers);
  return block;
}

/// Builds one model; a member function a part, so that the parts share the sizes.
class LlamaBuilder {
 public:
  LlamaBuilder(ModelGraph& graph, const Variant& variant, const Block& block, double deviation)
      : graph_(graph), variant_(variant), block_(block), modules_(graph, deviation) {}

  void build(ModelConfig& config, std::int64_t layers);

 private:
  std::string class_name(std::string_view suffix) const {
    return fmt::format("{}{}", variant_.prefix, suffix);
  }
  Operator norm(const std::string& path) {
    return modules_.rms_norm(path, class_name("RMSNorm"), block_.channels, block_.epsilon);
  }
  int rotate(const std::string& path, int input, std::int64_t heads);
  int add_block(const std::string& path, int input, std::int64_t window);

  struct AttentionModules {
    Operator query, key, value, output;
    std::optional<Operator> query_norm, key_norm;
  };
  AttentionModules attention_modules(const std::string& path);
  int attend(const std::string& path, const AttentionModules& modules, int input,
             std::int64_t window);

  ModelGraph& graph_;
  const Variant& variant_;
  const Block& block_;
  ModuleBuilder modules_;
};

LlamaBuilder::AttentionModules LlamaBuilder::attention_modules(const std::string& path) {
  const std::int64_t query = block_.heads * block_.head_dim;
  const std::int64_t key = block_.kv_heads * block_.head_dim;
  modules_.module(path, class_name("Attention"));
  AttentionModules modules;
  modules.query = modules_.linear(path + ".q_proj", block_.channels, query, block_.qkv_bias);
  modules.key = modules_.linear(path + ".k_proj", block_.channels, key, block_.qkv_bias);
  modules.value = modules_.linear(path + ".v_proj", block_.channels, key, block_.qkv_bias);
  modules.output = modules_.linear(path + ".o_proj", query, block_.channels, block_.output_bias);
  if (variant_.normalises_query_and_key) {
    const auto head_norm = [&](const std::string& name, std::int64_t heads) {
      return modules_.rms_norm(path + name, class_name("RMSNorm"), block_.head_dim, block_.epsilon,
                               heads);
    };
    modules.query_norm = head_norm(".q_norm", block_.heads);
    modules.key_norm = head_norm(".k_norm", block_.kv_heads);
  }
  return modules;
}

int LlamaBuilder::rotate(const std::string& path, int input, std::int64_t heads) {
  Attributes attributes = block_.rope;
  attributes.set(Attribute::Heads, static_cast<double>(heads));
  return add(graph_, OperatorKind::Rope, path, std::move(attributes), {input});
}

int LlamaBuilder::attend(const std::string& path, const AttentionModules& modules, int input,
                         std::int64_t window) {
  int query = graph_.add(modules.query, {input});
  int key = graph_.add(modules.key, {input});
  const int value = graph_.add(modules.value, {input});
  if (modules.query_norm) query = graph_.add(*modules.query_norm, {query});
  if (modules.key_norm) key = graph_.add(*modules.key_norm, {key});
  query = rotate(path, query, block_.heads);
  key = rotate(path, key, block_.kv_heads);
  Attributes attributes{{Attribute::Heads, static_cast<double>(block_.heads)},
                        {Attribute::KvHeads, static_cast<double>(block_.kv_heads)},
                        {Attribute::HeadDim, static_cast<double>(block_.head_dim)},
                        {Attribute::Scale, 1 / std::sqrt(static_cast<double>(block_.head_dim))}};
  if (window > 0) attributes.set(Attribute::Window, static_cast<double>(window));
  const int mixed =
      add(graph_, OperatorKind::Attention, path, std::move(attributes), {query, key, value});
  return graph_.add(modules.output, {mixed});
}

int LlamaBuilder::add_block(const std::string& path, int input, std::int64_t window) {
  const Attributes channels{{Attribute::OutFeatures, static_cast<double>(block_.channels)}};
  // Modules first, in the order of the model's parameters; then operators, in that of forward.
  modules_.module(path, class_name("DecoderLayer"));
  const AttentionModules attention = attention_modules(path + ".self_attn");
  const std::string mlp = path + ".mlp";
  modules_.module(mlp, class_name("MLP"));
  const auto projection = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    return modules_.linear(mlp + name, in, out, block_.mlp_bias);
  };
  const Operator gate = projection(".gate_proj", block_.channels, block_.intermediate);
  const Operator up = projection(".up_proj", block_.channels, block_.intermediate);
  const Operator down = projection(".down_proj", block_.intermediate, block_.channels);
  modules_.module(mlp + ".act_fn", "SiLUActivation");
  const Operator before_attention = norm(path + ".input_layernorm");
  const Operator before_mlp = norm(path + ".post_attention_layernorm");

  const int attended =
      attend(path + ".self_attn", attention, graph_.add(before_attention, {input}), window);
  const int middle = add(graph_, OperatorKind::Add, path, channels, {input, attended});
  const int normed = graph_.add(before_mlp, {middle});
  const int gated = graph_.add(gate, {normed});
  const int raised = graph_.add(up, {normed});
  const int activated =
      add(graph_, OperatorKind::SwiGlu, mlp,
          {{Attribute::OutFeatures, static_cast<double>(block_.intermediate)}}, {gated, raised});
  return add(graph_, OperatorKind::Add, path, channels, {middle, graph_.add(down, {activated})});
}

void LlamaBuilder::build(ModelConfig& config, std::int64_t layers) {
  const std::int64_t vocabulary = required_integer(config, "vocab_size", kMostVocabulary);
  const auto [tokens, targets] = add_inputs(graph_);
  modules_.module("", class_name("ForCausalLM"));
  modules_.module("model", class_name("Model"));
  const Operator embedding = modules_.embedding("model.embed_tokens", vocabulary, block_.channels);
  int hidden = graph_.add(embedding, {tokens});
  modules_.module("model.layers", "ModuleList");
  for (std::int64_t layer = 0; layer < layers; ++layer)
    hidden = add_block(fmt::format("model.layers.{}", layer), hidden,
                       block_.windows[static_cast<std::size_t>(layer)]);
  hidden = graph_.add(norm("model.norm"), {hidden});
  modules_.module("model.rotary_emb", class_name("RotaryEmbedding"));
  const Operator head = is_tied(config, false)
                            ? modules_.tied_head("lm_head", embedding)
                            : modules_.linear("lm_head", block_.channels, vocabulary, Bias::No);
  add_loss(graph_, graph_.add(head, {hidden}), targets, vocabulary);
  // rotary_emb keeps two float32 tables of head_dim / 2 frequencies: in use and original.
  graph_.buffers_bytes = 2 * (block_.head_dim / 2) * size_of(Dtype::Float32);
}

ModelGraph build_variant(ModelConfig& config, const Variant& variant) {
  constexpr std::array<std::string_view, 1> kDropouts{"attention_dropout"};
  ModelGraph graph;
  graph.family = variant.family;
  graph.block_class = fmt::format("{}DecoderLayer", variant.prefix);
  const std::int64_t layers = layers_of(config, "num_hidden_layers");
  const Block block = read_block(config, variant, layers);
  double deviation = 0.02;
  config.fields.read("initializer_range", deviation, 0, 100);
  LlamaBuilder(graph, variant, block, deviation).build(config, layers);
  graph.remarks = remarks_on(config, kDropouts, fmt::format("{}ForCausalLM", variant.prefix));
  return graph;
}

}  // namespace

ModelGraph build_llama(ModelConfig& config) {
  return build_variant(config, {.family = "llama", .prefix = "Llama", .reads_biases = true});
}

ModelGraph build_mistral(ModelConfig& config) {
  return build_variant(
      config,
      {.family = "mistral", .prefix = "Mistral", .default_kv_heads = 8, .default_window = 4096});
}

ModelGraph build_qwen2(ModelConfig& config) {
  return build_variant(config, {.family = "qwen2",
                                .prefix = "Qwen2",
                                .default_kv_heads = 32,
                                .default_window = 4096,
                                .window_is_opt_in = true,
                                .qkv_bias = true});
}

ModelGraph build_qwen3(ModelConfig& config) {
  return build_variant(config, {.family = "qwen3",
                                .prefix = "Qwen3",
                                .default_kv_heads = 32,
                                .default_head_dim = 128,
                                .default_window = 4096,
                                .window_is_opt_in = true,
                                .reads_biases = true,
                                .normalises_query_and_key = true});
}

}  // namespace shardplan
