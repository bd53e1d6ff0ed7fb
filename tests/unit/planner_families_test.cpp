// Traps of config.json files, one test each, and what distinguishes the families. That the counts
// are those of transformers is held by shardplan_oracle configs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/model.h"
#include "planner/planner.h"
#include "plans/error.h"
#include "plans/verify.h"

namespace shardplan {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

/// A small model of a type; `more` adds fields.
ModelGraph graph_of(const std::string& type, const std::string& more) {
  return model_from_config(fmt::format(R"({{"model_type": "{}", {}}})", type, more), "c.json");
}

/// Sizes that most decoders read under these names.
const std::string kSmall =
    R"("vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 2)";

std::string small(const std::string& more) { return kSmall + ", " + more; }

std::vector<Operator> operators(const ModelGraph& graph, OperatorKind kind) {
  std::vector<Operator> found;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag)))
    if (graph.dag[vertex].kind == kind) found.push_back(graph.dag[vertex]);
  return found;
}

std::vector<std::int64_t> shape_of(const ModelGraph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.parameters, name, &Parameter::name);
  return found == graph.parameters.end() ? std::vector<std::int64_t>{} : found->shape;
}

/// What verify complains about.
std::vector<std::string> faults_of(const Plan& plan) {
  std::vector<std::string> faults;
  for (const Fault& fault : verify(plan))
    faults.push_back(fmt::format("{} {}: {}", fault.instruction, fault.buffer, fault.why));
  return faults;
}

bool is_tied(const ModelGraph& graph) {
  return operators(graph, OperatorKind::Linear).back().parameters.front() ==
         operators(graph, OperatorKind::Embedding).front().parameters.front();
}

TEST(ConfigTraps, MissingKeyValueHeadsAreTheClassDefault) {
  const auto kv_heads = [](const std::string& type) {
    const std::string sizes = R"("vocab_size": 512, "hidden_size": 128, "intermediate_size": 96,
                                 "num_hidden_layers": 1, "num_attention_heads": 32)";
    return operators(graph_of(type, sizes), OperatorKind::Attention)
        .front()
        .attributes.integer(Attribute::KvHeads);
  };
  EXPECT_EQ(kv_heads("llama"), 32);
  EXPECT_EQ(kv_heads("mistral"), 8);
  EXPECT_EQ(kv_heads("starcoder2"), 2);
  EXPECT_EQ(kv_heads("qwen3_moe"), 4);
}

TEST(ConfigTraps, DeclaredHeadDimWinsAndNullMeansDerive) {
  const auto query = [](const std::string& fields) {
    return shape_of(graph_of("mistral", small(fields)), "model.layers.0.self_attn.q_proj.weight");
  };
  EXPECT_THAT(query(R"("head_dim": 32)"), ElementsAre(128, 64));
  EXPECT_THAT(query(R"("head_dim": null)"), ElementsAre(64, 64));
  // Classes with a width of their own keep it when the file is silent.
  EXPECT_THAT(shape_of(graph_of("gemma", kSmall), "model.layers.0.self_attn.q_proj.weight"),
              ElementsAre(1024, 64));
}

TEST(ConfigTraps, TyingFollowsTheClassWhenTheFileIsSilent) {
  for (const char* type : {"gemma", "gemma2", "falcon", "opt", "starcoder2", "cohere"})
    EXPECT_TRUE(is_tied(graph_of(type, kSmall))) << type;
  for (const char* type : {"llama", "mistral", "qwen2", "phi3", "gpt_neox", "olmo"})
    EXPECT_FALSE(is_tied(graph_of(type, kSmall))) << type;
}

