#include "planner/model.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/planner.h"
#include "plans/document.h"
#include "plans/job_reader.h"
#include "plans/presets.h"

namespace shardplan {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kConfigs = SHARDPLAN_SOURCE_DIR "/tests/oracle/configs/";

/// A two-block Llama; `more` is added to its config and may replace earlier fields by name.
std::string tiny_llama(const std::string& more = "", const std::string& type = "llama") {
  return fmt::format(
      R"({{"model_type": "{}", "vocab_size": 512, "hidden_size": 64, "intermediate_size": 172,
          "num_hidden_layers": 2, "num_attention_heads": 4{}{}}})",
      type, more.empty() ? "" : ", ", more);
}

std::string tiny_gpt2(const std::string& more = "") {
  return fmt::format(R"({{"model_type": "gpt2", "vocab_size": 512, "n_embd": 60, "n_layer": 3,
                         "n_head": 3, "n_positions": 64{}{}}})",
                     more.empty() ? "" : ", ", more);
}

ModelGraph graph_of(const std::string& config) { return model_from_config(config, "c.json"); }

std::string complaint(const std::string& config, std::optional<int> layers = std::nullopt) {
  try {
    model_from_config(config, "c.json", std::nullopt, layers);
    return "";
  } catch (const InputError& error) {
    return error.what();
  }
}

/// Operators of one kind, in execution order.
std::vector<Operator> operators(const ModelGraph& graph, OperatorKind kind) {
  std::vector<Operator> found;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag)))
    if (graph.dag[vertex].kind == kind) found.push_back(graph.dag[vertex]);
  return found;
}

std::vector<std::string> parameter_names(const ModelGraph& graph) {
  std::vector<std::string> names;
  for (const Parameter& parameter : graph.parameters)
    names.push_back(parameter.name);
  return names;
}

const Parameter& parameter(const ModelGraph& graph, const std::string& name) {
  const auto found = std::ranges::find(graph.parameters, name, &Parameter::name);
  if (found == graph.parameters.end()) throw std::out_of_range(name);
  return *found;
}

std::string class_of(const ModelGraph& graph, const std::string& path) {
  const auto found = std::ranges::find(graph.modules, path, &Module::path);
  return found == graph.modules.end() ? "" : found->class_name;
}

TEST(Presets, HaveTheExpectedNumberOfParameters) {
  const auto presets = read_presets(SHARDPLAN_SOURCE_DIR "/plans");
  EXPECT_GE(presets.size(), 16u);
  for (const Preset& preset : presets)
    EXPECT_EQ(build_model({.preset = preset.key}).parameter_count(), preset.parameter_count)
        << preset.key;
}

TEST(Presets, AnswerToTheirHubId) {
  EXPECT_EQ(build_model({.preset = "Qwen/Qwen3-8B"}).parameter_count(), 8190735360);
}

TEST(Llama, ListsParametersInTheOrderOfItsModules) {
  const ModelGraph graph = model_from_config(tiny_llama(), "c.json", std::nullopt, 1);
  const std::string block = "model.layers.0.";
  EXPECT_THAT(
      parameter_names(graph),
      ElementsAre("model.embed_tokens.weight", block + "self_attn.q_proj.weight",
                  block + "self_attn.k_proj.weight", block + "self_attn.v_proj.weight",
                  block + "self_attn.o_proj.weight", block + "mlp.gate_proj.weight",
                  block + "mlp.up_proj.weight", block + "mlp.down_proj.weight",
                  block + "input_layernorm.weight", block + "post_attention_layernorm.weight",
                  "model.norm.weight", "lm_head.weight"));
}

TEST(Llama, RunsItsModulesInTheOrderOfForward) {
  const ModelGraph graph = model_from_config(tiny_llama(), "c.json", std::nullopt, 1);
  std::vector<std::string> steps;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(graph.dag)))
    steps.push_back(
        fmt::format("{} {}", spec(graph.dag[vertex].kind).name, graph.dag[vertex].module));
  const std::string block = "model.layers.0";
  EXPECT_THAT(
      steps,
      ElementsAre("input tokens", "input targets", "embedding model.embed_tokens",
                  "rms_norm " + block + ".input_layernorm", "linear " + block + ".self_attn.q_proj",
                  "linear " + block + ".self_attn.k_proj", "linear " + block + ".self_attn.v_proj",
                  "rope " + block + ".self_attn", "rope " + block + ".self_attn",
                  "attention " + block + ".self_attn", "linear " + block + ".self_attn.o_proj",
                  "add " + block, "rms_norm " + block + ".post_attention_layernorm",
                  "linear " + block + ".mlp.gate_proj", "linear " + block + ".mlp.up_proj",
                  "swiglu " + block + ".mlp", "linear " + block + ".mlp.down_proj", "add " + block,
                  "rms_norm model.norm", "linear lm_head", "cross_entropy "));
}

