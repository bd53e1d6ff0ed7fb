#include "planner/families/transformer_block.h"

#include <fmt/format.h>

#include <optional>

#include "plans/error.h"

namespace shardplan {
namespace {

Attributes activation_attributes(const Activation& activation, std::int64_t channels) {
  Attributes attributes{{Attribute::OutFeatures, static_cast<double>(channels)}};
  if (activation.kind == OperatorKind::Gelu)
    attributes.set(Attribute::TanhApproximation, activation.tanh_approximation ? 1 : 0);
  return attributes;
}

/// Makes the modules of one block.
class BlockDeclaration {
 public:
  BlockDeclaration(ModuleBuilder& modules, const Block& block) : modules_(modules), block_(block) {}

  std::optional<Operator> operator()(const Part& part, const std::string& path, PartRole inside) {
    switch (part.role) {
      case PartRole::Query:
      case PartRole::Key:
      case PartRole::Value:
      case PartRole::Output:
      case PartRole::PackedQkv: return attention_projection(part, path, inside);
      case PartRole::QueryDown:
      case PartRole::KeyValueDown:
      case PartRole::KeyValueUp:
      case PartRole::QueryDownNorm:
      case PartRole::KeyValueDownNorm: return latent_part(part, path);
      case PartRole::QueryNorm: return head_norm(part, path, block_.heads);
      case PartRole::KeyNorm: return head_norm(part, path, block_.kv_heads);
      case PartRole::RelativeBias: return relative_bias(path);
      case PartRole::Gate:
      case PartRole::Up:
      case PartRole::PackedGateUp:
      case PartRole::Down: return mlp_projection(part, path, inside);
      case PartRole::Activation: return activation(part, path);
      case PartRole::Router:
        return linear(part, path, block_.channels, block_.mixture.experts, Bias::No);
      case PartRole::SharedGate: return linear(part, path, block_.channels, 1, Bias::No);
      case PartRole::Experts: return experts(part, path);
      case PartRole::AttentionNorm:
      case PartRole::AttentionPostNorm:
      case PartRole::AttentionResidualNorm:
      case PartRole::CrossNorm:
      case PartRole::MlpNorm:
      case PartRole::MlpPostNorm:
      case PartRole::MlpResidualNorm:
        return modules_.norm(path, block_.norm, {.channels = block_.channels});
      default: modules_.module(path, part.class_name); return std::nullopt;
    }
  }

  /// The second parameter of experts.
  const std::optional<Operator>& experts_down() const { return experts_down_; }

 private:
  Operator linear(const Part& part, const std::string& path, std::int64_t in, std::int64_t out,
                  Bias bias) {
    if (block_.linear_class == "Conv1D") {
      const bool residual = part.role == PartRole::Output || part.role == PartRole::Down;
      return modules_.conv1d(path, in, out,
                             residual ? block_.residual_deviation : modules_.standard_deviation());
    }
    return modules_.linear(path, in, out, bias,
                           part.class_name.empty() ? block_.linear_class : part.class_name);
  }

  Operator attention_projection(const Part& part, const std::string& path, PartRole inside) {
    const std::int64_t query = block_.heads * block_.head_dim;
    const std::int64_t key = block_.kv_heads * block_.head_dim;
    const bool crosses = inside == PartRole::CrossAttention && block_.memory_channels > 0;
    const std::int64_t memory = crosses ? block_.memory_channels : block_.channels;
    switch (part.role) {
      case PartRole::Query: {
        const bool compressed = block_.latent.query_rank > 0;
        return linear(part, path, compressed ? block_.latent.query_rank : block_.channels, query,
                      block_.qkv_bias);
      }
      case PartRole::Key: return linear(part, path, memory, key, block_.key_bias);
      case PartRole::Value: return linear(part, path, memory, key, block_.qkv_bias);
      case PartRole::PackedQkv:
        return linear(part, path, block_.channels, query + 2 * key, block_.qkv_bias);
      default:
        return linear(part, path, block_.heads * block_.value_width(), block_.channels,
                      block_.output_bias);
    }
  }