TEST(ConfigTraps, T5IsTiedWhateverTheFileSaysAndSaysSo) {
  const std::string sizes = R"("d_model": 64, "d_ff": 96, "num_layers": 1, "vocab_size": 512)";
  const ModelGraph graph = graph_of("t5", sizes + R"(, "tie_word_embeddings": false)");
  EXPECT_TRUE(is_tied(graph));
  EXPECT_THAT(graph.remarks, Contains(HasSubstr("a head of its own holds 32768 parameters more")));
  // The flag only switches the scaling of the output.
  EXPECT_THAT(operators(graph, OperatorKind::Scale), IsEmpty());
  EXPECT_EQ(operators(graph_of("t5", sizes), OperatorKind::Scale).size(), 1U);
}

TEST(ConfigTraps, T5WithAHeadOfItsOwnIsCountedWhenTheJobSaysSo) {
  const std::string flan = SHARDPLAN_SOURCE_DIR "/tests/oracle/configs/flan-t5-xl";
  EXPECT_EQ(build_model({.hf_config = flan}).parameter_count(), 2783959040);
  EXPECT_EQ(build_model({.hf_config = flan, .tie_word_embeddings = false}).parameter_count(),
            2849757184);  // as the published checkpoint
}

TEST(ConfigTraps, KeysAndValuesHaveTheDeclaredHeadWidth) {
  const ModelGraph graph = graph_of("gemma2", R"("hidden_size": 3584, "num_attention_heads": 16,
      "num_key_value_heads": 8, "head_dim": 256, "num_hidden_layers": 1, "vocab_size": 512)");
  const std::string attention = "model.layers.0.self_attn.";
  std::int64_t channels = 0;
  for (const char* name : {"k_proj.weight", "v_proj.weight"})
    channels += shape_of(graph, attention + name).front();
  EXPECT_EQ(channels * size_of(Dtype::BFloat16), 8192);  // bytes of a token in a layer's cache
}

TEST(ConfigTraps, NestedTextConfigTakesClassDefaultsAndTheOuterTie) {
  const std::string vision = R"("vision_config": {"model_type": "clip_vision_model",
      "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2,
      "num_hidden_layers": 2, "image_size": 28, "patch_size": 14})";
  const ModelGraph graph =
      graph_of("llava", vision + R"(, "text_config": {"model_type": "llama", "vocab_size": 320,
                             "num_hidden_layers": 1, "tie_word_embeddings": true})");
  EXPECT_THAT(shape_of(graph, "model.language_model.layers.0.mlp.up_proj.weight"),
              ElementsAre(11008, 4096));
  EXPECT_THAT(shape_of(graph, "lm_head.weight"), ElementsAre(320, 4096));
  EXPECT_FALSE(is_tied(graph));
  EXPECT_THAT(graph.remarks, Contains("text_config.hidden_size is missing: the class's 4096 is "
                                      "taken"));
  EXPECT_THAT(graph.remarks, Contains(HasSubstr("tie_word_embeddings of the outer config counts")));
}

TEST(Llava, PlansWhatTheLossDoesNotDependOnWithoutGradient) {
  const ModelGraph graph =
      build_model({.hf_config = SHARDPLAN_SOURCE_DIR "/tests/oracle/configs/llava-1.5-7b"});
  // The last block of the tower and the norm behind it: features come from the block before.
  EXPECT_THAT(graph.remarks, Contains(HasSubstr("12598272 parameters of the vision tower")));
  EXPECT_TRUE(std::ranges::all_of(graph.parameters, &Parameter::trainable));
}

TEST(ConfigTraps, ResizedVocabulariesNeedNotBeEven) {
  const ModelGraph graph = graph_of("llama", R"("vocab_size": 513, "hidden_size": 64,
      "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4)");
  EXPECT_THAT(shape_of(graph, "lm_head.weight"), ElementsAre(513, 64));
  Job job;
  job.training.sequence_length = 8;
  EXPECT_THAT(faults_of(make_plan(job, graph)), IsEmpty());
}