TEST(Llama, ConnectsTheResidualStreamAndTheLoss) {
  const ModelGraph graph = model_from_config(tiny_llama(), "c.json", std::nullopt, 1);
  EXPECT_THAT(graph.inputs_of(9), ElementsAre(7, 8, 6));  // attention: q, k, v
  EXPECT_THAT(graph.inputs_of(11), ElementsAre(2, 10));   // embedding + attention branch
  EXPECT_THAT(graph.inputs_of(15), ElementsAre(13, 14));  // gate, up
  EXPECT_THAT(graph.inputs_of(17), ElementsAre(11, 16));  // residual + mlp branch
  EXPECT_THAT(graph.inputs_of(20), ElementsAre(19, 1));   // logits, targets
}

TEST(Llama, NamesTheClassesOfItsModules) {
  const ModelGraph graph = graph_of(tiny_llama());
  EXPECT_EQ(class_of(graph, ""), "LlamaForCausalLM");
  EXPECT_EQ(class_of(graph, "model"), "LlamaModel");
  EXPECT_EQ(class_of(graph, "model.layers.1"), "LlamaDecoderLayer");
  EXPECT_EQ(class_of(graph, "model.layers.1.self_attn"), "LlamaAttention");
  EXPECT_EQ(class_of(graph, "model.layers.1.mlp"), "LlamaMLP");
  EXPECT_EQ(class_of(graph, "model.norm"), "LlamaRMSNorm");
  EXPECT_EQ(class_of(graph, "lm_head"), "Linear");
}

TEST(Llama, OmittedSizesFollowFromOthers) {
  const Operator attention = operators(graph_of(tiny_llama()), OperatorKind::Attention).front();
  EXPECT_EQ(attention.attributes.integer(Attribute::KvHeads), 4);
  EXPECT_EQ(attention.attributes.integer(Attribute::HeadDim), 16);
  EXPECT_EQ(attention.attributes.real(Attribute::Scale), 0.25);
  const ModelGraph nulls = graph_of(tiny_llama(R"("head_dim": null, "num_key_value_heads": null)"));
  EXPECT_EQ(operators(nulls, OperatorKind::Attention).front().attributes, attention.attributes);
}

TEST(Llama, TiesTheHeadOnlyWhenTold) {
  EXPECT_EQ(graph_of(tiny_llama()).parameters.back().name, "lm_head.weight");
  const ModelGraph tied = graph_of(tiny_llama(R"("tie_word_embeddings": true)"));
  const Operator head = operators(tied, OperatorKind::Linear).back();
  EXPECT_EQ(head.module, "lm_head");
  EXPECT_EQ(tied.parameters[head.parameters[0]].name, "model.embed_tokens.weight");
  EXPECT_EQ(model_from_config(tiny_llama(), "c.json", true).parameter_count(),
            tied.parameter_count());
}

TEST(Llama, BiasesStartFromZeroAndNormsFromOne) {
  const ModelGraph graph = graph_of(
      tiny_llama(R"("attention_bias": true, "mlp_bias": true, "initializer_range": 0.08)"));
  const std::string block = "model.layers.0.";
  EXPECT_EQ(parameter(graph, block + "self_attn.o_proj.bias").initializer.kind,
            Initializer::Kind::Zeros);
  EXPECT_EQ(parameter(graph, block + "mlp.down_proj.bias").shape, std::vector<std::int64_t>{64});
  EXPECT_EQ(parameter(graph, "model.norm.weight").initializer.kind, Initializer::Kind::Ones);
  EXPECT_EQ(parameter(graph, "lm_head.weight").initializer.standard_deviation, 0.08);
}

