#include "simulator/simulate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "plans/error.h"
#include "simulator/events.h"
#include "simulator/goodput.h"
#include "simulator/overlap.h"
#include "simulator/trace.h"

namespace shardplan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const CostConstants kIdeal{.matmul_efficiency = 1,
                           .memory_efficiency = 1,
                           .collective_protocols = {{.name = "ring"}},
                           .device_context_bytes = 1000,
                           .communicator_bytes = 100};

/// A plan of instructions whose seconds are given: memory and links move a byte a second.
class TimedPlan {
 public:
  explicit TimedPlan(int ranks) {
    plan_.mesh.shard = ranks;
    plan_.job.cluster.gpus_per_node = ranks;
    plan_.job.cluster.gpu = {.key = "slow",
                             .memory_bytes = 10'000,
                             .memory_bandwidth_bytes_per_s = 1,
                             .matmul_flops_fp32 = 1,
                             .pcie_bytes_per_s = 1,
                             .price_per_hour = {}};
    plan_.job.cluster.network.intra_node_bytes_per_s = 1;
    plan_.classes = {{0, ranks - 1, {}}};
    plan_.units = {{.name = "unit"}};
  }

  void work(const std::string& name, Stream stream, int seconds,
            std::vector<std::string> after = {}) {
    add(name, stream, Fill{}, {}, {bytes(seconds)}, after);
  }
  /// An all-gather over two ranks, half of whose bytes each rank sends.
  void gather(const std::string& name, int seconds, std::vector<std::string> after = {}) {
    const View shard = bytes(seconds);
    add(name, Stream::AllGather, AllGather{}, {shard}, {bytes(2 * seconds)}, after);
  }
  void scatter(const std::string& name, int seconds, std::vector<std::string> after = {}) {
    const View full = bytes(2 * seconds);
    add(name, Stream::ReduceScatter, ReduceScatter{}, {full}, {bytes(seconds)}, after);
  }
  void host_wait(const std::string& name) {
    add(name + ".wait", Stream::Host, HostWait{}, {}, {}, {name});
  }
  void read_tokens(int tokens) {
    add("tokens", Stream::Compute, Read{Source::Tokens}, {}, {bytes(tokens)}, {});
  }
  void add(const std::string& name, Stream stream, Operation operation, std::vector<View> reads,
           std::vector<View> writes, const std::vector<std::string>& after) {
    ids_[name] = static_cast<InstructionId>(plan_.instructions.size());
    waits_.push_back(after);
    plan_.instructions.push_back({.name = name,
                                  .stream = stream,
                                  .unit = 0,
                                  .reads = std::move(reads),
                                  .writes = std::move(writes),
                                  .operation = std::move(operation)});
  }
  View bytes(int count) {
    plan_.buffers.push_back({.dtype = Dtype::UInt8, .elems = count});
    return {static_cast<BufferId>(plan_.buffers.size()) - 1, 0, count};
  }

  /// All instructions are one step, of `micro_steps` passes.
  Plan build(int micro_steps = 1) {
    for (std::size_t id = 0; id < waits_.size(); ++id)
      for (const std::string& name : waits_[id])
        plan_.instructions[id].after.push_back({ids_.at(name), Why::Data});
    plan_.segments = {{"step", 0, static_cast<InstructionId>(plan_.instructions.size())}};
    plan_.program = {
        {.count = ProgramItem::kOncePerStep, .body = {{.count = micro_steps, .segment = 0}}}};
    return plan_;
  }

 private:
  Plan plan_;
  std::map<std::string, InstructionId> ids_;
  std::vector<std::vector<std::string>> waits_;
};

TimeReport time_of(const Plan& plan) { return simulate(plan, kIdeal).time.value(); }