TEST(ConfigTraps, AliasesCount) {
  EXPECT_EQ(graph_of("bloom", R"("n_embed": 64, "n_layer": 2, "num_attention_heads": 4,
                                 "vocab_size": 512)")
                .parameter_count(),
            graph_of("bloom", R"("hidden_size": 64, "num_hidden_layers": 2, "n_head": 4,
                                 "vocab_size": 512)")
                .parameter_count());
  EXPECT_EQ(graph_of("mixtral", small(R"("num_experts": 4)")).parameter_count(),
            graph_of("mixtral", small(R"("num_local_experts": 4)")).parameter_count());
}

TEST(ConfigTraps, ClassDefaultsOfMissingSizesAreRemarkedOn) {
  const ModelGraph graph = graph_of("gpt2", R"("n_layer": 1)");
  EXPECT_THAT(shape_of(graph, "transformer.wte.weight"), ElementsAre(50257, 768));
  EXPECT_THAT(graph.remarks, Contains("vocab_size is missing: the class's 50257 is taken"));
}

TEST(ConfigTraps, QuantisedCheckpointsCountUnquantised) {
  const std::string quantised =
      small(R"("quantization_config": {"bits": 4, "quant_method": "gptq"})");
  const ModelGraph graph = graph_of("llama", quantised);
  EXPECT_EQ(graph.parameter_count(), graph_of("llama", kSmall).parameter_count());
  EXPECT_THAT(graph.remarks,
              Contains("quantization_config is ignored: parameters count unquantised"));
}

