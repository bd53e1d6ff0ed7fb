#include <gtest/gtest.h>

#include "planner/cost/collective.h"
#include "planner/cost/compute.h"
#include "plans/error.h"

namespace shardplan {
namespace {

const CostConstants kIdeal{
    .matmul_efficiency = 1, .memory_efficiency = 1, .collective_protocols = {{.name = "ring"}}};
constexpr NetworkSpec kNetwork{.intra_node_bytes_per_s = 100,
                               .intra_node_latency_s = 0.001,
                               .inter_node_bytes_per_s = 10,
                               .inter_node_latency_s = 0.01};

/// With one protocol that only moves data, of the given algorithm.
CostConstants only(CollectiveAlgorithm algorithm) {
  CostConstants costs = kIdeal;
  costs.collective_protocols = {{.name = "it", .algorithm = algorithm}};
  return costs;
}

Seconds gather_time(Bytes full, const GroupPlacement& group) {
  return collective_time(CollectiveKind::AllGather, full, group, kNetwork, kIdeal);
}
Seconds all_reduce_time(Bytes full, const GroupPlacement& group, const CostConstants& costs,
                        const NetworkSpec& network = kNetwork) {
  return collective_time(CollectiveKind::AllReduce, full, group, network, costs);
}

TEST(Cost, RingAllGatherSendsAllButTheOwnShard) {
  EXPECT_EQ(ring_all_gather_traffic(4096, 4), 3072);
  EXPECT_EQ(ring_all_gather_traffic(4096, 1), 0);
}

TEST(Cost, RingAllReduceSendsTwiceThat) { EXPECT_EQ(ring_all_reduce_traffic(4096, 4), 6144); }

TEST(Cost, AGroupInsideANodeUsesItsLinks) {
  const GroupPlacement group = placement_of({.replicate = 2, .shard = 8}, Group::Shard, 8);
  EXPECT_EQ(group.ranks, 8);
  EXPECT_EQ(group.nodes, 1);
  EXPECT_DOUBLE_EQ(gather_time(800, group), 7 * 0.001 + 700.0 / 100);
}

TEST(Cost, TheWorldCrossesNodesOncePerNode) {
  const GroupPlacement group = placement_of({.replicate = 2, .shard = 8}, Group::World, 8);
  EXPECT_EQ(group.nodes, 2);
  EXPECT_EQ(group.nic_sharers, 1);
  EXPECT_DOUBLE_EQ(gather_time(1600, group), 14 * 0.001 + 1 * 0.01 + 1500.0 / 10);
}

TEST(Cost, GroupsAcrossNodesShareTheNetworkCards) {
  const GroupPlacement group = placement_of({.replicate = 2, .shard = 8}, Group::Replicate, 8);
  EXPECT_EQ(group.ranks, 2);
  EXPECT_EQ(group.nodes, 2);
  EXPECT_EQ(group.nic_sharers, 8);
  EXPECT_DOUBLE_EQ(gather_time(100, group), 0.01 + 50 / (10.0 / 8));
}

TEST(Cost, AShardGroupSmallerThanANodeLeavesPartOfItsReplicasInside) {
  // Nodes of 8 hold two shard groups of 4: a replica group of 4 has two ranks on each of 2 nodes.
  const GroupPlacement group = placement_of({.replicate = 4, .shard = 4}, Group::Replicate, 8);
  EXPECT_EQ(group.nodes, 2);
  EXPECT_EQ(group.nic_sharers, 4);
}

TEST(Cost, AllReduceTakesTwoPassesAndOneStart) {
  const GroupPlacement group = placement_of({.shard = 4}, Group::World, 4);
  CostConstants costs = kIdeal;
  costs.collective_latency_s = 1;
  EXPECT_DOUBLE_EQ(all_reduce_time(400, group, costs), 1 + 2 * (0.003 + 3));
}

TEST(Cost, AGroupOfOneTakesNoTime) {
  const GroupPlacement group = placement_of({}, Group::World, 8);
  for (const CollectiveKind kind : {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
                                    CollectiveKind::AllReduce, CollectiveKind::Broadcast})
    EXPECT_EQ(collective_time(kind, 400, group, kNetwork, kIdeal), 0);
}

TEST(Cost, ABroadcastPassesAllBytesThroughEveryLink) {
  const GroupPlacement group = placement_of({.shard = 4}, Group::World, 4);
  EXPECT_DOUBLE_EQ(collective_time(CollectiveKind::Broadcast, 400, group, kNetwork, kIdeal),
                   3 * 0.001 + 400.0 / 100);
}

TEST(Cost, ATreeSendsEverythingUpAndDown) {
  const GroupPlacement group = placement_of({.shard = 4}, Group::World, 4);
  EXPECT_DOUBLE_EQ(all_reduce_time(400, group, only(CollectiveAlgorithm::Tree)),
                   2 * 3 * 0.001 + 2 * 400.0 / 100);
}

TEST(Cost, ATreeBetweenTwoNodesSendsEachByteOnce) {
  const GroupPlacement group = placement_of({.shard = 16}, Group::World, 8);
  EXPECT_DOUBLE_EQ(all_reduce_time(400, group, only(CollectiveAlgorithm::Tree)),
                   2 * (7 * 0.001 + 1 * 0.01) + 400.0 / 10);
}

TEST(Cost, ASwitchSumsForAllRanksAtOnce) {
  const GroupPlacement group = placement_of({.shard = 8}, Group::World, 8);
  NetworkSpec network = kNetwork;
  network.nvls_efficiency = 0.5;
  EXPECT_DOUBLE_EQ(all_reduce_time(800, group, only(CollectiveAlgorithm::Nvls), network),
                   0.001 + (800 + 100) / 50.0);
  EXPECT_THROW(all_reduce_time(800, group, only(CollectiveAlgorithm::Nvls)), InputError);
}

TEST(Cost, TheFastestProtocolIsTaken) {
  const GroupPlacement group = placement_of({.shard = 4}, Group::World, 4);
  CostConstants costs = kIdeal;
  costs.collective_protocols = {{.name = "quick to start", .base_s = 0, .rate_share = 0.5},
                                {.name = "quick to move", .base_s = 1, .rate_share = 1}};
  const auto time = [&](Bytes full) {
    return collective_time(CollectiveKind::AllGather, full, group, kNetwork, costs);
  };
  EXPECT_DOUBLE_EQ(time(40), 0.003 + 30 / 50.0);
  EXPECT_DOUBLE_EQ(time(4000), 1 + 0.003 + 3000 / 100.0);
}

TEST(Cost, FewOfFullyMeshedGpusUseFewLinks) {
  NetworkSpec network = kNetwork;
  network.full_mesh_gpus = 8;
  const GroupPlacement pair = placement_of({.shard = 2}, Group::World, 8);
  EXPECT_DOUBLE_EQ(collective_time(CollectiveKind::AllGather, 100, pair, network, kIdeal),
                   0.001 + 50 / (100.0 / 7));
}

class ComputeCost : public ::testing::Test {
 protected:
  ComputeCost() {
    plan_.job.cluster.gpu.memory_bandwidth_bytes_per_s = 1000;
    plan_.job.cluster.gpu.matmul_flops_fp32 = 100;
    plan_.job.cluster.gpu.matmul_flops_bf16 = 400;
    plan_.job.cluster.gpu.pcie_bytes_per_s = 10;
  }

