#include <benchmark/benchmark.h>

#include <string>

#include "planner/model.h"
#include "planner/passes/arena.h"
#include "planner/passes/autograd.h"
#include "planner/passes/layout.h"
#include "planner/passes/schedule.h"
#include "planner/passes/synchronise.h"
#include "planner/passes/wrap.h"
#include "planner/planner.h"
#include "plans/hardware.h"
#include "plans/job_reader.h"
#include "plans/verify.h"
#include "simulator/simulate.h"

namespace shardplan {
namespace {

const Hardware& hardware() {
  static const Hardware catalogue = Hardware::read(data_folder());
  return catalogue;
}

Job preset_job(const std::string& preset, int gpus) {
  const std::vector<Setting> settings{
      "model.preset=" + preset,       "cluster.gpu=h100-sxm-80",
      "cluster.gpus_per_node=8",      "cluster.nodes=" + std::to_string(gpus / 8),
      "strategy.sharding=FULL_SHARD", "training.sequence_length=4096",
      "training.clip_grad_norm=1.0"};
  return read_job("", hardware(), settings);
}

/// Everything between a job and an answer, JSON and printing apart.
void plan_and_simulate(benchmark::State& state, const std::string& preset, int gpus) {
  const Job job = preset_job(preset, gpus);
  for (auto _ : state) {
    const Plan plan = make_plan(job);
    benchmark::DoNotOptimize(verify(plan));
    benchmark::DoNotOptimize(simulate(plan, hardware().costs(Profile::Cuda)));
  }
}
BENCHMARK_CAPTURE(plan_and_simulate, llama, std::string("llama-3-70b"), 1024)
    ->Name("PlanAndSimulate/llama-3-70b/1024")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_and_simulate, llama, std::string("llama-3-70b"), 65536)
    ->Name("PlanAndSimulate/llama-3-70b/65536")
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(plan_and_simulate, llama, std::string("llama-3-8b"), 8)
    ->Name("PlanAndSimulate/llama-3-8b/8")
    ->Unit(benchmark::kMillisecond);

/// Where the time goes: the same plan, one stage at a time.
struct Stages {
  Job job = preset_job("llama-3-70b", 1024);
  ModelGraph graph = build_model(job.model);
  Tape tape = autograd(
      graph, {.sizes = job.training.sizes(), .profile = Profile::Cuda, .checkpointing = {}});
  Plan scheduled;
  Plan synchronised;
  Plan packed;
  Plan done;

  Stages() {
    scheduled.job = job;
    scheduled.profile = Profile::Cuda;
    scheduled.mesh = {.replicate = 1, .shard = job.world_size()};
    schedule(scheduled, graph, tape, lay_out(scheduled, graph, wrap(graph, tape, job)));
    synchronised = scheduled;
    add_data_waits(synchronised);
    packed = synchronised;
    pack_arena(packed);
    done = packed;
    add_arena_waits(done);
  }
};
const Stages& stages() {
  static const Stages value;
  return value;
}

void stage(benchmark::State& state, void (*pass)(Plan&), const Plan& before) {
  for (auto _ : state) {
    state.PauseTiming();
    Plan plan = before;
    state.ResumeTiming();
    pass(plan);
  }
}

void stage_model(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(build_model(stages().job.model));
}
void stage_autograd(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(autograd(
        stages().graph, {.sizes = stages().job.training.sizes(), .profile = Profile::Cuda}));
}
void stage_schedule(benchmark::State& state) {
  for (auto _ : state) {
    Plan plan;
    plan.job = stages().job;
    plan.mesh = stages().scheduled.mesh;
    const auto groups = wrap(stages().graph, stages().tape, plan.job);
    schedule(plan, stages().graph, stages().tape, lay_out(plan, stages().graph, groups));
  }
}
void stage_data_waits(benchmark::State& state) { stage(state, add_data_waits, stages().scheduled); }
void stage_arena(benchmark::State& state) { stage(state, pack_arena, stages().synchronised); }
void stage_arena_waits(benchmark::State& state) { stage(state, add_arena_waits, stages().packed); }
void stage_verify(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(verify(stages().done));
}
void stage_simulate(benchmark::State& state) {
  for (auto _ : state)
    benchmark::DoNotOptimize(simulate(stages().done, hardware().costs(Profile::Cuda)));
}
BENCHMARK(stage_model)->Name("Stage/model")->Unit(benchmark::kMillisecond);
BENCHMARK(stage_autograd)->Name("Stage/autograd")->Unit(benchmark::kMillisecond);
BENCHMARK(stage_schedule)->Name("Stage/wrap+layout+schedule")->Unit(benchmark::kMillisecond);
BENCHMARK(stage_data_waits)->Name("Stage/data_waits")->Unit(benchmark::kMillisecond);
BENCHMARK(stage_arena)->Name("Stage/arena")->Unit(benchmark::kMillisecond);
BENCHMARK(stage_arena_waits)->Name("Stage/arena_waits")->Unit(benchmark::kMillisecond);
BENCHMARK(stage_verify)->Name("Stage/verify")->Unit(benchmark::kMillisecond);
BENCHMARK(stage_simulate)->Name("Stage/simulate")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace shardplan