TEST(Simulate, OneStreamAddsItsInstructionsUp) {
  TimedPlan plan(1);
  plan.work("a", Stream::Compute, 3);
  plan.work("b", Stream::Compute, 4);
  const TimeReport time = time_of(plan.build());
  EXPECT_DOUBLE_EQ(time.step_s, 7);
  EXPECT_DOUBLE_EQ(time.compute_s, 7);
  EXPECT_DOUBLE_EQ(time.communication_s, 0);
}

TEST(Simulate, AGatherThatNothingHoldsBackHidesBehindCompute) {
  TimedPlan plan(2);
  plan.gather("g", 3);
  plan.work("a", Stream::Compute, 5, {"g"});
  const TimeReport time = time_of(plan.build());
  EXPECT_DOUBLE_EQ(time.step_s, 5);  // the next step's gather runs ahead
  EXPECT_DOUBLE_EQ(time.exposed_communication_s, 0);
}

TEST(Simulate, AWaitAcrossTheBackEdgeExposesTheGather) {
  TimedPlan plan(2);
  plan.gather("g", 3, {"a"});
  plan.work("a", Stream::Compute, 5, {"g"});
  const TimeReport time = time_of(plan.build());
  EXPECT_DOUBLE_EQ(time.step_s, 8);
  EXPECT_DOUBLE_EQ(time.communication_s, 3);
  EXPECT_DOUBLE_EQ(time.exposed_communication_s, 3);
}

TEST(Simulate, TheNextStepsGatherCountsInTheStepThatItRunsIn) {
  TimedPlan plan(2);
  plan.gather("g", 3, {"a"});
  plan.work("a", Stream::Compute, 5, {"g"});
  plan.work("b", Stream::Compute, 4);  // beside the gather of the next step
  const TimeReport time = time_of(plan.build());
  EXPECT_DOUBLE_EQ(time.step_s, 9);
  EXPECT_DOUBLE_EQ(time.communication_s, 3);
  EXPECT_DOUBLE_EQ(time.exposed_communication_s, 0);
}

TEST(Simulate, ExposedIsWhatComputeDoesNotCover) {
  TimedPlan plan(2);
  plan.work("a", Stream::Compute, 4, {"g"});  // beside the gather below
  plan.gather("g", 7, {"b"});
  plan.work("b", Stream::Compute, 2);
  plan.host_wait("g");
  const TimeReport time = time_of(plan.build());
  EXPECT_DOUBLE_EQ(time.step_s, 4 + 2 + 7 - 6);
  EXPECT_DOUBLE_EQ(time.compute_s, 6);
  EXPECT_DOUBLE_EQ(time.exposed_communication_s, 1);
}

TEST(Simulate, CollectivesOfTwoStreamsTakeTurnsOnTheLink) {
  TimedPlan plan(2);
  plan.gather("g", 3);
  plan.scatter("s", 4);
  EXPECT_DOUBLE_EQ(time_of(plan.build()).step_s, 7);
}

TEST(Simulate, AHostWaitHoldsBackWhatIsIssuedLater) {
  TimedPlan plan(1);
  plan.work("a", Stream::HostToDevice, 3);
  plan.host_wait("a");
  plan.work("b", Stream::Compute, 4);
  plan.host_wait("b");
  EXPECT_DOUBLE_EQ(time_of(plan.build()).step_s, 7);
}

TEST(Simulate, OneRankCommunicatesNothing) {
  TimedPlan plan(1);
  plan.gather("g", 3);
  const Report report = simulate(plan.build(), kIdeal);
  EXPECT_TRUE(report.collectives.empty());
  EXPECT_EQ(report.bytes_sent_per_rank, 0);
  EXPECT_DOUBLE_EQ(report.time->communication_s, 0);
}