  View buffer(std::int64_t elems, Dtype dtype = Dtype::Float32, Space space = Space::Device) {
    plan_.buffers.push_back({.dtype = dtype, .elems = elems, .space = space});
    return {static_cast<BufferId>(plan_.buffers.size()) - 1, 0, elems};
  }
  static Instruction linear(View x, View weight, View out) {
    return {.reads = {x, weight},
            .writes = {out},
            .operation = Compute{Kernel::Linear,
                                 {{Attribute::Batch, 1},
                                  {Attribute::Time, 10},
                                  {Attribute::InFeatures, 20},
                                  {Attribute::OutFeatures, 30}}}};
  }

  Plan plan_;
};

TEST_F(ComputeCost, ALargeProductIsBoundByArithmetic) {
  const Instruction step = linear(buffer(200), buffer(600), buffer(300));
  CostConstants costs = kIdeal;
  costs.matmul_efficiency = 0.5;
  costs.kernel_latency_s = 2;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 2 + 2.0 * 10 * 20 * 30 / 50);
}

TEST_F(ComputeCost, AttentionHasItsOwnEfficiency) {
  const Instruction step{.reads = {buffer(1)},
                         .writes = {buffer(1)},
                         .operation = Compute{Kernel::Attention,
                                              {{Attribute::Batch, 1},
                                               {Attribute::Time, 1},
                                               {Attribute::Heads, 5},
                                               {Attribute::HeadDim, 10}}}};
  CostConstants costs = kIdeal;
  costs.matmul_efficiency = 0.5;
  costs.attention.flash2 = 0.25;
  costs.attention.flash2_asynchronous = 0.125;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 4.0 * 5 * 10 / 25);
  plan_.job.cluster.gpu.compute_capability = "9.0";
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 4.0 * 5 * 10 / 12.5);
  plan_.job.training.attention_kernel = AttentionKernel::Flash3;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 4.0 * 5 * 10 / 100);
}

