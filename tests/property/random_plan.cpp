#include "tests/property/random_plan.h"

#include <fmt/format.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <utility>

namespace shardplan::testing {
namespace {

/// `least` to `most`, both included.
int draw(int least, int most) { return *rc::gen::inRange(least, most + 1); }

template <typename Enum>
Enum draw_enum(int count) {
  return static_cast<Enum>(draw(0, count - 1));
}

double draw_real() { return draw(-1000, 1000) / 7.0; }

void add_buffers(Plan& plan) {
  const int count = draw(1, 8);
  for (int b = 0; b < count; ++b)
    plan.buffers.push_back({.name = fmt::format("buffer/{} \"~\"", b),
                            .category = draw_enum<Category>(kCategories),
                            .dtype = draw_enum<Dtype>(8),
                            .elems = draw(0, 1 << 20),
                            .space = draw_enum<Space>(kSpaces),
                            .resident = draw(0, 1) == 1,
                            .offset = draw(-1, 1 << 20)});
}

void add_units(Plan& plan) {
  const int count = draw(0, 3);
  for (int u = 0; u < count; ++u) {
    const std::int64_t elems = draw(0, 1000);
    Unit unit{.name = fmt::format("unit.{}", u),
              .elems = elems,
              .padded_elems = round_up(elems, plan.mesh.shard),
              .shard_elems = ceil_div(elems, plan.mesh.shard),
              .parameter = draw(-1, static_cast<int>(plan.buffers.size()) - 1)};
    const auto kind = draw_enum<Initializer::Kind>(3);
    const Initializer initializer = kind == Initializer::Kind::Normal
                                        ? Initializer{kind, draw_real()}
                                        : Initializer{.kind = kind};
    for (std::int64_t at = 0; at < unit.padded_elems; at += unit.padded_elems / 2 + 1) {
      const std::int64_t size = std::min(unit.padded_elems / 2 + 1, unit.padded_elems - at);
      unit.slices.push_back({at, size, size / 2, draw(0, 1) == 1, draw(0, 1) == 1});
    }
    unit.parameters.push_back({"weight", {elems / 2, 2}, initializer, elems / 3, elems / 2});
    plan.units.push_back(std::move(unit));
  }
}

void add_classes(Plan& plan) {
  const std::vector<std::int64_t> valid(plan.units.size(), draw(0, 100));
  const std::int64_t split = draw(0, static_cast<int>(plan.ranks_in_classes()) - 1);
  if (split > 0) plan.classes.push_back({0, split - 1, valid});
  plan.classes.push_back({split, plan.ranks_in_classes() - 1, valid});
}

std::vector<View> draw_views(const Plan& plan) {
  std::vector<View> views;
  const int count = draw(0, 2);
  for (int v = 0; v < count; ++v) {
    const BufferId buffer = draw(0, static_cast<int>(plan.buffers.size()) - 1);
    const std::int64_t elems = plan.buffers[buffer].elems;
    const std::int64_t at = draw(0, 1) == 0 ? 0 : elems / 3;
    views.push_back({buffer, at, elems - at});
  }
  return views;
}

template <typename Reduction>
Reduction draw_reduction(const Plan& plan) {
  Reduction reduction{draw_enum<Group>(kGroups), draw_real(), draw_real(), {}};
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    if (draw(0, 1) == 1) reduction.contributes.push_back(static_cast<int>(u));
  return reduction;
}

Operation draw_operation(const Plan& plan) {
  switch (draw(0, 11)) {
    case 0: return Alloc{};
    case 1: return Free{{draw_enum<Stream>(kStreams), draw_enum<Stream>(kStreams)}};
    case 2:
      return Compute{draw_enum<Kernel>(static_cast<int>(Kernel::Sgd) + 1),
                     {{Attribute::Batch, draw(1, 4)},
                      {Attribute::Time, draw(1, 512)},
                      {Attribute::InFeatures, draw(1, 512)},
                      {Attribute::OutFeatures, draw(1, 512)},
                      {Attribute::Epsilon, draw_real()}}};
    case 3: return draw(0, 1) == 0 ? Copy{} : Copy{draw_enum<Group>(kGroups)};
    case 4: return Fill{draw_real()};
    case 5: return AllGather{draw_enum<Group>(kGroups)};
    case 6: return draw_reduction<ReduceScatter>(plan);
    case 7: return draw_reduction<AllReduce>(plan);
    case 8: return Broadcast{draw_enum<Group>(kGroups), draw(0, 3)};
    case 9: return Read{draw_enum<Source>(kSources)};
    case 10: return Write{draw_enum<Sink>(kSinks)};
    default: return HostWait{};
  }
}

void add_segments(Plan& plan) {
  const int segments = draw(1, 3);
  for (int s = 0; s < segments; ++s) {
    const auto first = static_cast<InstructionId>(plan.instructions.size());
    const int count = draw(0, 8);
    for (int i = 0; i < count; ++i)
      plan.instructions.push_back({.name = fmt::format("segment{}.{}", s, i),
                                   .stream = draw_enum<Stream>(kStreams),
                                   .phase = draw_enum<Phase>(kPhases),
                                   .unit = draw(-1, static_cast<int>(plan.units.size()) - 1),
                                   .reads = draw_views(plan),
                                   .writes = draw_views(plan),
                                   .operation = draw_operation(plan)});
    // Names whose order is not that of the alphabet.
    plan.segments.push_back({fmt::format("segment{}", (s + 2) % 3), first,
                             static_cast<InstructionId>(plan.instructions.size())});
  }
  const auto last = static_cast<int>(plan.instructions.size()) - 1;
  for (Instruction& instruction : plan.instructions)
    for (int waits = draw(0, 2); waits > 0; --waits)
      instruction.after.push_back({draw(0, last), draw_enum<Why>(kWhys)});
}

void add_program(Plan& plan) {
  const auto last = static_cast<int>(plan.segments.size()) - 1;
  plan.program.push_back({.count = draw(1, 3), .segment = 0});
  ProgramItem step{.count = ProgramItem::kOncePerStep};
  step.body.push_back({.count = draw(1, 3), .segment = draw(0, last)});
  step.body.push_back({.count = 2, .body = {{.segment = draw(0, last)}}});
  plan.program.push_back(std::move(step));
  plan.program.push_back({.segment = last});
}

}  // namespace

Job random_plan_job(int gpus_per_node, int nodes) {
  Job job;
  job.model.preset = "gpt2";
  job.cluster.gpu = {.key = "round",
                     .name = "Round",
                     .memory_bytes = 1 << 30,
                     .memory_bandwidth_bytes_per_s = 1e9,
                     .matmul_flops_bf16 = 1e11,
                     .matmul_flops_fp32 = 1e10,
                     .link_bytes_per_s = 1e8,
                     .pcie_bytes_per_s = 1e8,
                     .price_per_hour = {},
                     .source = "tests"};
  job.cluster.gpus_per_node = gpus_per_node;
  job.cluster.nodes = nodes;
  job.cluster.network = {.intra_node_bytes_per_s = 1e8,
                         .intra_node_latency_s = 1e-6,
                         .inter_node_bytes_per_s = 1e7,
                         .inter_node_latency_s = 1e-5};
  job.cluster.price_per_gpu_hour = 2.5;
  job.strategy.engine = Engine::Native;  // as a job that was read has them resolved
  job.strategy.profile = Profile::Cuda;
  return job;
}

Plan random_plan() {
  Plan plan;
  plan.mesh = {.replicate = draw(1, 3), .shard = draw(1, 4)};
  plan.mesh.span = draw(1, static_cast<int>(plan.mesh.shard));
  plan.job =
      random_plan_job(static_cast<int>(plan.mesh.shard), static_cast<int>(plan.mesh.replicate));
  plan.profile = draw_enum<Profile>(3);
  plan.scalars = {"learning_rate"};
  plan.arena = {draw(0, 1 << 20), draw(0, 1 << 20), draw(0, 1 << 20)};
  plan.parameter_count = draw(0, 1000);
  if (draw(0, 1) == 1) plan.buffers_bytes = draw(0, 1000);
  if (draw(0, 1) == 1) plan.remarks = {"dropout 0.1 is not applied"};
  plan.model_flops_per_token = draw(0, 1000) / 3.0;
  add_buffers(plan);
  add_units(plan);
  add_classes(plan);
  add_segments(plan);
  add_program(plan);
  return plan;
}

}  // namespace shardplan::testing
