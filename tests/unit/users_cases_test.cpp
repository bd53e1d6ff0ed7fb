// What people who shard training ran into (docs/users.md lists the cases): the figures of their
// threads, from our plans.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "planner/graph_reader.h"
#include "planner/model.h"
#include "planner/passes/layout.h"
#include "planner/planner.h"
#include "plans/job_reader.h"
#include "plans/lifetimes.h"
#include "simulator/memory.h"

namespace shardplan {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kGB = 1e9;
constexpr double kGiB = 1 << 30;

Job job_of(std::vector<Setting> settings) {
  static const Hardware hardware = Hardware::read(data_folder());
  return read_job("", hardware, settings);
}

/// An embedding and a head, untied, as modules "embed" and "head"; nothing else has parameters.
ModelGraph vocabulary_model(std::int64_t vocab, std::int64_t width) {
  return read_graph(fmt::format(R"(
family: vocabulary
modules: {{"": Model, embed: Embedding, head: Linear}}
parameters: {{embed.weight: [{0}, {1}], head.weight: [{0}, {1}]}}
operators:
  - x: {{kind: embedding, module: embed, inputs: [tokens], parameters: [embed.weight],
        in_features: {0}, out_features: {1}}}
  - logits: {{kind: linear, module: head, inputs: [x], parameters: [head.weight],
             in_features: {1}, out_features: {0}}}
  - loss: {{kind: cross_entropy, inputs: [logits, targets], in_features: {0}}}
)",
                                vocab, width),
                    "vocabulary.yaml");
}

/// A job for `vocabulary_model`, whose name is never looked up.
Job vocabulary_job(int gpus, std::vector<Setting> more) {
  std::vector<Setting> settings{"model.preset=gpt2",
                                "cluster.gpu=h100-sxm-80",
                                fmt::format("cluster.gpus_per_node={}", std::min(gpus, 8)),
                                fmt::format("cluster.nodes={}", (gpus + 7) / 8),
                                "training.optimizer.name=sgd",
                                "training.sequence_length=16"};
  settings.insert(settings.end(), more.begin(), more.end());
  return job_of(settings);
}

Bytes bytes_in(const Plan& plan, std::initializer_list<Category> categories) {
  Bytes bytes = 0;
  for (const Buffer& buffer : plan.buffers)
    if (std::find(categories.begin(), categories.end(), buffer.category) != categories.end())
      bytes += buffer.bytes();
  return bytes;
}

/// Parameters, gradients and optimizer state of a rank.
double states_gb(const Plan& plan) {
  return static_cast<double>(bytes_in(
             plan, {Category::Parameters, Category::Gradients, Category::OptimizerState})) /
         kGB;
}

// acc-01: FSDP2 in bfloat16 with float32 reductions, after a micro-step without a reduction.
TEST(UsersCases, Acc01_WithoutSyncTheWholeGradientStaysInTheReduceDtype) {
  for (const int gpus : {1, 2, 4, 8}) {
    const Plan plan = make_plan(
        vocabulary_job(gpus, {"strategy.layout=per_parameter",
                              "strategy.mixed_precision={param: bfloat16, reduce: float32}",
                              "training.gradient_accumulation={steps: 2, sync: last}"}),
        vocabulary_model(256, 512));
    EXPECT_EQ(bytes_in(plan, {Category::Parameters}), (1024 << 10) / gpus);
    const auto micro = std::ranges::find(plan.segments, "micro", &Segment::name);
    const Buffer* kept = nullptr;  // what the last launch of the micro-step adds to
    for (InstructionId id = micro->first; id < micro->last; ++id)
      if (plan.instructions[id].name.starts_with("sum_gradients."))
        kept = &plan.buffers[plan.instructions[id].writes[0].buffer];
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(kept->dtype, Dtype::Float32);
    EXPECT_EQ(kept->bytes(), 1024 << 10) << gpus;
  }
}