TEST(Simulate, ListsTheCollectivesOfOneStep) {
  TimedPlan plan(2);
  plan.gather("g", 3);
  plan.scatter("s", 4);
  const Report report = simulate(plan.build(), kIdeal);
  ASSERT_EQ(report.collectives.size(), 2u);
  EXPECT_EQ(report.collectives[0].kind, "all_gather");
  EXPECT_EQ(report.collectives[0].unit, "unit");
  EXPECT_EQ(report.collectives[0].input_bytes, 3);
  EXPECT_EQ(report.collectives[0].output_bytes, 6);
  EXPECT_EQ(report.collectives[0].group_size, 2);
  EXPECT_EQ(report.collectives[1].kind, "reduce_scatter");
  EXPECT_EQ(report.bytes_sent_per_rank, 7);
}

TEST(Simulate, RatesCountTheTokensOfAllMicroSteps) {
  TimedPlan plan(2);
  plan.read_tokens(5);
  plan.work("a", Stream::Compute, 5);
  Plan built = plan.build(3);
  built.job.run.steps = 4;
  built.job.cluster.price_per_gpu_hour = 36;
  const Report report = simulate(built, kIdeal);
  EXPECT_DOUBLE_EQ(report.time->step_s, 30);
  EXPECT_DOUBLE_EQ(report.time->tokens_per_s_per_gpu, 0.5);
  EXPECT_DOUBLE_EQ(report.time->tokens_per_s, 1);
  EXPECT_DOUBLE_EQ(report.time->total_s.value(), 120);
  EXPECT_DOUBLE_EQ(report.cost->per_hour.value(), 72);
  EXPECT_DOUBLE_EQ(report.cost->per_billion_tokens.value(), 0.02 * 1e9);
  EXPECT_DOUBLE_EQ(report.cost->total.value(), 2.4);
}

TEST(Simulate, WithoutAPriceTheCostIsNotKnown) {
  TimedPlan plan(1);
  plan.work("a", Stream::Compute, 5);
  EXPECT_FALSE(simulate(plan.build(), kIdeal).cost);
}

TEST(Simulate, UtilisationIsModelFlopsOverTheRateOfTheProductsDtype) {
  TimedPlan plan(1);
  plan.read_tokens(10);
  plan.add("product", Stream::Compute, Compute{Kernel::Linear, {}}, {plan.bytes(5)},
           {plan.bytes(5)}, {});
  Plan built = plan.build();
  built.model_flops_per_token = 4;
  built.job.cluster.gpu.matmul_flops_fp32 = 8;
  EXPECT_DOUBLE_EQ(time_of(built).mfu.value(), 4.0 * (10.0 / 20.0) / 8.0);
}

TEST(Simulate, AClusterWithoutARateIsAnInputError) {
  TimedPlan plan(2);
  plan.gather("g", 3);
  Plan built = plan.build();
  built.job.cluster.network.intra_node_bytes_per_s = 0;
  EXPECT_THROW(simulate(built, kIdeal), InputError);
}

TEST(Simulate, MemoryFollowsLifetimesInIssueOrder) {
  TimedPlan plan(2);
  plan.gather("g", 100);  // 100 in, 200 out, both for this instruction only
  plan.work("a", Stream::Compute, 50);
  plan.work("b", Stream::Compute, 20);
  Plan built = plan.build();
  built.buffers[0].category = Category::Parameters;
  built.buffers[0].resident = true;
  built.buffers[1].category = Category::UnshardedParameters;
  built.instructions[2].phase = Phase::Backward;
  built.instructions[2].reads = {{2, 0, 50}};  // b reads what a wrote
  built.arena = {400, 300};
  const Report report = simulate(built, kIdeal);
  const RankMemory& memory = report.ranks.at(0).memory;
  EXPECT_EQ(report.ranks.at(0).ranks, "0-1");
  EXPECT_EQ(memory.peak_allocated_bytes, 400);
  EXPECT_EQ(memory.peak_device_bytes, 400 + 1000 + 100);
  EXPECT_EQ(memory.peak_at, "g");
  EXPECT_EQ(memory.peak_phase, "forward");
  EXPECT_THAT(memory.at_peak, ElementsAre(100, 0, 0, 200, 0, 0, 0, 0, 0));
  const PhaseMemory forward = memory.phases[static_cast<int>(RunPhase::Forward)];
  EXPECT_EQ(forward.peak_bytes, 300);
  EXPECT_EQ(forward.end_bytes, 150);
  const PhaseMemory backward = memory.phases[static_cast<int>(RunPhase::Backward)];
  EXPECT_EQ(backward.peak_bytes, 170);
  EXPECT_EQ(backward.end_bytes, 100);
  EXPECT_EQ(backward.at, "b");
  EXPECT_EQ(backward.at_peak[static_cast<int>(Category::Parameters)], 100);
  // The first step is as the others, all of it.
  const PhaseMemory first = memory.phases[static_cast<int>(RunPhase::FirstStep)];
  EXPECT_EQ(first.peak_bytes, 300);
  EXPECT_EQ(first.end_bytes, 100);
  EXPECT_FALSE(memory.phases[static_cast<int>(RunPhase::Init)].peak_bytes);
}

