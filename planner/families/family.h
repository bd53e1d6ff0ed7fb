#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plans/document.h"

namespace shardplan {

/// What a family's builder reads: the fields of a config.json, and what a job says instead.
struct ModelConfig {
  Fields fields;
  std::optional<bool> tie_word_embeddings;
  std::optional<int> layers;              // blocks
  std::vector<std::string> remarks = {};  // what the graph leaves out or takes for granted
};

struct Decoder;
struct ModelGraph;

/// Models of one config.json `model_type`. To add a family: a file of this folder that describes
/// it, declared below, and a row in families().
struct Family {
  std::string_view model_type;   // "llama"
  std::string_view model_class;  // "LlamaForCausalLM", what transformers makes of the type
  /// What distinguishes a decoder-only language model. Throws InputError for a config that makes no
  /// sense or is not supported yet.
  Decoder (*describe)(ModelConfig& config) = nullptr;
  /// The graph of another kind of model; one of the two is there.
  ModelGraph (*build)(ModelConfig& config) = nullptr;
};
std::span<const Family> families();

Decoder describe_llama(ModelConfig& config);
Decoder describe_mistral(ModelConfig& config);
Decoder describe_mixtral(ModelConfig& config);
Decoder describe_qwen2(ModelConfig& config);
Decoder describe_qwen2_moe(ModelConfig& config);
Decoder describe_qwen3(ModelConfig& config);
Decoder describe_qwen3_moe(ModelConfig& config);
Decoder describe_gemma(ModelConfig& config);
Decoder describe_gemma2(ModelConfig& config);
Decoder describe_gemma3_text(ModelConfig& config);
Decoder describe_phi(ModelConfig& config);
Decoder describe_phi3(ModelConfig& config);
Decoder describe_phimoe(ModelConfig& config);
Decoder describe_gpt2(ModelConfig& config);
Decoder describe_gpt_bigcode(ModelConfig& config);
Decoder describe_gpt_neo(ModelConfig& config);
Decoder describe_gpt_neox(ModelConfig& config);
Decoder describe_gptj(ModelConfig& config);
Decoder describe_codegen(ModelConfig& config);
Decoder describe_opt(ModelConfig& config);
Decoder describe_bloom(ModelConfig& config);
Decoder describe_falcon(ModelConfig& config);
Decoder describe_mpt(ModelConfig& config);
Decoder describe_starcoder2(ModelConfig& config);
Decoder describe_olmo(ModelConfig& config);
Decoder describe_olmo2(ModelConfig& config);
Decoder describe_olmoe(ModelConfig& config);
Decoder describe_deepseek_v2(ModelConfig& config);
Decoder describe_deepseek_v3(ModelConfig& config);
Decoder describe_cohere(ModelConfig& config);
Decoder describe_cohere2(ModelConfig& config);
Decoder describe_stablelm(ModelConfig& config);
Decoder describe_granite(ModelConfig& config);
Decoder describe_smollm3(ModelConfig& config);
Decoder describe_glm(ModelConfig& config);
Decoder describe_glm4(ModelConfig& config);
Decoder describe_chatglm(ModelConfig& config);

ModelGraph build_bert(ModelConfig& config);
ModelGraph build_roberta(ModelConfig& config);
ModelGraph build_xlm_roberta(ModelConfig& config);
ModelGraph build_distilbert(ModelConfig& config);
ModelGraph build_t5(ModelConfig& config);
ModelGraph build_mt5(ModelConfig& config);
ModelGraph build_vit(ModelConfig& config);
ModelGraph build_whisper(ModelConfig& config);
ModelGraph build_llava(ModelConfig& config);
ModelGraph build_gemma3(ModelConfig& config);

}  // namespace shardplan