  Operator latent_part(const Part& part, const std::string& path) {
    const Latent& latent = block_.latent;
    switch (part.role) {
      case PartRole::QueryDown:
        return linear(part, path, block_.channels, latent.query_rank, block_.qkv_bias);
      case PartRole::KeyValueDown:
        return linear(part, path, block_.channels, latent.key_value_rank + latent.rotated_dim,
                      block_.qkv_bias);
      case PartRole::KeyValueUp:
        return linear(part, path, latent.key_value_rank,
                      block_.heads * (latent.plain_dim + block_.value_width()), Bias::No);
      case PartRole::QueryDownNorm:
        return modules_.norm(path, block_.norm, {.channels = latent.query_rank});
      default: return modules_.norm(path, block_.norm, {.channels = latent.key_value_rank});
    }
  }

  Operator head_norm(const Part&, const std::string& path, std::int64_t heads) {
    if (block_.normalises_whole_row)
      return modules_.norm(path, block_.query_key_norm, {.channels = heads * block_.head_dim});
    return modules_.norm(path, block_.query_key_norm,
                         {.channels = block_.head_dim,
                          .groups = heads,
                          .own_weights = block_.norms_per_head_weights});
  }

  Operator relative_bias(const std::string& path) {
    Operator op = modules_.embedding(path, block_.relative_buckets, block_.heads);
    op.kind = OperatorKind::RelativePositionBias;
    return op;
  }

  Operator mlp_projection(const Part& part, const std::string& path, PartRole inside) {
    const std::int64_t width =
        inside == PartRole::SharedExpert ? block_.mixture.shared_intermediate : block_.intermediate;
    if (part.role == PartRole::Down)
      return linear(part, path, width, block_.channels, block_.mlp_bias);
    const bool packed = part.role == PartRole::PackedGateUp;
    return linear(part, path, block_.channels, packed ? 2 * width : width, block_.mlp_bias);
  }

  std::optional<Operator> activation(const Part& part, const std::string& path) {
    modules_.module(path, part.class_name.empty() ? block_.activation.class_name : part.class_name);
    return std::nullopt;
  }

  Operator experts(const Part& part, const std::string& path) {
    const Mixture& mixture = block_.mixture;
    modules_.module(path, part.class_name);
    Operator up = modules_.expert_linear(path, "gate_up_proj", mixture.experts, block_.channels,
                                         2 * mixture.intermediate);
    experts_down_ = modules_.expert_linear(path, "down_proj", mixture.experts, mixture.intermediate,
                                           block_.channels);
    return up;
  }

  ModuleBuilder& modules_;
  const Block& block_;
  std::optional<Operator> experts_down_;
};

/// Adds the operators of one block.
class BlockRun {
 public:
  BlockRun(ModelGraph& graph, const Block& block, const Parts& parts)
      : graph_(graph), block_(block), parts_(parts) {}

  int run(int hidden, int memory, int bias) {
    bias_ = bias;
    const int normed = norm(PartRole::AttentionNorm, hidden);
    const int attended =
        norm(PartRole::AttentionPostNorm, attend(PartRole::Attention, normed, normed));
    if (block_.parallel) {
      const int mlp_input = has(PartRole::MlpNorm) ? norm(PartRole::MlpNorm, hidden) : normed;
      return add_residual(add_residual(hidden, attended), mlp(mlp_input));
    }
    int middle = norm(PartRole::AttentionResidualNorm, add_residual(hidden, attended));
    if (has(PartRole::CrossAttention))
      middle = add_residual(
          middle, attend(PartRole::CrossAttention, norm(PartRole::CrossNorm, middle), memory));
    const int changed = norm(PartRole::MlpPostNorm, mlp(norm(PartRole::MlpNorm, middle)));
    return norm(PartRole::MlpResidualNorm, add_residual(middle, changed));
  }

 private:
  bool has(PartRole role) const { return part_of(role) != std::nullopt; }

  /// The part that holds the module with this role: norms may stand beside or inside of others.
  std::optional<PartRole> part_of(PartRole role) const {
    for (const PartRole part : {PartRole::Module, PartRole::Attention, PartRole::CrossAttention,
                                PartRole::Mlp, PartRole::SharedExpert})
      if (parts_.has(part, role)) return part;
    return std::nullopt;
  }