TEST(ConfigTraps, SizesThatOnlyDenseLayersUseDoNotCountInExperts) {
  const ModelGraph graph =
      graph_of("qwen3_moe", small(R"("num_experts": 4, "num_experts_per_tok": 2, "head_dim": 32,
                            "moe_intermediate_size": 24, "mlp_only_layers": [0])"));
  EXPECT_THAT(shape_of(graph, "model.layers.0.mlp.up_proj.weight"), ElementsAre(96, 64));
  EXPECT_THAT(shape_of(graph, "model.layers.1.mlp.experts.gate_up_proj"), ElementsAre(4, 48, 64));
}

TEST(Mixture, IsPlannedAtCapacityAndSaysSo) {
  const ModelGraph graph =
      graph_of("mixtral", small(R"("num_local_experts": 4, "num_experts_per_tok": 2)"));
  EXPECT_THAT(graph.remarks, Contains(HasSubstr("planned at capacity")));
  const TensorType rows = operators(graph, OperatorKind::Dispatch).front().output;
  EXPECT_EQ(rows.elements({.batch = 3, .time = 5}), 3 * 5 * 2 * 64);
  EXPECT_EQ(operators(graph, OperatorKind::Combine).front().output,
            operators(graph, OperatorKind::Embedding).front().output);
}

TEST(Gemma, EarlyFilesMeanTheApproximationByGelu) {
  const auto gelu = [](const std::string& type, const std::string& field) {
    return operators(graph_of(type, small(field)), OperatorKind::GeGlu)
        .front()
        .attributes.integer(Attribute::TanhApproximation);
  };
  EXPECT_EQ(gelu("gemma", R"("hidden_act": "gelu")"), 1);
  EXPECT_EQ(gelu("gemma2", R"("hidden_activation": "gelu")"), 0);
}

TEST(Gemma2, SlidesEveryOtherWindowAndCapsScoresAndLogits) {
  const ModelGraph graph = graph_of("gemma2", kSmall);
  const auto attention = operators(graph, OperatorKind::Attention);
  EXPECT_EQ(attention[0].attributes.integer(Attribute::Window), 4096);
  EXPECT_FALSE(attention[1].attributes.has(Attribute::Window));
  EXPECT_EQ(attention[0].attributes.real(Attribute::SoftCap), 50);
  EXPECT_EQ(operators(graph, OperatorKind::SoftCap).size(), 1U);
  const ModelGraph uncapped = graph_of("gemma2", small(R"("final_logit_softcapping": null)"));
  EXPECT_THAT(operators(uncapped, OperatorKind::SoftCap), IsEmpty());
}

TEST(Deepseek, SharesTheRotatedColumnsOfKeysAmongHeads) {
  const ModelGraph graph =
      graph_of("deepseek_v3", R"("vocab_size": 512, "hidden_size": 64, "intermediate_size": 96,
      "num_hidden_layers": 2, "num_attention_heads": 4, "q_lora_rank": null, "kv_lora_rank": 16,
      "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "first_k_dense_replace": 1,
      "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24)");
  const Operator attention = operators(graph, OperatorKind::Attention).front();
  EXPECT_EQ(attention.attributes.integer(Attribute::HeadDim), 12);
  EXPECT_EQ(attention.attributes.integer(Attribute::ValueHeadDim), 6);
  EXPECT_EQ(attention.output.elements({}), 4 * 6);
  EXPECT_THAT(shape_of(graph, "model.layers.0.self_attn.kv_a_proj_with_mqa.weight"),
              ElementsAre(16 + 4, 64));
  EXPECT_THAT(shape_of(graph, "model.layers.0.self_attn.q_proj.weight"), ElementsAre(48, 64));
}

TEST(Whisper, KeepsTheEncodersPositionsAsTheyAre) {
  const ModelGraph graph = graph_of("whisper", R"("d_model": 48, "encoder_layers": 1,
      "decoder_layers": 1, "max_source_positions": 20, "vocab_size": 100)");
  const auto& frozen = *std::ranges::find(graph.parameters, false, &Parameter::trainable);
  EXPECT_EQ(frozen.name, "model.encoder.embed_positions.weight");
  EXPECT_EQ(std::ranges::count(graph.parameters, false, &Parameter::trainable), 1);
  // Two convolutions halve the 40 frames.
  EXPECT_EQ(operators(graph, OperatorKind::Convolution)[1].output.elements({}), 20 * 48);
}

TEST(Opt, LearnsTwoPositionsMoreThanItUses) {
  const std::string sizes = R"("vocab_size": 512, "hidden_size": 64, "ffn_dim": 96,
      "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 16)";
  const ModelGraph graph = graph_of("opt", sizes);
  EXPECT_THAT(shape_of(graph, "model.decoder.embed_positions.weight"), ElementsAre(18, 64));
  Job job;
  job.training.sequence_length = 16;
  EXPECT_NO_THROW(make_plan(job, graph));
  job.training.sequence_length = 17;
  EXPECT_THROW(make_plan(job, graph), InputError);
}

/// Every family can be planned: a small model of each.
struct SmallModel {
  const char* type;
  const char* fields;
};
class Families : public testing::TestWithParam<SmallModel> {};

TEST_P(Families, AreSharedOutAndVerified) {
  const ModelGraph graph = graph_of(GetParam().type, GetParam().fields);
  Job job;
  job.cluster.gpus_per_node = 3;
  job.training.micro_batch = 2;
  job.training.sequence_length = 8;
  for (const Strategy strategy :
       {Strategy::FullShard, Strategy::ShardGradOp, Strategy::NoShard, Strategy::Ddp}) {
    job.strategy.sharding = strategy;
    const Plan plan = make_plan(job, graph);
    EXPECT_THAT(faults_of(plan), IsEmpty()) << to_string(strategy);
    EXPECT_GT(plan.model_flops_per_token, 0);
  }
}

constexpr const char* kDecoder =
    R"("vocab_size": 512, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
       "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
       "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
       "shared_expert_intermediate_size": 32)";
constexpr const char* kGpt =
    R"("vocab_size": 512, "n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8)";