TEST(Simulate, FitsWhenTheArenaAndWhatLiesOutsideFit) {
  TimedPlan plan(1);
  plan.work("a", Stream::Compute, 5);
  Plan built = plan.build();
  built.arena.bytes = 9000;  // and 1,000 of context; one rank needs no communicator
  EXPECT_EQ(simulate(built, kIdeal).fits, true);
  built.arena.bytes = 9001;
  EXPECT_EQ(simulate(built, kIdeal).fits, false);
}

TEST(Simulate, AnAxisAsLongAsTheWorldIsOneCommunicator) {
  TimedPlan plan(2);
  plan.gather("g", 1);
  plan.add("r", Stream::AllReduce, AllReduce{Group::World}, {plan.bytes(1)}, {plan.bytes(1)}, {});
  EXPECT_EQ(simulate(plan.build(), kIdeal).ranks.at(0).memory.communicator_bytes, 100);
}

TEST(Simulate, TimelineIsOneStepFromItsFirstBegin) {
  TimedPlan plan(2);
  plan.gather("g", 3, {"a"});
  plan.work("a", Stream::Compute, 5, {"g"});
  const Plan built = plan.build();
  const Report report = simulate(built, kIdeal, {.timeline = true});
  ASSERT_EQ(report.timeline.size(), 2u);
  EXPECT_DOUBLE_EQ(report.timeline[0].begin_s, 0);
  EXPECT_DOUBLE_EQ(report.timeline[0].end_s, 3);
  EXPECT_DOUBLE_EQ(report.timeline[1].end_s, 8);
  const std::string trace = trace_json(built, report);
  EXPECT_THAT(
      trace,
      HasSubstr(
          R"("name":"a","cat":"forward","ph":"X","pid":0,"tid":0,"ts":3000000.0,"dur":5000000.0)"));
  EXPECT_THAT(trace, HasSubstr(R"("ph":"C")"));
}

TEST(Simulate, AnEmptyPlanTakesNoTime) {
  Plan plan = TimedPlan(1).build();
  EXPECT_FALSE(simulate(plan, kIdeal).time);
  plan.program.clear();
  EXPECT_FALSE(simulate(plan, kIdeal).time);
}

TEST(Overlap, CountsOnlyWhatLiesInsideTheWindow) {
  const std::vector<Interval> a{{0, 2}, {3, 6}, {8, 9}};
  const std::vector<Interval> b{{1, 4}, {5, 10}};
  EXPECT_DOUBLE_EQ(covered(a, {1, 8.5}), 1 + 3 + 0.5);
  EXPECT_DOUBLE_EQ(overlap(a, b, {0, 10}), 1 + 1 + 1 + 1);
  EXPECT_DOUBLE_EQ(overlap(a, b, {3.5, 5.5}), 0.5 + 0.5);
}