TEST(Rope, ReadsBothSpellingsOfItsParameters) {
  const auto rope_of = [](const std::string& fields) {
    return operators(graph_of(tiny_llama(fields)), OperatorKind::Rope).front().attributes;
  };
  EXPECT_EQ(rope_of("").real(Attribute::RopeTheta), 10000);
  EXPECT_FALSE(rope_of(R"("rope_scaling": null)").has(Attribute::RopeFactor));
  const Attributes old = rope_of(
      R"("rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})");
  EXPECT_EQ(old.real(Attribute::RopeTheta), 5e5);
  EXPECT_EQ(old.real(Attribute::RopeFactor), 8);
  EXPECT_EQ(old.real(Attribute::RopeOriginalContext), 8192);
  EXPECT_EQ(rope_of(R"("rope_parameters": {"rope_theta": 5e5, "rope_type": "llama3", "factor": 8.0,
         "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})"),
            old);
  EXPECT_EQ(
      rope_of(R"("rope_scaling": {"type": "linear", "factor": 2})").real(Attribute::RopeFactor), 2);
}

TEST(Rope, MarksScalingThatHasNoKernelYet) {
  const auto rope_of = [](const std::string& fields) {
    return operators(graph_of(tiny_llama(fields)), OperatorKind::Rope).front().attributes;
  };
  const Attributes yarn = rope_of(R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0})");
  EXPECT_EQ(yarn.integer(Attribute::RopeYarn), 1);
  EXPECT_EQ(yarn.real(Attribute::RopeFactor), 4);
  EXPECT_EQ(rope_of(R"("rope_scaling": {"type": "su"})").integer(Attribute::RopeLong), 1);
  EXPECT_EQ(rope_of(R"("partial_rotary_factor": 0.5)").integer(Attribute::RotaryDim), 8);
  EXPECT_THAT(complaint(tiny_llama(R"("rope_scaling": {"rope_type": "linear"})")),
              HasSubstr("'factor' is missing"));
  EXPECT_THAT(complaint(tiny_llama(R"("rope_scaling": {"rope_type": "spiral"})")),
              StartsWith("c.json: /rope_scaling: unknown rope type 'spiral'"));
}

TEST(Mistral, SlidesItsWindowUnlessTheConfigSaysNull) {
  const auto window = [](const std::string& fields) {
    return operators(graph_of(tiny_llama(fields, "mistral")), OperatorKind::Attention)
        .front()
        .attributes.integer(Attribute::Window);
  };
  EXPECT_EQ(window(R"("num_key_value_heads": 2, "sliding_window": 32)"), 32);
  EXPECT_EQ(window(R"("num_key_value_heads": 2)"), 4096);  // the class's default
  EXPECT_EQ(window(R"("num_key_value_heads": 2, "sliding_window": null)"), 0);
}

TEST(Mistral, HasEightKeyValueHeadsWhenTheConfigIsSilent) {
  EXPECT_THAT(complaint(tiny_llama("", "mistral")),
              HasSubstr("num_key_value_heads 8 does not divide num_attention_heads 4"));
  EXPECT_EQ(complaint(tiny_llama(R"("num_key_value_heads": null)", "mistral")), "");
}

TEST(Qwen2, HasBiasesOnQueryKeyAndValueOnly) {
  const ModelGraph graph = graph_of(tiny_llama(R"("num_key_value_heads": 2)", "qwen2"));
  const auto names = parameter_names(graph);
  const std::string attention = "model.layers.0.self_attn.";
  for (const char* with : {"q_proj.bias", "k_proj.bias", "v_proj.bias"})
    EXPECT_NE(std::ranges::find(names, attention + with), names.end()) << with;
  EXPECT_EQ(std::ranges::find(names, attention + "o_proj.bias"), names.end());
}

TEST(Qwen2, SlidesWindowsOnlyInUpperLayersAndOnlyWhenTold) {
  const auto windows = [](const std::string& fields) {
    std::vector<std::int64_t> found;
    const ModelGraph graph = graph_of(
        tiny_llama(R"("num_key_value_heads": 2, "sliding_window": 16, )" + fields, "qwen2"));
    for (const Operator& op : operators(graph, OperatorKind::Attention))
      found.push_back(op.attributes.integer(Attribute::Window));
    return found;
  };
  EXPECT_THAT(windows(R"("use_sliding_window": false, "max_window_layers": 0)"), ElementsAre(0, 0));
  EXPECT_THAT(windows(R"("use_sliding_window": true, "max_window_layers": 1)"), ElementsAre(0, 16));
  EXPECT_THAT(windows(R"("use_sliding_window": true,
                         "layer_types": ["sliding_attention", "full_attention"])"),
              ElementsAre(16, 0));
}