TEST_F(ComputeCost, AttentionThatSkipsNothingTakesTwice) {
  const Instruction step{.reads = {buffer(1)},
                         .writes = {buffer(1)},
                         .operation = Compute{Kernel::Attention,
                                              {{Attribute::Batch, 1},
                                               {Attribute::Time, 99},
                                               {Attribute::Heads, 1},
                                               {Attribute::HeadDim, 10}}}};
  const Seconds causal = compute_time(plan_, step, kIdeal);
  plan_.job.training.attention_kernel = AttentionKernel::FlashUnmasked;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, kIdeal), causal * 99 / 50);
}

TEST_F(ComputeCost, AMeasuredRateCountsBeforeTheDatasheets) {
  const Instruction step =
      linear(buffer(200, Dtype::BFloat16), buffer(600, Dtype::BFloat16), buffer(300));
  plan_.job.cluster.gpu.reachable_matmul_flops_bf16 = 300;
  CostConstants costs = kIdeal;
  costs.unmeasured_matmul_share = 0.5;
  costs.asynchronous_matmul_share = 0.25;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 12000.0 / 300);
  plan_.job.cluster.gpu.reachable_matmul_flops_bf16 = 0;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 12000.0 / 200);
  plan_.job.cluster.gpu.compute_capability = "10.0";
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 12000.0 / 50);
}

TEST_F(ComputeCost, TilesAndWavesThatAreNotFullAreLost) {
  const Instruction step = linear(buffer(200), buffer(600), buffer(300));  // 10 x 30, inner 20
  CostConstants costs = kIdeal;
  costs.product_tiles = {{.rows = 8, .columns = 32, .share = 1}};
  plan_.job.cluster.gpu.multiprocessors = 4;
  // 2 x 1 tiles cover 16 x 32 elements; half of 4 multiprocessors work, or all on 2 parts of the
  // inner extent.
  const double covered = 10.0 * 30 / (16 * 32);
  costs.product_split_share = 0.75;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 120 / (covered * 0.75));
  costs.product_split_share = 0.25;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 120 / (covered * 0.5));
  costs.product_ramp_elems = 60;  // 20 of 80
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 120 / (covered * 0.5 * 0.25));
}

TEST_F(ComputeCost, NarrowTypesRunAtTheirOwnRate) {
  const Instruction step =
      linear(buffer(200, Dtype::BFloat16), buffer(600, Dtype::BFloat16), buffer(300));
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, kIdeal), 12000.0 / 400);
  plan_.job.cluster.gpu.matmul_flops_bf16 = 0;  // no such units
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, kIdeal), 12000.0 / 100);
}

TEST_F(ComputeCost, ElementWiseKernelsAreBoundByBytes) {
  const Instruction step{.reads = {buffer(100), buffer(100)},
                         .writes = {buffer(100)},
                         .operation = Compute{Kernel::Add, {}}};
  CostConstants costs = kIdeal;
  costs.memory_efficiency = 0.5;
  EXPECT_EQ(bytes_moved(plan_, step), 1200);
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 1200.0 / 500);
}

TEST_F(ComputeCost, AnEmbeddingReadsOnlyTheRowsItPicks) {
  const Instruction step{.reads = {buffer(10, Dtype::Int32), buffer(50'000)},
                         .writes = {buffer(80)},
                         .operation = Compute{Kernel::Embedding, {}}};
  EXPECT_EQ(bytes_moved(plan_, step), 40 + 320 + 320);
}

TEST_F(ComputeCost, CopiesToTheHostGoOverPcie) {
  const Instruction step{.reads = {buffer(10)},
                         .writes = {buffer(10, Dtype::Float32, Space::Pinned)},
                         .operation = Copy{}};
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, kIdeal), 4.0);
}

TEST_F(ComputeCost, NarrowOperandsRaiseTheRateAndCostTheirRounding) {
  plan_.job.cluster.gpu.matmul_flops_fp8 = 800;
  Instruction step = linear(buffer(200, Dtype::BFloat16), buffer(600, Dtype::BFloat16),
                            buffer(300, Dtype::BFloat16));
  std::get<Compute>(step.operation).attributes.set(Attribute::OperandBits, 8);
  CostConstants costs = kIdeal;
  costs.narrow_matmul_share = 0.5;
  costs.narrow_cast_bytes = 3;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 12000.0 / 400 + 3 * (200 + 600) / 1000.0);
}

TEST_F(ComputeCost, WhatIsCompiledIntoItsNeighboursKeepsAShare) {
  Instruction step{.reads = {buffer(100)},
                   .writes = {buffer(100)},
                   .operation = Compute{Kernel::Elementwise, {{Attribute::Fused, 1}}}};
  CostConstants costs = kIdeal;
  costs.fused_share = 0.25;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 0.8 * 0.25);
  std::get<Compute>(step.operation).attributes = {};
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 0.8);
}

}  // namespace
}  // namespace shardplan