  /// MLPs without a module of their own lie in the block.
  PartRole mlp_part() const {
    return parts_.has(PartRole::Mlp, PartRole::Mlp) ? PartRole::Mlp : PartRole::Module;
  }

  int norm(PartRole role, int input) {
    const auto part = part_of(role);
    return part ? graph_.add(parts_.op(*part, role), {input}) : input;
  }

  int project(PartRole part, PartRole role, int input) {
    return graph_.add(parts_.op(part, role), {input});
  }

  int add_residual(int stream, int branch) {
    if (block_.residual_scale != 1)
      branch = add(graph_, OperatorKind::Scale, parts_.root,
                   {{Attribute::OutFeatures, static_cast<double>(block_.channels)},
                    {Attribute::Scale, block_.residual_scale}},
                   {branch});
    return add(graph_, OperatorKind::Add, parts_.root, block_.channels, {stream, branch});
  }

  int rotate(const std::string& path, int input, std::int64_t heads) {
    if (!block_.rotates) return input;
    Attributes attributes = block_.rope;
    attributes.set(Attribute::Heads, static_cast<double>(heads));
    return add(graph_, OperatorKind::Rope, path, std::move(attributes), {input});
  }

  Attributes attention_attributes(PartRole part) const {
    Attributes attributes{{Attribute::Heads, static_cast<double>(block_.heads)},
                          {Attribute::KvHeads, static_cast<double>(block_.kv_heads)},
                          {Attribute::HeadDim, static_cast<double>(block_.head_dim)},
                          {Attribute::Scale, block_.scale}};
    const auto set = [&](Attribute attribute, double value) {
      if (value > 0) attributes.set(attribute, value);
    };
    set(Attribute::ValueHeadDim, static_cast<double>(block_.value_dim));
    set(Attribute::Window, static_cast<double>(block_.window));
    set(Attribute::SoftCap, block_.soft_cap);
    set(Attribute::Alibi, block_.alibi ? 1 : 0);
    set(Attribute::Bidirectional, block_.bidirectional || part == PartRole::CrossAttention ? 1 : 0);
    return attributes;
  }

  struct Heads {
    int query;
    int key;
    int value;
  };

  int attend(PartRole part, int input, int source) {
    const std::string& path = parts_.path(part, part);
    const bool packed = parts_.has(part, PartRole::PackedQkv);
    int mixed = -1;
    if (packed && !block_.rotates && block_.packing == Packing::ByRow) {
      mixed = add(graph_, OperatorKind::PackedAttention, path, attention_attributes(part),
                  {project(part, PartRole::PackedQkv, input)});
    } else {
      const Heads heads = parts_.has(part, PartRole::KeyValueDown) ? latent_heads(path, input)
                          : packed ? packed_heads(path, project(part, PartRole::PackedQkv, input))
                                   : separate_heads(part, path, input, source);
      std::vector<int> inputs{heads.query, heads.key, heads.value};
      const bool biased = bias_ >= 0 && part == PartRole::Attention;
      if (biased) inputs.push_back(bias_);
      mixed = add(graph_, biased ? OperatorKind::BiasedAttention : OperatorKind::Attention, path,
                  attention_attributes(part), inputs);
    }
    return project(part, PartRole::Output, mixed);
  }

  Heads separate_heads(PartRole part, const std::string& path, int input, int source) {
    Heads heads{project(part, PartRole::Query, input), project(part, PartRole::Key, source),
                project(part, PartRole::Value, source)};
    return rotated(part, path, heads);
  }

  Heads rotated(PartRole part, const std::string& path, Heads heads) {
    if (parts_.has(part, PartRole::QueryNorm))
      heads.query = project(part, PartRole::QueryNorm, heads.query);
    if (parts_.has(part, PartRole::KeyNorm))
      heads.key = project(part, PartRole::KeyNorm, heads.key);
    heads.query = rotate(path, heads.query, block_.heads);
    heads.key = rotate(path, heads.key, block_.kv_heads);
    return heads;
  }

