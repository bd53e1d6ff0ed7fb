#include "planner/families/decoder_graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "plans/error.h"

namespace shardplan {
namespace {

/// Makes the modules around the blocks of a language model.
struct DecoderDeclaration {
  ModuleBuilder& modules;
  const Decoder& decoder;
  std::vector<Parts>& blocks;
  std::optional<Operator> embedding = {};

  std::int64_t channels() const { return decoder.blocks.front().channels; }
  std::int64_t embedded() const {
    return decoder.embedding_channels > 0 ? decoder.embedding_channels : channels();
  }
  std::string class_of(const Part& part, const char* otherwise) const {
    return part.class_name.empty() ? otherwise : part.class_name;
  }

  std::optional<Operator> operator()(const Part& part, const std::string& path, PartRole) {
    const Norm& norm = decoder.blocks.front().norm;
    switch (part.role) {
      case PartRole::Embedding:
        embedding =
            modules.embedding(path, decoder.vocabulary, embedded(), class_of(part, "Embedding"));
        return embedding;
      case PartRole::Positions:
        return modules.position_embedding(path, decoder.positions, channels(),
                                          decoder.position_offset, class_of(part, "Embedding"));
      case PartRole::EmbeddingNorm:
      case PartRole::FinalNorm: return modules.norm(path, norm, {.channels = channels()});
      case PartRole::ProjectIn: return modules.linear(path, embedded(), channels(), Bias::No);
      case PartRole::ProjectOut: return modules.linear(path, channels(), embedded(), Bias::No);
      case PartRole::Blocks:
        blocks = declare_blocks(modules, path, decoder.blocks);
        return std::nullopt;
      case PartRole::Head:
        return decoder.tied
                   ? modules.tied_head(path, *embedding, decoder.head_bias)
                   : modules.linear(path, embedded(), decoder.vocabulary, decoder.head_bias);
      default: modules.module(path, part.class_name); return std::nullopt;
    }
  }
};

bool holds(const std::vector<Part>& parts, PartRole role) {
  return std::ranges::any_of(
      parts, [&](const Part& part) { return part.role == role || holds(part.children, role); });
}

/// A gate multiplies with SiLU or GELU; one projection for gate and up goes with SiLU.
void expect_gate(ModelConfig& config, const Block& block) {
  const bool packed =
      holds(block.parts, PartRole::PackedGateUp) || holds(block.parts, PartRole::Experts);
  const bool separate = holds(block.parts, PartRole::Gate);
  const OperatorKind kind = block.activation.kind;
  if (packed && kind != OperatorKind::Silu)
    config.fields.fail(
        fmt::format("gate and up in one product with {} are not supported yet; "
                    "supported: silu",
                    spec(kind).name));
  if (separate && kind != OperatorKind::Silu && kind != OperatorKind::Gelu)
    config.fields.fail(
        fmt::format("a gate with {} is not supported yet; supported: silu, gelu", spec(kind).name));
}

}  // namespace

DecoderStack::DecoderStack(ModuleBuilder& modules, const Decoder& decoder, const std::string& root)
    : modules_(modules), decoder_(decoder) {
  DecoderDeclaration declare{modules, decoder, blocks_};
  grow(parts_, decoder.parts, root, PartRole::Module, declare);
}

int DecoderStack::embed(int tokens) {
  ModelGraph& graph = modules_.graph();
  const PartRole part = PartRole::Module;
  int hidden = graph.add(parts_.op(part, PartRole::Embedding), {tokens});
  if (parts_.has(part, PartRole::ProjectIn))
    hidden = graph.add(parts_.op(part, PartRole::ProjectIn), {hidden});
  if (decoder_.embedding_scale != 1)
    hidden = add(
        graph, OperatorKind::Scale, parts_.path(part, PartRole::Embedding),
        Attributes{{Attribute::OutFeatures, static_cast<double>(decoder_.blocks.front().channels)},
                   {Attribute::Scale, decoder_.embedding_scale}},
        {hidden});
  return hidden;
}

int DecoderStack::run(int hidden) {
  ModelGraph& graph = modules_.graph();
  for (const PartRole role : {PartRole::Positions, PartRole::EmbeddingNorm})
    if (parts_.has(PartRole::Module, role))
      hidden = graph.add(parts_.op(PartRole::Module, role), {hidden});
  hidden = run_blocks(graph, decoder_.blocks, blocks_, hidden);
  for (const PartRole role : {PartRole::FinalNorm, PartRole::ProjectOut})
    if (parts_.has(PartRole::Module, role))
      hidden = graph.add(parts_.op(PartRole::Module, role), {hidden});
  return hidden;
}

int DecoderStack::logits(int hidden) {
  ModelGraph& graph = modules_.graph();
  const std::string& path = parts_.path(PartRole::Module, PartRole::Head);
  int logits = graph.add(parts_.op(PartRole::Module, PartRole::Head), {hidden});
  const auto change = [&](OperatorKind kind, Attribute constant, double value) {
    logits = add(graph, kind, path,
                 Attributes{{Attribute::OutFeatures, static_cast<double>(decoder_.vocabulary)},
                            {constant, value}},
                 {logits});
  };
  if (decoder_.logits_scale != 1)
    change(OperatorKind::Scale, Attribute::Scale, decoder_.logits_scale);
  if (decoder_.logits_soft_cap > 0)
    change(OperatorKind::SoftCap, Attribute::SoftCap, decoder_.logits_soft_cap);
  return logits;
}

ModelGraph build_decoder(ModelConfig& config, const Decoder& decoder) {
  expect_gate(config, decoder.blocks.back());
  ModelGraph graph;
  graph.family = decoder.family;
  graph.block_classes = {decoder.blocks.front().class_name};
  ModuleBuilder modules(graph, decoder.deviation);
  const auto [tokens, targets] = add_inputs(graph);
  modules.module("", decoder.model_class);
  DecoderStack stack(modules, decoder);
  const int logits = stack.logits(stack.run(stack.embed(tokens)));
  add_loss(graph, logits, targets, decoder.vocabulary);
  graph.buffers_bytes = decoder.buffers_bytes;
  remark_on_the_rest(config, decoder.dropouts, decoder.model_class);
  if (decoder.blocks.back().mixture.experts > 0)
    config.remarks.emplace_back(
        "experts are planned at capacity: every token goes to its top-k, spread evenly");
  graph.remarks = std::move(config.remarks);
  return graph;
}

}  // namespace shardplan
