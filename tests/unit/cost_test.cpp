#include <gtest/gtest.h>

#include "planner/cost/collective.h"
#include "planner/cost/compute.h"

namespace shardplan {
namespace {

constexpr CostConstants kIdeal{.matmul_efficiency = 1,
                               .attention_efficiency = 1,
                               .memory_efficiency = 1,
                               .link_efficiency = 1};
constexpr NetworkSpec kNetwork{.intra_node_bytes_per_s = 100,
                               .intra_node_latency_s = 0.001,
                               .inter_node_bytes_per_s = 10,
                               .inter_node_latency_s = 0.01};

TEST(Cost, RingAllGatherSendsAllButTheOwnShard) {
  EXPECT_EQ(ring_all_gather_traffic(4096, 4), 3072);
  EXPECT_EQ(ring_all_gather_traffic(4096, 1), 0);
}

TEST(Cost, RingAllReduceSendsTwiceThat) { EXPECT_EQ(ring_all_reduce_traffic(4096, 4), 6144); }

TEST(Cost, AGroupInsideANodeUsesItsLinks) {
  const GroupPlacement group = placement_of({.replicate = 2, .shard = 8}, Group::Shard, 8);
  EXPECT_EQ(group.ranks, 8);
  EXPECT_EQ(group.nodes, 1);
  EXPECT_DOUBLE_EQ(ring_time(800, group, kNetwork, kIdeal), 7 * 0.001 + 700.0 / 100);
}

TEST(Cost, TheWorldCrossesNodesOncePerNode) {
  const GroupPlacement group = placement_of({.replicate = 2, .shard = 8}, Group::World, 8);
  EXPECT_EQ(group.nodes, 2);
  EXPECT_EQ(group.nic_sharers, 1);
  EXPECT_DOUBLE_EQ(ring_time(1600, group, kNetwork, kIdeal), 14 * 0.001 + 1 * 0.01 + 1500.0 / 10);
}

TEST(Cost, GroupsAcrossNodesShareTheNetworkCards) {
  const GroupPlacement group = placement_of({.replicate = 2, .shard = 8}, Group::Replicate, 8);
  EXPECT_EQ(group.ranks, 2);
  EXPECT_EQ(group.nodes, 2);
  EXPECT_EQ(group.nic_sharers, 8);
  EXPECT_DOUBLE_EQ(ring_time(100, group, kNetwork, kIdeal), 0.01 + 50 / (10.0 / 8));
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
  EXPECT_DOUBLE_EQ(ring_all_reduce_time(400, group, kNetwork, costs), 1 + 2 * (0.003 + 3));
}

TEST(Cost, AGroupOfOneTakesNoTime) {
  const GroupPlacement group = placement_of({}, Group::World, 8);
  EXPECT_EQ(ring_time(400, group, kNetwork, kIdeal), 0);
  EXPECT_EQ(ring_all_reduce_time(400, group, kNetwork, kIdeal), 0);
  EXPECT_EQ(broadcast_time(400, group, kNetwork, kIdeal), 0);
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
  costs.attention_efficiency = 0.25;
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, costs), 4.0 * 5 * 10 / 25);
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
  EXPECT_DOUBLE_EQ(compute_time(plan_, step, kIdeal), 8.0);
}

}  // namespace
}  // namespace shardplan