  /// Columns [begin, begin + width) of each of `groups` groups of a row, `group` columns wide.
  int slice(const std::string& path, int input, std::int64_t groups, std::int64_t group,
            std::int64_t begin, std::int64_t width) {
    return add(graph_, OperatorKind::Slice, path,
               {{Attribute::GroupsPerRow, static_cast<double>(groups)},
                {Attribute::InFeatures, static_cast<double>(group)},
                {Attribute::Offset, static_cast<double>(begin)},
                {Attribute::OutFeatures, static_cast<double>(width)}},
               {input});
  }

  Heads packed_heads(const std::string& path, int qkv) {
    const bool by_group = block_.packing == Packing::ByGroup;
    const std::int64_t groups = by_group ? block_.kv_heads : 1;
    const std::int64_t query = block_.heads / groups * block_.head_dim;
    const std::int64_t key = block_.kv_heads / groups * block_.head_dim;
    const std::int64_t group = query + 2 * key;
    const Heads heads{slice(path, qkv, groups, group, 0, query),
                      slice(path, qkv, groups, group, query, key),
                      slice(path, qkv, groups, group, query + key, key)};
    return rotated(PartRole::Attention, path, heads);
  }

  /// Keys and values are raised from a common latent row; the rotated columns of the keys come from
  /// the hidden state and serve every head.
  Heads latent_heads(const std::string& path, int input) {
    const Latent& latent = block_.latent;
    const PartRole part = PartRole::Attention;
    int query = input;
    if (latent.query_rank > 0)
      query = project(part, PartRole::QueryDownNorm, project(part, PartRole::QueryDown, input));
    query = rotate(path, project(part, PartRole::Query, query), block_.heads);

    const std::int64_t down = latent.key_value_rank + latent.rotated_dim;
    const int compressed = project(part, PartRole::KeyValueDown, input);
    const int row = slice(path, compressed, 1, down, 0, latent.key_value_rank);
    const int shared = slice(path, compressed, 1, down, latent.key_value_rank, latent.rotated_dim);
    const int raised =
        project(part, PartRole::KeyValueUp, project(part, PartRole::KeyValueDownNorm, row));
    const std::int64_t head = latent.plain_dim + block_.value_width();
    const int plain = slice(path, raised, block_.heads, head, 0, latent.plain_dim);
    const int value =
        slice(path, raised, block_.heads, head, latent.plain_dim, block_.value_width());
    Attributes rope = block_.rope;
    rope.set(Attribute::Heads, 1);
    rope.set(Attribute::HeadDim, static_cast<double>(latent.rotated_dim));
    rope.set(Attribute::RotaryDim, static_cast<double>(latent.rotated_dim));
    rope.set(Attribute::RotaryOffset, 0);
    const int rotated_key = add(graph_, OperatorKind::Rope, path, std::move(rope), {shared});
    const int key = add(graph_, OperatorKind::Concat, path,
                        {{Attribute::GroupsPerRow, static_cast<double>(block_.heads)},
                         {Attribute::InFeatures, static_cast<double>(latent.plain_dim)},
                         {Attribute::SecondFeatures, static_cast<double>(latent.rotated_dim)},
                         {Attribute::OutFeatures, static_cast<double>(block_.head_dim)}},
                        {plain, rotated_key});
    return {query, key, value};
  }

  int mlp(int input) {
    const PartRole part = mlp_part();
    if (!parts_.has(part, PartRole::Router)) return dense(part, input, block_.intermediate);
    const std::string& path = parts_.path(part, PartRole::Experts);
    const Mixture& mixture = block_.mixture;
    const Attributes choice{{Attribute::Experts, static_cast<double>(mixture.experts)},
                            {Attribute::TopK, static_cast<double>(mixture.top_k)}};
    const int routing = add(graph_, OperatorKind::TopK, parts_.path(part, PartRole::Router), choice,
                            {project(part, PartRole::Router, input)});
    const auto move = [&](OperatorKind kind, int rows) {
      Attributes attributes = choice;
      attributes.set(Attribute::InFeatures, static_cast<double>(block_.channels));
      attributes.set(Attribute::OutFeatures, static_cast<double>(block_.channels));
      return add(graph_, kind, path, std::move(attributes), {rows, routing});
    };
    const int sorted = move(OperatorKind::Dispatch, input);
    const int raised = graph_.add(parts_.op(part, PartRole::Experts), {sorted, routing});
    const int activated =
        add(graph_, OperatorKind::PackedSwiGlu, path, mixture.intermediate, {raised});
    const int lowered = graph_.add(parts_.op(part, PartRole::ExpertsDown), {activated, routing});
    const int combined = move(OperatorKind::Combine, lowered);
    return parts_.has(PartRole::SharedExpert, PartRole::SharedExpert)
               ? add_shared_expert(input, combined)
               : combined;
  }