/// The most blocks whose whole parameters are alive at a time, in issue order.
int most_whole_blocks(const Plan& plan) {
  const std::vector<InstructionId> order = unroll(plan, 1);
  const std::vector<Lifetime> lives = lifetimes(plan, order);
  int most = 0;
  for (std::int32_t p = 0; p < static_cast<std::int32_t>(order.size()); ++p) {
    int alive = 0;
    for (std::size_t b = 0; b < lives.size(); ++b)
      alive += plan.buffers[b].category == Category::UnshardedParameters &&
               plan.buffers[b].name.find(".block.") != std::string::npos && lives[b].first >= 0 &&
               lives[b].first <= p && p <= lives[b].last;
    most = std::max(most, alive);
  }
  return most;
}

// rate-01: T5-11B on two nodes; 0.54 GB is the largest unit in bfloat16.
TEST(UsersCases, Rate01_TheRateLimiterAllowsTwoUnits) {
  const ModelGraph t5 = model_from_config(
      R"({"model_type": "t5", "d_model": 1024, "d_kv": 128, "num_heads": 128, "d_ff": 65536,
          "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 32128})",
      "t5-11b");
  EXPECT_EQ(t5.parameter_count(), 11'307'321'344);
  Job job = vocabulary_job(16, {"strategy.mixed_precision={param: bfloat16, reduce: bfloat16}"});
  const Plan limited = make_plan(job, t5);
  std::int64_t largest = 0;
  for (const Unit& unit : limited.units)
    if (unit.name != "root") largest = std::max(largest, unit.elems);
  EXPECT_NEAR(static_cast<double>(largest * 2) / kGB, 0.54, 0.005);
  EXPECT_EQ(most_whole_blocks(limited), 2);
  job.strategy.limit_all_gathers = false;
  EXPECT_GT(make_plan(job, t5).arena.live_bound_bytes, limited.arena.live_bound_bytes + largest);
}

// rsv-01: what is sharded of T5-3B falls with the nodes (what is reserved does not).
TEST(UsersCases, Rsv01_StatesFallWithTheNodes) {
  const ModelGraph t5 = model_from_config(
      R"({"model_type": "t5", "d_model": 1024, "d_kv": 128, "num_heads": 32, "d_ff": 16384,
          "num_layers": 24, "num_decoder_layers": 24, "vocab_size": 32128})",
      "t5-3b");
  EXPECT_EQ(t5.parameter_count(), 2'851'598'336);
  const std::vector<double> states{5.7, 2.85, 1.9, 1.43};
  for (int nodes = 1; nodes <= 4; ++nodes) {
    const Job job = vocabulary_job(8 * nodes, {"training.optimizer.name=adamw"});
    EXPECT_NEAR(states_gb(make_plan(job, t5)), states[nodes - 1], 0.006) << nodes;
  }
}

