#include "planner/torch/engine.h"

#include <algorithm>

#include "planner/torch/optimizer.h"
#include "plans/units.h"

namespace shardplan::torch {

namespace {

/// Dtype that mixed precision casts to, of tensors that are stored as `stored`. With DDP it means
/// autocast.
Dtype cast_dtype(const Job& job, Dtype stored) {
  const auto& precision = job.strategy.mixed_precision;
  const bool autocast = job.strategy.engine == shardplan::Engine::Ddp;
  return precision && !autocast ? precision->param : stored;
}

}  // namespace

Dtype stored_dtype(const Job& job, const Parameter& parameter) {
  return parameter.dtype.value_or(job.model.dtype);
}

Dtype compute_dtype(const Job& job, const Parameter& parameter) {
  return cast_dtype(job, stored_dtype(job, parameter));
}

Dtype compute_dtype(const Job& job) { return cast_dtype(job, job.model.dtype); }

std::vector<std::int64_t> local_elems(const Plan& plan, const Parameter& parameter) {
  const std::int64_t elems = parameter.elements();
  const std::int64_t rows = parameter.shape.empty() ? 1 : parameter.shape.front();
  const std::int64_t chunk = ceil_div(rows, plan.mesh.shard);
  std::vector<std::int64_t> local;
  for (const RankClass& ranks : plan.classes) {
    const std::int64_t shard = plan.mesh.shard > 1 ? ranks.first : 0;
    local.push_back(std::clamp<std::int64_t>(rows - shard * chunk, 0, chunk) * (elems / rows));
  }
  return local;
}

void Engine::step(Optimizer& optimizer) {
  optimizer.clip(trained());
  optimizer.step(trained());
}

std::vector<Hooked> hooked_units(const std::vector<ParameterGroup>& groups) {
  std::vector<Hooked> hooked;
  for (std::size_t unit = 0; unit < groups.size(); ++unit)
    hooked.push_back({groups[unit].modules, static_cast<int>(unit)});
  return hooked;
}

std::unique_ptr<Engine> make_engine(const Process& process) {
  switch (process.job().strategy.engine.value_or(shardplan::Engine::Fsdp2)) {
    case shardplan::Engine::Fsdp1: return make_fsdp1(process);
    case shardplan::Engine::Ddp: return make_ddp(process);
    case shardplan::Engine::DeepSpeed: return make_deepspeed(process);
    default: return make_fsdp2(process);
  }
}

}  // namespace shardplan::torch