  int add_shared_expert(int input, int routed) {
    const std::string& path = parts_.path(PartRole::Mlp, PartRole::Mlp);
    int shared = dense(PartRole::SharedExpert, input, block_.mixture.shared_intermediate);
    if (parts_.has(PartRole::Mlp, PartRole::SharedGate)) {
      const std::string& gate_path = parts_.path(PartRole::Mlp, PartRole::SharedGate);
      const int gate = add(graph_, OperatorKind::Sigmoid, gate_path, 1,
                           {project(PartRole::Mlp, PartRole::SharedGate, input)});
      shared = add(graph_, OperatorKind::GateRows, path, block_.channels, {shared, gate});
    }
    return add(graph_, OperatorKind::Add, path, block_.channels, {routed, shared});
  }

  int dense(PartRole part, int input, std::int64_t width) {
    const std::string& path = part == PartRole::Module ? parts_.root : parts_.path(part, part);
    const std::string& activation = parts_.path(part, PartRole::Activation);
    int activated = -1;
    if (parts_.has(part, PartRole::PackedGateUp)) {
      activated = activate_packed(path, width, project(part, PartRole::PackedGateUp, input));
    } else if (parts_.has(part, PartRole::Gate)) {
      const int gate = project(part, PartRole::Gate, input);
      activated = gated(path, width, gate, project(part, PartRole::Up, input));
    } else {
      activated = activate(graph_, block_.activation, activation, width,
                           project(part, PartRole::Up, input));
    }
    return project(part, PartRole::Down, activated);
  }

  int gated(const std::string& path, std::int64_t width, int gate, int up) {
    const bool silu = block_.activation.kind == OperatorKind::Silu;
    check(silu || block_.activation.kind == OperatorKind::Gelu, "gates are of SiLU or GELU");
    return add(graph_, silu ? OperatorKind::SwiGlu : OperatorKind::GeGlu, path,
               activation_attributes(block_.activation, width), {gate, up});
  }

  int activate_packed(const std::string& path, std::int64_t width, int gate_and_up) {
    check(block_.activation.kind == OperatorKind::Silu, "packed gates are of SiLU");
    return add(graph_, OperatorKind::PackedSwiGlu, path, width, {gate_and_up});
  }

  ModelGraph& graph_;
  const Block& block_;
  const Parts& parts_;
  int bias_ = -1;
};

}  // namespace

int activate(ModelGraph& graph, const Activation& activation, const std::string& path,
             std::int64_t channels, int input) {
  return add(graph, activation.kind, path, activation_attributes(activation, channels), {input});
}

std::vector<Parts> declare_blocks(ModuleBuilder& modules, const std::string& path,
                                  const std::vector<Block>& blocks) {
  modules.module(path, "ModuleList");
  std::vector<Parts> all(blocks.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const std::string root = fmt::format("{}.{}", path, i);
    modules.module(root, blocks[i].class_name);
    all[i].root = root;
    BlockDeclaration declare(modules, blocks[i]);
    grow(all[i], blocks[i].parts, root, PartRole::Module, declare);
    if (declare.experts_down())
      all[i].add({PartRole::Mlp, PartRole::ExpertsDown, root, declare.experts_down()});
  }
  return all;
}

int run_blocks(ModelGraph& graph, const std::vector<Block>& blocks, const std::vector<Parts>& parts,
               int hidden, int memory) {
  int bias = -1;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (parts[i].has(PartRole::Attention, PartRole::RelativeBias))
      bias = graph.add(parts[i].op(PartRole::Attention, PartRole::RelativeBias), {});
    hidden = BlockRun(graph, blocks[i], parts[i]).run(hidden, memory, bias);
  }
  return hidden;
}

}  // namespace shardplan
