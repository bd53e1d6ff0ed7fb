#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>

#include "planner/passes/buffer_uses.h"
#include "planner/passes/live_bound.h"
#include "planner/passes/synchronise.h"
#include "planner/planner.h"
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

Job random_job() {
  const auto sharding = *rc::gen::element(Strategy::FullShard, Strategy::ShardGradOp,
                                          Strategy::NoShard, Strategy::Ddp);
  Job job = testing::tiny_job(sharding, *rc::gen::inRange(1, 70));
  job.training.micro_batch = *rc::gen::inRange(1, 4);
  job.training.sequence_length = *rc::gen::inRange(1, 90);
  job.training.optimizer.name =
      *rc::gen::element(OptimizerJob::Name::AdamW, OptimizerJob::Name::Sgd);
  job.training.optimizer.momentum = *rc::gen::element(0.0, 0.9);
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
    RC_FAIL(faults[0].instruction + " | " + faults[0].buffer + " | " + faults[0].why);
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

RC_GTEST_PROP(Planner, ReductionsMoveEveryGradientOnce, ()) {
  const Job job = random_job();
  const Plan plan = make_plan(job, testing::tiny_llama(random_model(3)));
  std::map<int, std::int64_t> reduced;
  for (const Instruction& instruction : plan.instructions) {
    if (const auto* scatter = std::get_if<ReduceScatter>(&instruction.operation))
      for (const int unit : scatter->contributes)
        reduced[unit] += instruction.reads[0].elems;
    if (const auto* all = std::get_if<AllReduce>(&instruction.operation))
      for (const int unit : all->contributes)
        reduced[unit] += instruction.reads[0].elems;
  }
  for (std::size_t unit = 0; unit < plan.units.size(); ++unit)
    RC_ASSERT(reduced[static_cast<int>(unit)] ==
              (plan.world_size() > 1 ? plan.units[unit].padded_elems : 0));
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
        if (a != b && (set >> b & 1U) != 0) antichain = !wholly_before(uses[a], uses[b]);
    }
    if (antichain) heaviest = std::max(heaviest, weight);
  }
  return heaviest;
}

/// Fills on random streams with random waits, and those that data needs: shapes that no schedule
/// makes.
RC_GTEST_PROP(LiveBound, IsTheHeaviestSetOfUnorderedBuffers, ()) {
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
  plan.segments = {{"all", 0, instructions}};
  plan.program = {{.segment = 0}};
  add_data_waits(plan);
  const std::vector<BufferUse> uses = buffer_uses(plan);
  RC_ASSERT(live_bound(plan, uses) == heaviest_antichain(plan, uses));
}

}  // namespace
}  // namespace shardplan
