#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "planner/passes/arena.h"
#include "planner/passes/buffer_uses.h"
#include "planner/passes/live_bound.h"
#include "planner/passes/synchronise.h"
#include "planner/planner.h"
#include "plans/job_reader.h"
#include "plans/verify.h"
#include "tests/models/tiny_models.h"

namespace shardplan {
namespace {

using testing::TinyLlama;

TinyLlama random_model(int most_layers) {
  const int kv = *rc::gen::inRange(1, 4);
  const int heads = kv * *rc::gen::inRange(1, 4);
  return {.layers = *rc::gen::inRange(1, most_layers + 1),
          .channels = heads * 2 * *rc::gen::inRange(1, 9),
          .heads = heads,
          .kv_heads = kv,
          .ffn = *rc::gen::inRange(1, 200),
          .vocab = *rc::gen::inRange(2, 700),
          .tied = *rc::gen::arbitrary<bool>()};
}

ActivationCheckpointing random_checkpointing() {
  using Kind = ActivationCheckpointing::Kind;
  ActivationCheckpointing checkpointing{
      *rc::gen::element(Kind::None, Kind::Full, Kind::Selective, Kind::Every), {}};
  if (checkpointing.kind == Kind::Every) checkpointing.every = *rc::gen::inRange(1, 4);
  if (checkpointing.kind == Kind::Selective)
    checkpointing.operators = *rc::gen::container<std::vector<OperatorKind>>(
        rc::gen::element(OperatorKind::RmsNorm, OperatorKind::Linear, OperatorKind::Rope,
                         OperatorKind::Attention, OperatorKind::SwiGlu, OperatorKind::Add));
  if (checkpointing.kind == Kind::Selective && *rc::gen::arbitrary<bool>())
    checkpointing.every_second = {OperatorKind::Linear};
  if (checkpointing.kind == Kind::Selective && *rc::gen::arbitrary<bool>())
    checkpointing.modules = {"mlp"};
  return checkpointing;
}

/// True, false or a proper divisor of the group.
ReshardAfterForward random_reshard(int group) {
  std::vector<ReshardAfterForward> choices{{.reshard = true}, {.reshard = false}};
  for (int ranks = 2; ranks < group; ++ranks)
    if (group % ranks == 0) choices.push_back({.ranks = ranks});
  return *rc::gen::elementOf(choices);
}

/// Reductions of an optimizer step that make the gradients of a unit final.
int reductions_of(const Job& job) {
  const GradientAccumulation& accumulation = job.training.gradient_accumulation;
  const bool every = accumulation.sync == GradientAccumulation::Sync::Every &&
                     job.strategy.sharding != Strategy::Zero1;
  return every ? accumulation.steps : 1;
}

Job random_job() {
  const auto sharding = *rc::gen::element(
      Strategy::FullShard, Strategy::ShardGradOp, Strategy::NoShard, Strategy::HybridShard,
      Strategy::HybridShardZero2, Strategy::Ddp, Strategy::Zero1, Strategy::Zero2, Strategy::Zero3);
  Job job = testing::tiny_job(sharding, *rc::gen::inRange(1, 70));
  job.cluster.nodes = *rc::gen::inRange(1, 4);  // so many replicas of HYBRID_*
  job.training.micro_batch = *rc::gen::inRange(1, 4);
  job.training.sequence_length = *rc::gen::inRange(1, 90);
  job.training.optimizer.name =
      *rc::gen::element(OptimizerJob::Name::AdamW, OptimizerJob::Name::Sgd);
  job.training.optimizer.momentum = *rc::gen::element(0.0, 0.9);
  job.training.optimizer.decay =
      *rc::gen::element(OptimizerJob::Decay::All, OptimizerJob::Decay::Matrices);
  job.training.gradient_accumulation = {
      *rc::gen::inRange(1, 4),
      *rc::gen::element(GradientAccumulation::Sync::Every, GradientAccumulation::Sync::Last)};
  job.training.activation_checkpointing = random_checkpointing();
  job.training.loss_chunks = *rc::gen::inRange(1, 5);
  job.strategy.layout = *rc::gen::element(Layout::Flat, Layout::PerParameter);
  if (*rc::gen::arbitrary<bool>())
    job.strategy.mixed_precision =
        MixedPrecision{.param = *rc::gen::element(Dtype::Float32, Dtype::BFloat16),
                       .reduce = *rc::gen::element(Dtype::Float32, Dtype::BFloat16)};
  const bool reshards = sharding == Strategy::FullShard || sharding == Strategy::HybridShard;
  if (reshards && *rc::gen::arbitrary<bool>())
    job.strategy.reshard_after_forward = random_reshard(job.cluster.gpus_per_node);
  job.strategy.limit_all_gathers = *rc::gen::arbitrary<bool>();
  job.strategy.forward_prefetch = *rc::gen::inRange(0, 4);
  job.strategy.backward_prefetch =
      *rc::gen::element(BackwardPrefetch::None, BackwardPrefetch::Pre, BackwardPrefetch::Post);
  job.strategy.wrap.kind = *rc::gen::element(WrapPolicy::Kind::Transformer, WrapPolicy::Kind::None);
  job.strategy.ddp.bucket_cap_mb = *rc::gen::element(0.01, 0.1, 25.0);
  return job;
}

RC_GTEST_PROP(Planner, EveryPlanPassesVerify, ()) {
  const Job job = random_job();
  const Plan plan = make_plan(job, testing::tiny_llama(random_model(5)));
  const std::vector<Fault> faults = verify(plan);
  if (!faults.empty())
    RC_FAIL(faults[0].instruction + " | " + faults[0].buffer + " | " + faults[0].why + "\n" +
            job_to_json(job));
}

RC_GTEST_PROP(Planner, ShardsHoldEveryParameterElementOnce, ()) {
  const Job job = random_job();
  const ModelGraph graph = testing::tiny_llama(random_model(3));
  const Plan plan = make_plan(job, graph);
  std::int64_t elements = 0;
  for (const Unit& unit : plan.units)
    for (const UnitParameter& parameter : unit.parameters)
      elements += parameter.elems;
  RC_ASSERT(elements == graph.parameter_count());
}

/// Calls visit(instruction, times it runs in an optimizer step).
template <typename Visit>
void for_step(const Plan& plan, const ProgramItem& item, std::int64_t times, Visit visit) {
  if (item.count != ProgramItem::kOncePerStep) times *= item.count;
  if (item.segment >= 0)
    for (InstructionId id = plan.segments[item.segment].first;
         id < plan.segments[item.segment].last; ++id)
      visit(plan.instructions[id], times);
  for (const ProgramItem& inner : item.body)
    for_step(plan, inner, times, visit);
}

RC_GTEST_PROP(Planner, ReductionsMoveEveryGradientAsOftenAsTheJobSays, ()) {
  const Job job = random_job();
  const Plan plan = make_plan(job, testing::tiny_llama(random_model(3)));
  std::map<int, std::int64_t> reduced;  // elements of the shard (without sharding: of the whole)
  for_step(plan, plan.program.at(2), 1, [&](const Instruction& instruction, std::int64_t times) {
    const auto* scatter = std::get_if<ReduceScatter>(&instruction.operation);
    const auto* all = std::get_if<AllReduce>(&instruction.operation);
    if (scatter == nullptr && all == nullptr) return;
    for (const int unit : scatter != nullptr ? scatter->contributes : all->contributes)
      for (const View& view : instruction.writes)
        reduced[unit] += times * view.elems;
  });
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit)
    RC_ASSERT(reduced[static_cast<int>(unit)] ==
              (plan.world_size() > 1 ? plan.units[unit].shard_elems * reductions_of(job) : 0));
}

RC_GTEST_PROP(Planner, GathersAndReductionsOfShardsMoveWholeUnits, ()) {
  const Job job = random_job();
  const Plan plan = make_plan(job, testing::tiny_llama(random_model(3)));
  for (const Instruction& instruction : plan.instructions) {
    const bool gather = std::holds_alternative<AllGather>(instruction.operation);
    if (!gather && !std::holds_alternative<ReduceScatter>(instruction.operation)) continue;
    std::int64_t whole = 0;
    for (const View& view : gather ? instruction.writes : instruction.reads)
      whole += view.elems;
    RC_ASSERT(whole == plan.units[instruction.unit].padded_elems);
  }
}

RC_GTEST_PROP(Planner, RankClassesAddUpToTheModel, ()) {
  const Job job = random_job();
  const ModelGraph graph = testing::tiny_llama(random_model(3));
  const Plan plan = make_plan(job, graph);
  std::int64_t elements = 0;
  for (const RankClass& ranks : plan.classes)
    for (const std::int64_t valid : ranks.valid)
      elements += valid * (plan.mesh.shard > 1 ? ranks.last - ranks.first + 1 : 1);
  std::int64_t expected = 0;
  for (const Unit& unit : plan.units)
    expected += unit.elems;
  RC_ASSERT(elements == expected);
  if (job.strategy.layout == Layout::PerParameter) {
    RC_ASSERT(elements == graph.parameter_count());
  }
}

RC_GTEST_PROP(Planner, CheckpointingKeepsFewerActivations, ()) {
  Job job = random_job();
  job.training.activation_checkpointing = {};
  const ModelGraph graph = testing::tiny_llama(random_model(4));
  const auto kept = [&] {  // bytes that are made in forward and read in backward
    const Plan plan = make_plan(job, graph);
    Bytes bytes = 0;
    std::vector<bool> made(plan.buffers.size(), false);
    for (const Instruction& instruction : plan.instructions)
      if (instruction.phase == Phase::Forward)
        for (const View& view : instruction.writes)
          made[view.buffer] = true;
    for (std::size_t b = 0; b < made.size(); ++b)
      if (made[b] && plan.buffers[b].category == Category::Activations)
        bytes += plan.buffers[b].bytes();
    return bytes;
  };
  const Bytes all = kept();
  job.training.activation_checkpointing = random_checkpointing();
  const Bytes some = kept();
  RC_ASSERT(some <= all);
  job.training.activation_checkpointing = {ActivationCheckpointing::Kind::Full, {}};
  RC_ASSERT(kept() < all);
}

RC_GTEST_PROP(Arena, HoldsTheLiveBoundAndTheIssueOrderSum, ()) {
  const Plan plan = make_plan(random_job(), testing::tiny_llama(random_model(4)));
  RC_ASSERT(plan.arena.bytes >= plan.arena.live_bound_bytes);
  RC_ASSERT(plan.arena.bytes >= plan.arena.issue_order_bytes);
}

/// Heaviest set of pairwise unordered buffers, by trying every set.
Bytes heaviest_antichain(const Plan& plan, const std::vector<BufferUse>& uses) {
  Bytes heaviest = 0;
  for (std::uint32_t set = 0; set < (1U << uses.size()); ++set) {
    Bytes weight = 0;
    bool antichain = true;
    for (std::size_t a = 0; a < uses.size() && antichain; ++a) {
      if ((set >> a & 1U) == 0) continue;
      weight += plan.buffers[uses[a].buffer].bytes();
      for (std::size_t b = 0; b < uses.size() && antichain; ++b)
        if (a != b && (set >> b & 1U) != 0) antichain = !apart(uses[a], uses[b]);
    }
    if (antichain) heaviest = std::max(heaviest, weight);
  }
  return heaviest;
}

/// Fills on random streams with random waits, and those that data needs, in a loop inside a loop:
/// shapes that no schedule makes.
Plan random_loops() {
  Plan plan;
  const int buffers = *rc::gen::inRange(1, 11);
  for (int b = 0; b < buffers; ++b)
    plan.buffers.push_back({.name = "b" + std::to_string(b), .elems = *rc::gen::inRange(1, 100)});
  const int instructions = *rc::gen::inRange(1, 25);
  for (int i = 0; i < instructions; ++i) {
    Instruction instruction{
        .name = "i" + std::to_string(i),
        .stream = *rc::gen::element(Stream::Compute, Stream::AllGather, Stream::ReduceScatter),
        .operation = Fill{}};
    const int buffer = *rc::gen::inRange(0, buffers);
    instruction.writes = {{buffer, 0, plan.buffers[buffer].elems}};
    if (i > 0 && *rc::gen::arbitrary<bool>())
      instruction.after = {{*rc::gen::inRange(0, i), Why::Data}};
    plan.instructions.push_back(instruction);
  }
  const int inner = *rc::gen::inRange(0, instructions + 1);
  plan.segments = {{"inner", 0, inner}, {"outer", inner, instructions}};
  plan.program = {{.count = *rc::gen::inRange(1, 3),
                   .body = {{.count = *rc::gen::inRange(1, 4), .segment = 0, .body = {}},
                            {.segment = 1, .body = {}}}}};
  add_data_waits(plan);
  return plan;
}

RC_GTEST_PROP(LiveBound, IsTheHeaviestSetOfUnorderedBuffersInOneIteration, ()) {
  const Plan plan = random_loops();
  const std::vector<BufferUse> uses = buffer_uses(plan);
  std::vector<BufferUse> once = uses;
  for (BufferUse& use : once)
    use.lives.resize(1);
  RC_ASSERT(live_bound(plan, uses) == heaviest_antichain(plan, once));
  RC_ASSERT(live_bound(plan, uses) <= heaviest_antichain(plan, uses));
}

RC_GTEST_PROP(Arena, GivesBytesOfTheirOwnToBuffersThatAreNotApart, ()) {
  Plan plan = random_loops();
  pack_arena(plan);
  const std::vector<BufferUse> uses = buffer_uses(plan);
  for (const BufferUse& a : uses)
    for (const BufferUse& b : uses) {
      const Buffer& one = plan.buffers[a.buffer];
      const Buffer& other = plan.buffers[b.buffer];
      if (a.buffer < b.buffer && !apart(a, b))
        RC_ASSERT(one.offset + one.bytes() <= other.offset ||
                  other.offset + other.bytes() <= one.offset);
    }
}

}  // namespace
}  // namespace shardplan
