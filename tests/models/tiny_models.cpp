#include "tests/models/tiny_models.h"

namespace shardplan::testing {
namespace {

using Kind = OperatorKind;

class Builder {
 public:
  explicit Builder(const TinyLlama& sizes) : sizes_(sizes) {}

  ModelGraph build() {
    graph_.family = "llama";
    graph_.block_classes = {"LlamaDecoderLayer"};
    graph_.modules = {{"", "LlamaForCausalLM"},
                      {"model", "LlamaModel"},
                      {"model.embed_tokens", "Embedding"},
                      {"lm_head", "Linear"}};
    const int tokens = add(Kind::Input, "tokens", {}, {}, {});
    const int targets = add(Kind::Input, "targets", {}, {}, {});
    const int table = weight("model.embed_tokens.weight", {sizes_.vocab, sizes_.channels});
    int x = add(Kind::Embedding, "model.embed_tokens",
                {{Attribute::InFeatures, sizes_.vocab}, {Attribute::OutFeatures, sizes_.channels}},
                {table}, {tokens});
    for (int layer = 0; layer < sizes_.layers; ++layer)
      x = block("model.layers." + std::to_string(layer), x);
    x = norm("model.norm", x);
    const int head =
        sizes_.tied ? table : weight("lm_head.weight", {sizes_.vocab, sizes_.channels});
    const int logits =
        add(Kind::Linear, "lm_head",
            {{Attribute::InFeatures, sizes_.channels}, {Attribute::OutFeatures, sizes_.vocab}},
            {head}, {x});
    add(Kind::CrossEntropy, "loss", {{Attribute::InFeatures, sizes_.vocab}}, {}, {logits, targets});
    return std::move(graph_);
  }

 private:
  int add(Kind kind, std::string module, Attributes attributes, std::vector<int> parameters,
          const std::vector<int>& inputs) {
    return graph_.add({kind, std::move(module), std::move(attributes), std::move(parameters), {}},
                      inputs);
  }
  int weight(std::string name, std::vector<std::int64_t> shape) {
    return graph_.add_parameter({std::move(name), std::move(shape), {}});
  }
  int linear(const std::string& module, int x, int w, int in, int out) {
    graph_.modules.push_back({module, "Linear"});
    return add(Kind::Linear, module, {{Attribute::InFeatures, in}, {Attribute::OutFeatures, out}},
               {w}, {x});
  }
  int norm(const std::string& module, int x) {
    graph_.modules.push_back({module, "LlamaRMSNorm"});
    const int w = weight(module + ".weight", {sizes_.channels});
    return add(Kind::RmsNorm, module,
               {{Attribute::OutFeatures, sizes_.channels}, {Attribute::Epsilon, 1e-5}}, {w}, {x});
  }
  int rope(const std::string& module, int x, int heads) {
    return add(Kind::Rope, module,
               {{Attribute::Heads, heads},
                {Attribute::HeadDim, head_dim()},
                {Attribute::RopeTheta, 10000}},
               {}, {x});
  }
  int head_dim() const { return sizes_.channels / sizes_.heads; }

  /// Parameters in the order of Hugging Face's modules: the norms come last.
  int block(const std::string& name, int x) {
    graph_.modules.push_back({name, "LlamaDecoderLayer"});
    const std::string attention = name + ".self_attn";
    graph_.modules.push_back({attention, "LlamaAttention"});
    graph_.modules.push_back({name + ".mlp", "LlamaMLP"});
    const int c = sizes_.channels;
    const int kv = sizes_.kv_heads * head_dim();
    const int f = sizes_.ffn;
    const int wq = weight(attention + ".q_proj.weight", {c, c});
    const int wk = weight(attention + ".k_proj.weight", {kv, c});
    const int wv = weight(attention + ".v_proj.weight", {kv, c});
    const int wo = weight(attention + ".o_proj.weight", {c, c});
    const int wgate = weight(name + ".mlp.gate_proj.weight", {f, c});
    const int wup = weight(name + ".mlp.up_proj.weight", {f, c});
    const int wdown = weight(name + ".mlp.down_proj.weight", {c, f});
    const int n = norm(name + ".input_layernorm", x);
    const int q = rope(attention, linear(attention + ".q_proj", n, wq, c, c), sizes_.heads);
    const int k = rope(attention, linear(attention + ".k_proj", n, wk, c, kv), sizes_.kv_heads);
    const int v = linear(attention + ".v_proj", n, wv, c, kv);
    const int mixed = add(Kind::Attention, attention,
                          {{Attribute::Heads, sizes_.heads},
                           {Attribute::KvHeads, sizes_.kv_heads},
                           {Attribute::HeadDim, head_dim()},
                           {Attribute::Scale, 0.25}},
                          {}, {q, k, v});
    const Attributes width{{Attribute::OutFeatures, c}};
    x = add(Kind::Add, name, width, {}, {x, linear(attention + ".o_proj", mixed, wo, c, c)});
    const int m = norm(name + ".post_attention_layernorm", x);
    const int gate = linear(name + ".mlp.gate_proj", m, wgate, c, f);
    const int up = linear(name + ".mlp.up_proj", m, wup, c, f);
    const int product =
        add(Kind::SwiGlu, name + ".mlp", {{Attribute::OutFeatures, f}}, {}, {gate, up});
    return add(Kind::Add, name, width, {},
               {x, linear(name + ".mlp.down_proj", product, wdown, f, c)});
  }

  const TinyLlama sizes_;
  ModelGraph graph_;
};

}  // namespace

ModelGraph tiny_llama(const TinyLlama& sizes) { return Builder(sizes).build(); }

Job tiny_job(Strategy sharding, int world) {
  Job job;
  job.strategy.sharding = sharding;
  job.cluster.gpu.key = "cpu";
  job.cluster.gpu.node_type = "cpu-host";
  job.cluster.gpus_per_node = world;
  job.training.micro_batch = 2;
  job.training.sequence_length = 8;
  job.training.clip_grad_norm = 1.0;
  return job;
}

}  // namespace shardplan::testing
