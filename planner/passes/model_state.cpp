#include "planner/passes/model_state.h"

namespace shardplan {
namespace {

std::vector<std::string> state_names(const OptimizerJob& optimizer) {
  if (optimizer.name != OptimizerJob::Name::Sgd) return {"exp_avg", "exp_avg_sq"};
  if (optimizer.momentum != 0) return {"momentum_buffer"};
  return {};
}

}  // namespace

ModelState::ModelState(Emitter& emitter, Plan& plan) : emitter_(emitter) {
  for (Unit& unit : plan.units) {
    unit.parameter =
        emitter.resident(unit.name + ".parameters", Category::Parameters, unit.shard_elems);
    std::vector<BufferId>& states = states_.emplace_back();
    const std::int64_t trained = unit.trainable_elems() / unit.shards();
    if (trained == 0) continue;
    for (const std::string& state : state_names(plan.job.training.optimizer)) {
      states.push_back(
          emitter.resident(unit.name + "." + state, Category::OptimizerState, trained));
      if (plan.job.strategy.cpu_offload.optimizer)
        plan.buffers[states.back()].space = Space::Pinned;
    }
  }
}

void ModelState::load() const {
  const Plan& plan = emitter_.plan();
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    emitter_.emit("read_weights." + plan.units[u].name,
                  {Stream::Compute, Phase::Load, static_cast<int>(u)}, Read{Source::Weights}, {},
                  {emitter_.whole(plan.units[u].parameter)});
}

void ModelState::init() const {
  for (std::size_t u = 0; u < states_.size(); ++u) {
    std::vector<View> states;
    for (const BufferId state : states_[u])
      states.push_back(emitter_.whole(state));
    if (!states.empty())
      emitter_.emit("zero_state." + emitter_.plan().units[u].name,
                    {Stream::Compute, Phase::Init, static_cast<int>(u)}, Fill{0}, {}, states);
  }
}

void ModelState::save() const {
  const Plan& plan = emitter_.plan();
  for (std::size_t u = 0; u < plan.units.size(); ++u)
    emitter_.emit("write_weights." + plan.units[u].name,
                  {Stream::DeviceToHost, Phase::Save, static_cast<int>(u)}, Write{Sink::Weights},
                  {emitter_.whole(plan.units[u].parameter)}, {});
}

}  // namespace shardplan
