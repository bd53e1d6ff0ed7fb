#include "planner/families/family.h"

#include <array>

namespace shardplan {

std::span<const Family> families() {
  static constexpr std::array kFamilies{
      Family{"llama", "LlamaForCausalLM", describe_llama},
      Family{"mistral", "MistralForCausalLM", describe_mistral},
      Family{"mixtral", "MixtralForCausalLM", describe_mixtral},
      Family{"qwen2", "Qwen2ForCausalLM", describe_qwen2},
      Family{"qwen2_moe", "Qwen2MoeForCausalLM", describe_qwen2_moe},
      Family{"qwen3", "Qwen3ForCausalLM", describe_qwen3},
      Family{"qwen3_moe", "Qwen3MoeForCausalLM", describe_qwen3_moe},
      Family{"gemma", "GemmaForCausalLM", describe_gemma},
      Family{"gemma2", "Gemma2ForCausalLM", describe_gemma2},
      Family{"gemma3_text", "Gemma3ForCausalLM", describe_gemma3_text},
      Family{"phi", "PhiForCausalLM", describe_phi},
      Family{"phi3", "Phi3ForCausalLM", describe_phi3},
      Family{"phimoe", "PhimoeForCausalLM", describe_phimoe},
      Family{"gpt2", "GPT2LMHeadModel", describe_gpt2},
      Family{"gpt_bigcode", "GPTBigCodeForCausalLM", describe_gpt_bigcode},
      Family{"gpt_neo", "GPTNeoForCausalLM", describe_gpt_neo},
      Family{"gpt_neox", "GPTNeoXForCausalLM", describe_gpt_neox},
      Family{"gptj", "GPTJForCausalLM", describe_gptj},
      Family{"codegen", "CodeGenForCausalLM", describe_codegen},
      Family{"opt", "OPTForCausalLM", describe_opt},
      Family{"bloom", "BloomForCausalLM", describe_bloom},
      Family{"falcon", "FalconForCausalLM", describe_falcon},
      Family{"mpt", "MptForCausalLM", describe_mpt},
      Family{"starcoder2", "Starcoder2ForCausalLM", describe_starcoder2},
      Family{"olmo", "OlmoForCausalLM", describe_olmo},
      Family{"olmo2", "Olmo2ForCausalLM", describe_olmo2},
      Family{"olmoe", "OlmoeForCausalLM", describe_olmoe},
      Family{"deepseek_v2", "DeepseekV2ForCausalLM", describe_deepseek_v2},
      Family{"deepseek_v3", "DeepseekV3ForCausalLM", describe_deepseek_v3},
      Family{"cohere", "CohereForCausalLM", describe_cohere},
      Family{"cohere2", "Cohere2ForCausalLM", describe_cohere2},
      Family{"stablelm", "StableLmForCausalLM", describe_stablelm},
      Family{"granite", "GraniteForCausalLM", describe_granite},
      Family{"smollm3", "SmolLM3ForCausalLM", describe_smollm3},
      Family{"glm", "GlmForCausalLM", describe_glm},
      Family{"glm4", "Glm4ForCausalLM", describe_glm4},
      Family{"chatglm", "ChatGLMForConditionalGeneration", describe_chatglm},
      Family{"bert", "BertForMaskedLM", nullptr, build_bert},
      Family{"roberta", "RobertaForMaskedLM", nullptr, build_roberta},
      Family{"xlm-roberta", "XLMRobertaForMaskedLM", nullptr, build_xlm_roberta},
      Family{"distilbert", "DistilBertForMaskedLM", nullptr, build_distilbert},
      Family{"t5", "T5ForConditionalGeneration", nullptr, build_t5},
      Family{"mt5", "MT5ForConditionalGeneration", nullptr, build_mt5},
      Family{"vit", "ViTForImageClassification", nullptr, build_vit},
      Family{"whisper", "WhisperForConditionalGeneration", nullptr, build_whisper},
      Family{"llava", "LlavaForConditionalGeneration", nullptr, build_llava},
      Family{"gemma3", "Gemma3ForConditionalGeneration", nullptr, build_gemma3},
  };
  return kFamilies;
}

}  // namespace shardplan