// frz-01: 1,451,376,640 parameters in a block, 106,496 of them trained. FSDP1's flat parameter has
// a gradient for all; ours for what is trained, and so has FSDP2's.
TEST(UsersCases, Frz01_GradientsAreOfWhatIsTrained) {
  const ModelGraph model = read_graph(R"(
family: adapters
blocks: [Block]
modules: {"": Model, block: Block, block.base: Embedding, block.adapter: Linear, head: Linear}
parameters:
  block.base.weight: {shape: [1417256, 1024], trainable: false}
  block.adapter.weight: [104, 1024]
  head.weight: {shape: [64, 104], trainable: false}
operators:
  - x: {kind: embedding, module: block.base, inputs: [tokens], parameters: [block.base.weight],
        in_features: 1417256, out_features: 1024}
  - y: {kind: linear, module: block.adapter, inputs: [x], parameters: [block.adapter.weight],
        in_features: 1024, out_features: 104}
  - logits: {kind: linear, module: head, inputs: [y], parameters: [head.weight],
             in_features: 104, out_features: 64}
  - loss: {kind: cross_entropy, inputs: [logits, targets], in_features: 64}
)",
                                      "adapters.yaml");
  for (const char* layout : {"flat", "per_parameter"}) {
    const Plan plan =
        make_plan(vocabulary_job(8, {fmt::format("strategy.layout={}", layout)}), model);
    const Unit& block = plan.units.at(1);
    EXPECT_EQ(block.elems, 1'451'376'640);
    for (const Buffer& buffer : plan.buffers)
      if (buffer.category == Category::UnshardedGradients) {
        EXPECT_EQ(buffer.elems, 106'496) << layout;
      }
  }
}

// frz-02: Llama-2-7B's weights in float32 on eight GPUs: 3.14 GiB each. bfloat16 storage (1.57) is
// not planned yet, and refused.
TEST(UsersCases, Frz02_FrozenWeightsInFloat32) {
  Job job =
      job_of({"model.preset=llama-2-7b", "model.lora={rank: 16, targets: [q_proj, v_proj]}",
              "cluster.gpu=h100-sxm-80", "cluster.gpus_per_node=8", "training.sequence_length=64"});
  const Plan plan = make_plan(job);
  Bytes frozen = 0;
  for (const Unit& unit : plan.units)
    frozen += (unit.padded_elems - unit.trainable_elems()) / 8 * size_of(Dtype::Float32);
  EXPECT_NEAR(static_cast<double>(frozen) / kGiB, 3.14, 0.005);
  job.model.dtype = Dtype::BFloat16;
  EXPECT_THROW(make_plan(job), InputError);
}

// frz-03: without a wrap policy the whole model is gathered at once.
TEST(UsersCases, Frz03_NoWrapPolicyIsOneUnitAndSaysSo) {
  Job job = job_of({"model.preset=qwen2.5-0.5b", "cluster.gpu=a40", "cluster.gpus_per_node=2",
                    "training.sequence_length=64", "strategy.wrap.policy=none"});
  const Plan plan = make_plan(job);
  ASSERT_EQ(plan.units.size(), 1U);
  EXPECT_EQ(bytes_in(plan, {Category::UnshardedParameters}),
            plan.units[0].padded_elems * size_of(Dtype::Float32));
  EXPECT_THAT(plan.remarks, Contains(HasSubstr("the whole model is gathered at once")));
}

// init-01: Qwen2.5-7B; 28.37 GiB is the whole model. Every rank reads its own shards, and no more.
TEST(UsersCases, Init01_LoadingHoldsShardsOnly) {
  const Job job = job_of({"model.preset=qwen2.5-7b", "cluster.gpu=h100-sxm-80",
                          "cluster.gpus_per_node=8", "training.sequence_length=64"});
  const Plan plan = make_plan(job);
  EXPECT_NEAR(static_cast<double>(plan.parameter_count * 4) / kGiB, 28.37, 0.005);
  const RankMemory memory = rank_memories(plan, {}).front();
  EXPECT_EQ(memory.phases[static_cast<int>(RunPhase::Load)].peak_bytes,
            bytes_in(plan, {Category::Parameters, Category::OptimizerState}));
  EXPECT_LT(*memory.phases[static_cast<int>(RunPhase::Load)].peak_bytes,
            plan.parameter_count * 4 / 8 * 3 + (1 << 20));
}

/// The bytes that each reduce_scatter reads.
std::vector<Bytes> reduced_bytes(const Plan& plan) {
  std::vector<Bytes> bytes;
  for (const Instruction& instruction : plan.instructions)
    if (std::holds_alternative<ReduceScatter>(instruction.operation))
      bytes.push_back(bytes_of(plan, instruction.reads));
  return bytes;
}

// unit-01: untied tables of 248,320 x 5,120 in one unit, or in two.
TEST(UsersCases, Unit01_TablesInOneUnitMakeOneLargeReduction) {
  const ModelGraph model = vocabulary_model(248'320, 5'120);
  Job job = vocabulary_job(64, {});
  EXPECT_THAT(reduced_bytes(make_plan(job, model)), ElementsAre(10'171'187'200));
  job.strategy.wrap = {.kind = WrapPolicy::Kind::Modules, .names = {"embed", "head"}};
  EXPECT_THAT(reduced_bytes(make_plan(job, model)), ElementsAre(5'085'593'600, 5'085'593'600));
}

// log-02: 16,384 tokens x 248,320 words; logits of 16.27 GB in float32 and 8.14 GB in bfloat16; the
// head's weight takes 1.02 GB in bfloat16. In chunks of 256 tokens logits are 1/64 of that.
TEST(UsersCases, Log02_LogitsInChunksAreAsSmallAsTheChunk) {
  const auto largest_logits = [](const char* precision, int chunks) {
    const Plan plan =
        make_plan(vocabulary_job(1, {"training.sequence_length=16384",
                                     fmt::format("strategy.mixed_precision={}", precision),
                                     fmt::format("training.loss.chunks={}", chunks)}),
                  vocabulary_model(248'320, 2'048));
    Bytes largest = 0;
    for (const Buffer& buffer : plan.buffers)
      if (buffer.name.starts_with("head.output")) largest = std::max(largest, buffer.bytes());
    return static_cast<double>(largest) / kGB;
  };
  EXPECT_NEAR(largest_logits("null", 1), 16.27, 0.005);
  EXPECT_NEAR(largest_logits("{param: bfloat16, reduce: float32}", 1), 8.14, 0.005);
  EXPECT_NEAR(largest_logits("{param: bfloat16, reduce: float32}", 64), 8.14 / 64, 0.005);
  EXPECT_NEAR(248'320.0 * 2'048 * 2 / kGB, 1.02, 0.005);
}

// hyb-01: Llama-2-70B on two nodes of eight 80 GB cards.
TEST(UsersCases, Hyb01_HybridShardingDividesByTheNode) {
  const ModelGraph llama = model_from_config(
      R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
          "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
          "vocab_size": 32000})",
      "llama-2-70b");
  EXPECT_EQ(llama.parameter_count(), 68'976'648'192);
  static const Hardware hardware = Hardware::read(data_folder());
  Job job =
      vocabulary_job(16, {"training.optimizer.name=adamw", "training.activation_checkpointing=full",
                          "strategy.mixed_precision={param: bfloat16, reduce: float32}"});
  const auto fits = [&](const Plan& plan) {
    return *rank_memories(plan, hardware.costs(plan.profile)).front().peak_device_bytes <=
           job.cluster.gpu.memory_bytes;
  };
  const Plan full = make_plan(job, llama);
  EXPECT_NEAR(states_gb(full), 68.98, 0.01);
  EXPECT_TRUE(fits(full));
  job.strategy.sharding = Strategy::HybridShard;
  const Plan hybrid = make_plan(job, llama);
  EXPECT_NEAR(states_gb(hybrid), 137.95, 0.01);
  EXPECT_FALSE(fits(hybrid));
}

// ac-01: Qwen3-0.6B at 131,072 tokens: 7.52 GB when one tensor per layer stays.
TEST(UsersCases, Ac01_CheckpointedBlocksKeepTheirInputs) {
  const Job job = job_of({"model.preset=qwen3-0.6b", "cluster.gpu=h100-sxm-80",
                          "cluster.gpus_per_node=8", "training.sequence_length=131072",
                          "training.loss.chunks=64", "training.activation_checkpointing=full",
                          "strategy.mixed_precision={param: bfloat16, reduce: float32}"});
  const Plan plan = make_plan(job);
  const std::vector<InstructionId> order = unroll(plan, 1);
  const std::vector<Lifetime> lives = lifetimes(plan, order);
  const auto loss = std::ranges::find(order, true, [&](InstructionId id) {
    return plan.instructions[id].name.ends_with("cross_entropy");
  });
  const auto at = static_cast<std::int32_t>(loss - order.begin());
  Bytes kept = 0;  // by blocks, from forward to backward
  for (std::size_t b = 0; b < lives.size(); ++b)
    if (plan.buffers[b].category == Category::Activations && lives[b].first < at &&
        at < lives[b].last && !plan.buffers[b].name.starts_with("model.norm"))
      kept += plan.buffers[b].bytes();
  // The last block's output is the final norm's input, and stays too.
  const double one = 131'072.0 * 1'024 * 2;
  EXPECT_NEAR(static_cast<double>(kept) / kGB, 7.52 + one / kGB, 0.01);
}

/// The layout of one parameter in one unit on a world of ranks.
Plan laid_out(std::vector<std::int64_t> shape, int ranks, Layout layout) {
  ModelGraph graph;
  graph.add_parameter({"weight", std::move(shape), {}});
  Plan plan;
  plan.mesh.shard = ranks;
  plan.job.strategy.layout = layout;
  lay_out(plan, graph, {{"root", {0}}});
  return plan;
}

// pad-01: an optimizer shard of six ranks does not divide into those of 24.
TEST(UsersCases, Pad01_ShardsArePaddedUp) {
  const std::vector<std::int64_t> shape{56'124'554 * 6};
  EXPECT_EQ(laid_out(shape, 6, Layout::Flat).units[0].shard_elems, 56'124'554);
  EXPECT_EQ(laid_out(shape, 24, Layout::Flat).units[0].shard_elems, 14'031'139);
}

/// Rows of one column that each rank owns.
std::vector<std::int64_t> rows_by_rank(std::int64_t rows, int ranks) {
  const Plan plan = laid_out({rows, 1}, ranks, Layout::PerParameter);
  std::vector<std::int64_t> owned;
  for (const RankClass& one : plan.classes)
    owned.insert(owned.end(), one.last - one.first + 1, one.valid[0]);
  return owned;
}

// pad-02: equal chunks of rows leave the last ranks less, or nothing.
TEST(UsersCases, Pad02_LastRanksOwnFewerRows) {
  EXPECT_THAT(rows_by_rank(20, 8), ElementsAre(3, 3, 3, 3, 3, 3, 2, 0));
  EXPECT_THAT(rows_by_rank(8, 5), ElementsAre(2, 2, 2, 2, 0));
}

// cfg-01: Llama 3.1's rope_scaling changes no size.
TEST(UsersCases, Cfg01_RopeScalingIsAccepted) {
  EXPECT_EQ(build_model({.preset = "llama-3.1-8b"}).parameter_count(),
            build_model({.preset = "llama-3-8b"}).parameter_count());
}

// cfg-02: keys and values of one layer and token, in bfloat16: 8,192 bytes with the declared width.
TEST(UsersCases, Cfg02_TheDeclaredHeadWidthCounts) {
  const auto cache_bytes = [](const char* head_dim) {
    const ModelGraph graph = model_from_config(
        fmt::format(R"({{"model_type": "llama", "vocab_size": 256, "hidden_size": 3584,
            "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 16,
            "num_key_value_heads": 8{}}})",
                    head_dim),
        "config.json");
    std::int64_t rows = 0;
    for (const Parameter& parameter : graph.parameters)
      if (parameter.name.find("k_proj") != std::string::npos ||
          parameter.name.find("v_proj") != std::string::npos)
        rows += parameter.shape[0];
    return rows * 2;
  };
  EXPECT_EQ(cache_bytes(R"(, "head_dim": 256)"), 8'192);
  EXPECT_EQ(cache_bytes(R"(, "head_dim": null)"), 7'168);
}

// cfg-15: shapes are those of the whole model, whatever the world.
TEST(UsersCases, Cfg15_ShapesAreGlobal) {
  const Plan plan = make_plan(job_of({"model.preset=qwen3-0.6b", "cluster.gpu=h100-sxm-80",
                                      "cluster.gpus_per_node=2", "training.sequence_length=64"}));
  EXPECT_EQ(plan.parameter_count, 596'049'920);
  const auto& parameters = plan.units[0].parameters;
  const auto table =
      std::ranges::find(parameters, "model.embed_tokens.weight", &UnitParameter::name);
  ASSERT_NE(table, parameters.end());
  EXPECT_THAT(table->shape, ElementsAre(151'936, 1'024));
}

}  // namespace
}  // namespace shardplan