INSTANTIATE_TEST_SUITE_P(
    EachWithASmallModel, Families,
    testing::Values(
        SmallModel{"llama", kDecoder}, SmallModel{"mistral", kDecoder},
        SmallModel{"mixtral", kDecoder}, SmallModel{"qwen2", kDecoder},
        SmallModel{"qwen2_moe", kDecoder}, SmallModel{"qwen3", kDecoder},
        SmallModel{"qwen3_moe", kDecoder}, SmallModel{"gemma", kDecoder},
        SmallModel{"gemma2", kDecoder}, SmallModel{"gemma3_text", kDecoder},
        SmallModel{"phi", kDecoder}, SmallModel{"phi3", kDecoder}, SmallModel{"phimoe", kDecoder},
        SmallModel{"gpt2", kGpt}, SmallModel{"gpt_bigcode", kGpt},
        SmallModel{"gpt_neo", R"("vocab_size": 512, "hidden_size": 64, "num_layers": 2,
                                 "num_heads": 4)"},
        SmallModel{"gpt_neox", kDecoder}, SmallModel{"gptj", kGpt}, SmallModel{"codegen", kGpt},
        SmallModel{"opt", R"("vocab_size": 512, "hidden_size": 64, "ffn_dim": 96,
                             "num_hidden_layers": 2, "num_attention_heads": 4,
                             "word_embed_proj_dim": 32, "do_layer_norm_before": false)"},
        SmallModel{"bloom", R"("vocab_size": 512, "n_embed": 64, "n_layer": 2, "n_head": 4)"},
        SmallModel{"falcon", R"("vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2,
                                "num_attention_heads": 4, "num_kv_heads": 2,
                                "new_decoder_architecture": true)"},
        SmallModel{"mpt", R"("vocab_size": 512, "d_model": 64, "n_layers": 2, "n_heads": 4)"},
        SmallModel{"starcoder2", kDecoder}, SmallModel{"olmo", kDecoder},
        SmallModel{"olmo2", kDecoder}, SmallModel{"olmoe", kDecoder},
        SmallModel{"deepseek_v2", R"("vocab_size": 512, "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
            "v_head_dim": 6, "first_k_dense_replace": 1, "n_routed_experts": 4,
            "num_experts_per_tok": 2, "moe_intermediate_size": 24)"},
        SmallModel{"cohere", kDecoder}, SmallModel{"cohere2", kDecoder},
        SmallModel{"stablelm", kDecoder}, SmallModel{"granite", kDecoder},
        SmallModel{"smollm3", kDecoder}, SmallModel{"glm", kDecoder}, SmallModel{"glm4", kDecoder},
        SmallModel{"chatglm", R"("padded_vocab_size": 512, "hidden_size": 64,
            "ffn_hidden_size": 96, "num_layers": 2, "num_attention_heads": 4, "kv_channels": 16,
            "multi_query_attention": true, "multi_query_group_num": 2, "add_qkv_bias": true)"},
        SmallModel{"bert", kDecoder}, SmallModel{"roberta", kDecoder},
        SmallModel{"distilbert", R"("vocab_size": 512, "dim": 64, "hidden_dim": 96,
                                    "n_layers": 2, "n_heads": 4)"},
        SmallModel{"t5", R"("vocab_size": 512, "d_model": 64, "d_ff": 96, "num_layers": 2,
                            "num_decoder_layers": 3, "num_heads": 4, "d_kv": 16,
                            "feed_forward_proj": "gated-gelu")"},
        SmallModel{"vit", R"("hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                             "num_attention_heads": 4, "image_size": 32)"},
        SmallModel{"whisper", R"("d_model": 48, "encoder_layers": 2, "decoder_layers": 2,
                                 "max_source_positions": 20, "vocab_size": 100)"},
        SmallModel{"llava", R"("text_config": {"model_type": "llama", "hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
            "vocab_size": 512}, "vision_config": {"hidden_size": 32, "intermediate_size": 48,
            "num_attention_heads": 2, "num_hidden_layers": 2, "image_size": 28,
            "patch_size": 14})"},
        SmallModel{"gemma3", R"("mm_tokens_per_image": 4, "text_config": {"hidden_size": 64,
            "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 512},
            "vision_config": {"hidden_size": 32, "intermediate_size": 48,
            "num_attention_heads": 2, "num_hidden_layers": 2, "image_size": 64, "patch_size": 16,
            "vision_use_head": false})"}),
    [](const auto& model) { return std::string(model.param.type); });

}  // namespace
}  // namespace shardplan