TEST(SimulateSteps, ALongLoopTakesWhatAllItsPassesTake) {
  TimedPlan timed(2);
  timed.read_tokens(3);
  timed.gather("gather", 5);
  timed.work("compute", Stream::Compute, 7, {"gather"});
  timed.scatter("reduce", 4, {"compute"});
  const Plan plan = timed.build(1000);
  const TimeReport time = simulate_time(plan, kIdeal).value();
  // Each pass moves 5 and 4 seconds over the link and computes 3 + 7: a pass starts when the one
  // before has read and computed, because its gather runs beside that.
  const IssueOrder order = issue_order(plan, 4);
  const std::vector<Interval> all = run_events(plan, instruction_costs(plan, kIdeal), order);
  Seconds before = 0;
  Seconds after = 0;
  for (std::size_t p = 0; p < order.step_ends[2]; ++p)
    (p < order.step_ends[1] ? before : after) =
        std::max(p < order.step_ends[1] ? before : after, all[p].end_s);
  EXPECT_NEAR(time.step_s, std::max(before, after) - before, 1e-6 * time.step_s);
  EXPECT_NEAR(time.communication_s, 1000 * 9.0, 1e-6 * 9000);
  EXPECT_NEAR(time.tokens_per_s_per_gpu * time.step_s, 3000, 1e-3);
}

TEST(Goodput, NothingIsLostWhereNothingFails) {
  const Reliability safe{.gpu_mtbf_s = 0, .checkpoint_every_s = 100, .checkpoint_s = 1};
  const Goodput result = goodput(1000, 8, safe);
  EXPECT_NEAR(result.mean_s, 1000 + 9, 1e-6);  // no checkpoint after the last part
  EXPECT_DOUBLE_EQ(result.least_s, result.most_s);
  EXPECT_EQ(result.failures, 0);
}

TEST(Goodput, FailuresComeAsOftenAsGpusSay) {
  // A failure every 1000 s in the mean costs 5 s of restart and half of 10 s between checkpoints.
  const Reliability failing{
      .gpu_mtbf_s = 8000, .checkpoint_every_s = 10, .checkpoint_s = 0, .restart_s = 5, .seed = 1};
  const Goodput result = goodput(10'000, 8, failing);
  EXPECT_NEAR(result.failures, result.mean_s / 1000, 0.5);
  EXPECT_NEAR(result.mean_s, 10'000 + result.failures * (5 + 5), 20);
  EXPECT_LT(result.least_s, result.mean_s);
  EXPECT_GT(result.most_s, result.mean_s);
  EXPECT_EQ(goodput(10'000, 8, failing).mean_s, result.mean_s);  // the seed decides
}

TEST(Goodput, TheBestIntervalLosesLeast) {
  Reliability failing{.gpu_mtbf_s = 1e5, .checkpoint_s = 20, .restart_s = 100};
  const Goodput best = goodput(1e6, 16, failing);
  for (const double factor : {0.25, 4.0}) {
    failing.checkpoint_every_s = best.checkpoint_every_s * factor;
    EXPECT_GT(goodput(1e6, 16, failing).mean_s, best.mean_s);
  }
}

TEST(Goodput, TheSlowestOfManyRanksDecides) {
  Reliability jitter{.gpu_mtbf_s = 0, .checkpoint_every_s = 1e9, .jitter = 0.01};
  EXPECT_EQ(goodput(100, 1, jitter).straggling, 0);
  // The largest of 1000 normal numbers is 3.24 in the mean (Tippett's tables).
  EXPECT_NEAR(goodput(100, 1000, jitter).straggling, 0.0324, 0.001);
}

TEST(Goodput, SaysWhenATrainingNeverEnds) {
  const Reliability hopeless{.gpu_mtbf_s = 1, .checkpoint_every_s = 1000, .checkpoint_s = 1};
  EXPECT_THROW(goodput(1e4, 8, hopeless), InputError);
}

}  // namespace
}  // namespace shardplan