TEST(Qwen3, NormalisesQueriesAndKeysByHead) {
  const ModelGraph graph =
      graph_of(tiny_llama(R"("num_key_value_heads": 2, "head_dim": 32)", "qwen3"));
  const auto norms = operators(graph, OperatorKind::RmsNorm);
  EXPECT_EQ(norms[1].module, "model.layers.0.self_attn.q_norm");
  EXPECT_EQ(norms[1].attributes.integer(Attribute::GroupsPerRow), 4);
  EXPECT_EQ(norms[2].attributes.integer(Attribute::GroupsPerRow), 2);
  EXPECT_EQ(parameter(graph, "model.layers.0.self_attn.k_norm.weight").shape,
            std::vector<std::int64_t>{32});
  EXPECT_EQ(parameter(graph, "model.layers.0.self_attn.q_proj.weight").shape,
            (std::vector<std::int64_t>{128, 64}));
}

TEST(Gpt2, StoresItsProjectionsTransposedAndTiesItsHead) {
  const ModelGraph graph = graph_of(tiny_gpt2());
  EXPECT_EQ(parameter(graph, "transformer.h.0.mlp.c_fc.weight").shape,
            (std::vector<std::int64_t>{60, 240}));
  const auto linears = operators(graph, OperatorKind::Linear);
  EXPECT_EQ(linears.front().attributes.integer(Attribute::WeightTransposed), 1);
  EXPECT_FALSE(linears.back().attributes.has(Attribute::WeightTransposed));
  EXPECT_EQ(graph.parameters[linears.back().parameters[0]].name, "transformer.wte.weight");
}

TEST(Gpt2, StartsResidualProjectionsSmaller) {
  const ModelGraph graph = graph_of(tiny_gpt2());
  const auto deviation = [&](const char* name) {
    return parameter(graph, std::string("transformer.h.2.") + name).initializer.standard_deviation;
  };
  EXPECT_DOUBLE_EQ(deviation("attn.c_proj.weight"), 0.02 / std::sqrt(6.0));
  EXPECT_DOUBLE_EQ(deviation("mlp.c_proj.weight"), 0.02 / std::sqrt(6.0));
  EXPECT_DOUBLE_EQ(deviation("mlp.c_fc.weight"), 0.02);
}

TEST(Gpt2, ReadsItsOtherNamesAndVariants) {
  const ModelGraph aliased = graph_of(
      R"({"model_type": "gpt2", "vocab_size": 512, "hidden_size": 60, "num_hidden_layers": 3,
          "num_attention_heads": 3, "max_position_embeddings": 64})");
  EXPECT_EQ(aliased.parameter_count(), graph_of(tiny_gpt2()).parameter_count());
  const ModelGraph erf = graph_of(tiny_gpt2(R"("activation_function": "gelu", "n_inner": 100)"));
  const Operator gelu = operators(erf, OperatorKind::Gelu).front();
  EXPECT_EQ(gelu.attributes.integer(Attribute::TanhApproximation), 0);
  EXPECT_EQ(gelu.attributes.integer(Attribute::OutFeatures), 100);
  const ModelGraph scaled = graph_of(tiny_gpt2(R"("scale_attn_by_inverse_layer_idx": true)"));
  EXPECT_DOUBLE_EQ(
      operators(scaled, OperatorKind::PackedAttention)[1].attributes.real(Attribute::Scale),
      1 / std::sqrt(20.0) / 2);
  EXPECT_THAT(complaint(tiny_gpt2(R"("activation_function": "mish")")),
              HasSubstr("'mish' is not supported yet; supported: silu, swish, gelu, gelu_new"));
}

TEST(Config, UnknownFamiliesNameTheKnownOnes) {
  EXPECT_THAT(complaint(R"({"model_type": "mixtrel"})"),
              StartsWith("c.json: /model_type: not supported yet: unknown model family 'mixtrel'; "
                         "did you mean 'mixtral'? known: llama, mistral, mixtral, "));
  EXPECT_THAT(complaint("{}"), HasSubstr("'model_type' is missing"));
}

TEST(Config, IsReadAsOfTheFamilyThatTheJobNames) {
  const std::string unknown = tiny_llama("", "yi");
  const ModelGraph graph =
      model_from_config(unknown, "c.json", std::nullopt, std::nullopt, "llama");
  EXPECT_EQ(graph.parameter_count(), graph_of(tiny_llama()).parameter_count());
  EXPECT_THAT(graph.remarks, ElementsAre("read as of the family llama"));
  EXPECT_THAT(complaint(unknown), HasSubstr("--as-family reads it as one of them"));
  EXPECT_THROW(model_from_config(unknown, "c.json", std::nullopt, std::nullopt, "lama"),
               InputError);
}

