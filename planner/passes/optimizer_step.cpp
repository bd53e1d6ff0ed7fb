#include "planner/passes/optimizer_step.h"

#include <fmt/format.h>

#include <utility>

namespace shardplan {
namespace {

constexpr Slot kCompute{Stream::Compute, Phase::Optimizer};
constexpr Slot kAllReduce{Stream::AllReduce, Phase::Optimizer};
constexpr Slot kReport{Stream::DeviceToHost, Phase::Optimizer};

void report_loss(Emitter& emitter, BufferId loss) {
  const View view = emitter.whole(loss);
  const auto world = static_cast<double>(emitter.plan().world_size());
  if (world > 1)
    emitter.emit("all_reduce.loss", kAllReduce, AllReduce{Group::World, 1, 1 / world, {}}, {view},
                 {view});
  emitter.emit("write_loss", kReport, Write{Sink::Loss}, {view}, {});
}

/// Returns the buffer of the factor that clipping multiplies every gradient by.
BufferId clip_coefficient(Emitter& emitter, const std::vector<BufferId>& gradients) {
  const Plan& plan = emitter.plan();
  const BufferId sum =
      emitter.buffer("gradient_sum_squares", Category::Temporaries, 1, Dtype::Float64);
  const BufferId norm = emitter.buffer("gradient_norm", Category::Temporaries, 1);
  const BufferId coefficient = emitter.buffer("clip_coefficient", Category::Temporaries, 1);
  std::vector<View> parts;
  for (const BufferId gradient : gradients)
    if (gradient >= 0) parts.push_back(emitter.whole(gradient));
  emitter.emit("sum_squares", kCompute, Compute{Kernel::SumSquares, {}}, std::move(parts),
               {emitter.whole(sum)});
  if (plan.mesh.shard > 1)
    emitter.emit("all_reduce.gradient_norm", kAllReduce, AllReduce{Group::Shard, 1, 1, {}},
                 {emitter.whole(sum)}, {emitter.whole(sum)});
  const double max_norm = plan.job.training.clip_grad_norm.value_or(0);
  emitter.emit("gradient_norm", kCompute,
               Compute{Kernel::GradientNorm, {{Attribute::MaxNorm, max_norm}}},
               {emitter.whole(sum)}, {emitter.whole(norm), emitter.whole(coefficient)});
  emitter.emit("write_gradient_norm", kReport, Write{Sink::GradientNorm}, {emitter.whole(norm)},
               {});
  return coefficient;
}

/// A stretch of a unit's shard that one launch updates: slices that are alike, side by side.
struct Stretch {
  std::int64_t at = 0;
  std::int64_t elems = 0;
  bool decays = true;
};

std::vector<Stretch> stretches(const Unit& unit) {
  std::vector<Stretch> result;
  for (const UnitSlice& slice : unit.slices) {
    if (!slice.trainable) break;
    if (result.empty() || result.back().decays != slice.decays)
      result.push_back({slice.at / unit.shards(), 0, slice.decays});
    result.back().elems += slice.elems / unit.shards();
  }
  return result;
}

/// The optimizer's states where they live in host memory (cpu_offload.optimizer): fetched ahead of
/// a unit's update and put back after it, two units' at a time.
class HostStates {
 public:
  explicit HostStates(Emitter& emitter)
      : emitter_(emitter), used_(emitter.plan().job.strategy.cpu_offload.optimizer) {}

  /// Where the update finds the unit's states.
  std::vector<BufferId> fetched(int unit, const std::vector<BufferId>& states) {
    if (!used_) return states;
    std::vector<BufferId> there;
    for (const BufferId state : states) {
      const std::string name = emitter_.plan().buffers[state].name;
      there.push_back(emitter_.buffer(name + ".fetched", Category::OptimizerState,
                                      emitter_.plan().buffers[state].elems));
      const InstructionId fetch =
          emitter_.emit("fetch." + name, {Stream::HostToDevice, Phase::Optimizer, unit}, Copy{},
                        {emitter_.whole(state)}, {emitter_.whole(there.back())});
      if (ends_.size() >= 2) emitter_.throttle(fetch, ends_[ends_.size() - 2]);
    }
    return there;
  }
  void put_back(int unit, const std::vector<BufferId>& states, const std::vector<BufferId>& there) {
    if (!used_ || states.empty()) return;
    for (std::size_t s = 0; s < states.size(); ++s)
      last_ = emitter_.emit("put_back." + emitter_.plan().buffers[states[s]].name,
                            {Stream::DeviceToHost, Phase::Optimizer, unit}, Copy{},
                            {emitter_.whole(there[s])}, {emitter_.whole(states[s])});
    ends_.push_back(last_);
  }

 private:
  Emitter& emitter_;
  const bool used_;
  InstructionId last_ = -1;
  std::vector<InstructionId> ends_;  // by unit that has states
};

}  // namespace

Compute optimizer_kernel(const OptimizerJob& optimizer, double weight_decay) {
  if (optimizer.name == OptimizerJob::Name::Sgd)
    return {Kernel::Sgd,
            {{Attribute::Momentum, optimizer.momentum}, {Attribute::WeightDecay, weight_decay}}};
  const bool decoupled = optimizer.name == OptimizerJob::Name::AdamW;
  return {Kernel::Adam,
          {{Attribute::Beta1, optimizer.beta1},
           {Attribute::Beta2, optimizer.beta2},
           {Attribute::Epsilon, optimizer.eps},
           {Attribute::WeightDecay, weight_decay},
           {Attribute::DecoupledDecay, decoupled ? 1 : 0}}};
}

std::vector<std::string> optimizer_scalars(const OptimizerJob& optimizer) {
  if (optimizer.name == OptimizerJob::Name::Sgd) return {"learning_rate"};
  return {"learning_rate", "bias_correction1", "bias_correction2"};
}

void emit_optimizer_step(Emitter& emitter, const GradientPath& gradients, const ModelState& state,
                         BufferId loss) {
  report_loss(emitter, loss);
  const BufferId coefficient = clip_coefficient(emitter, gradients.gradients());
  const OptimizerJob& optimizer = emitter.plan().job.training.optimizer;
  HostStates host(emitter);
  for (std::size_t u = 0; u < emitter.plan().units.size(); ++u) {
    const Unit& unit = emitter.plan().units[u];
    const std::vector<BufferId> states = host.fetched(static_cast<int>(u), state.of_unit(u));
    for (const Stretch& stretch : stretches(unit)) {
      const Compute update =
          optimizer_kernel(optimizer, stretch.decays ? optimizer.weight_decay : 0);
      const auto part = [&](BufferId buffer) { return View{buffer, stretch.at, stretch.elems}; };
      std::vector<View> updated{part(unit.parameter)};
      for (const BufferId buffer : states)
        updated.push_back(part(buffer));
      std::vector<View> reads{part(gradients.gradients()[u]), emitter.whole(coefficient)};
      reads.insert(reads.end(), updated.begin(), updated.end());
      emitter.emit(fmt::format("{}.{}", unit.name, to_string(update.kernel)),
                   {Stream::Compute, Phase::Optimizer, static_cast<int>(u)}, update,
                   std::move(reads), std::move(updated));
    }
    host.put_back(static_cast<int>(u), state.of_unit(u), states);
  }
}

}  // namespace shardplan