TEST(Config, WithoutTypeIsToldByItsClass) {
  EXPECT_EQ(graph_of(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 512, "n_embd": 60,
                         "n_layer": 3, "n_head": 3})")
                .family,
            "gpt2");
}

TEST(Config, ImpossibleSizesAreRefusedWhereTheyStand) {
  EXPECT_THAT(complaint(R"({"model_type": "llama", "hidden_size": 0})"),
              StartsWith("c.json: /hidden_size: hidden_size: expected an integer from 1 to"));
  for (const char* fields :
       {R"("num_key_value_heads": 3)", R"("num_key_value_heads": 0)", R"("head_dim": 7)",
        R"("head_dim": 1e30)", R"("rms_norm_eps": "small")", R"("rope_theta": -1)",
        R"("hidden_act": "relu")", R"("initializer_range": -1)", R"("attention_dropout": 2)",
        R"("tie_word_embeddings": 1)", R"("architectures": "LlamaForCausalLM")",
        R"("head_dim": 100000000)", R"("rope_scaling": [])"})
    EXPECT_THAT(complaint(tiny_llama(fields)), StartsWith("c.json: ")) << fields;
  EXPECT_THAT(complaint("[]"), StartsWith("c.json: the document: expected a mapping"));
  EXPECT_THAT(complaint(R"({"model_type": "gpt2", "n_embd": 10, "n_layer": 1, "n_head": 3})"),
              HasSubstr("n_head 3 does not divide the 10 channels"));
}

TEST(Config, WhatTheGraphLeavesOutIsRemarkedOn) {
  EXPECT_THAT(graph_of(tiny_gpt2(R"("attn_pdrop": 0.1)")).remarks,
              ElementsAre("attn_pdrop 0.1 is not applied"));
  EXPECT_THAT(graph_of(tiny_llama(R"("quantization_config": {"bits": 4},
                                     "architectures": ["LlamaForSequenceClassification"])"))
                  .remarks,
              ElementsAre("quantization_config is ignored: parameters count unquantised",
                          "planned as LlamaForCausalLM, not as LlamaForSequenceClassification"));
}

TEST(Layers, ReplaceTheConfigsNumberOfBlocks) {
  const ModelGraph graph = model_from_config(tiny_llama(), "c.json", std::nullopt, 5);
  EXPECT_EQ(operators(graph, OperatorKind::Attention).size(), 5u);
  EXPECT_THAT(complaint(tiny_llama(), 0), HasSubstr("0 layers"));
}

TEST(Config, IsFoundInItsFolder) {
  EXPECT_EQ(build_model({.hf_config = kConfigs + "gpt2/"}).parameter_count(), 124439808);
  EXPECT_THROW(build_model({.hf_config = kConfigs + "no-such-model"}), InputError);
}

TEST(Positions, LongerSequencesThanLearnedAreRefused) {
  Job job;
  job.training.sequence_length = 64;
  EXPECT_NO_THROW(make_plan(job, graph_of(tiny_gpt2())));
  job.training.sequence_length = 65;
  EXPECT_THROW(make_plan(job, graph_of(tiny_gpt2())), InputError);
}

TEST(Positions, OfARefusedFieldAreThoseOfTheFileOrTheFlag) {
  const Hardware hardware = Hardware::read(data_folder());
  const std::string cluster = "model: {preset: gpt2}\ncluster: {gpu: h100-sxm-80}\n";
  const auto complaint = [&](const std::string& yaml, std::vector<Setting> settings) {
    try {
      make_plan(parse_job(cluster + yaml, "job.yaml", hardware, settings));
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string file = "training:\n  sequence_length: 2048\n";
  const std::string what = "training.sequence_length: 2048 is more than the 1024 positions";
  EXPECT_THAT(complaint(file, {}), StartsWith("job.yaml:4:20: " + what));
  EXPECT_THAT(complaint(file, {{"training.sequence_length=4096", "--seq 4096"}}),
              StartsWith("--seq 4096: training.sequence_length: 4096 is more"));
  EXPECT_THAT(complaint("", {}), StartsWith("training.sequence_length: 4096 is more"));  // default
  EXPECT_THAT(complaint("", {"model.trainable=[nothing]"}),
              StartsWith("--set model.trainable=[nothing]: model.trainable: 'nothing' names no "));
}

TEST(Buffers, AreTheRotaryTables) {
  EXPECT_EQ(graph_of(tiny_llama()).buffers_bytes, 64);  // two of 8 float32 frequencies
  EXPECT_EQ(graph_of(tiny_gpt2()).buffers_bytes, 0);
}

}  // namespace
}  // namespace shardplan
