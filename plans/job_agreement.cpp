#include "plans/job_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace shardplan {
namespace {

class JobCheck {
 public:
  JobCheck(const Plan& plan, std::vector<Fault>& faults) : plan_(plan), faults_(faults) {}

  void run() {
    check_mesh();
    const std::int64_t batches = micro_steps_of(plan_);
    if (const int steps = training().gradient_accumulation.steps; batches != steps)
      fault("", fmt::format("a step reads {} batches, the job has {} micro-steps", batches, steps));
    for (const Instruction& instruction : plan_.instructions)
      if (const auto* compute = std::get_if<Compute>(&instruction.operation))
        check_launch(instruction.name, *compute);
    for (const Segment& segment : plan_.segments)
      check_loss(segment);
  }

 private:
  const TrainingJob& training() const { return plan_.job.training; }
  void fault(const std::string& instruction, std::string why) {
    faults_.push_back({instruction, "", std::move(why)});
  }

  void check_mesh() {
    const Strategy sharding = plan_.job.strategy.sharding;
    const bool replicates = sharding == Strategy::Ddp || sharding == Strategy::NoShard;
    const bool shards = sharding == Strategy::FullShard || sharding == Strategy::ShardGradOp;
    if ((replicates && plan_.mesh.shard != 1) || (shards && plan_.mesh.replicate != 1))
      fault("", fmt::format("the mesh has shard groups of {} ranks, the job is {}",
                            plan_.mesh.shard, to_string(sharding)));
  }

  /// The chunks of a micro-batch's loss take its rows one after the other.
  void check_loss(const Segment& segment) {
    std::int64_t next = 0;
    for (InstructionId id = segment.first; id < segment.last; ++id) {
      const Instruction& instruction = plan_.instructions[id];
      const auto* compute = std::get_if<Compute>(&instruction.operation);
      if (!compute || compute->kernel != Kernel::CrossEntropy) continue;
      const Attributes& a = compute->attributes;
      const std::int64_t all =
          (Extent(a.integer(Attribute::Batch)) * a.integer(Attribute::Time)).value();
      const std::int64_t most = std::min(ceil_div(all, training().loss_chunks), all - next);
      if (a.integer(Attribute::FirstRow) != next || rows_of(a) != Extent(most))
        return fault(instruction.name,
                     fmt::format("is the loss of {} rows from {} on, not of {} from {} on",
                                 rows_of(a).value(), a.integer(Attribute::FirstRow), most, next));
      next += most;
      if (next == all) next = 0;
    }
    if (next != 0) fault("", fmt::format("{} ends inside the chunks of a loss", segment.name));
  }

  void check_launch(const std::string& name, const Compute& compute) {
    const Attributes& attributes = compute.attributes;
    const OptimizerJob& optimizer = training().optimizer;
    const auto same = [&](Attribute attribute, double expected, double otherwise = 0) {
      const double value = attributes.real(attribute, otherwise);
      if (std::abs(value - expected) > 1e-12 * std::abs(expected))
        fault(name, fmt::format("attribute {} is {}, the job says {}", to_string(attribute), value,
                                expected));
    };
    if (attributes.has(Attribute::Batch))
      same(Attribute::Batch, static_cast<double>(training().micro_batch));
    if (compute.kernel == Kernel::CrossEntropy)
      same(Attribute::LossScale, 1.0 / training().gradient_accumulation.steps, 1);
    if (compute.kernel == Kernel::GradientNorm)
      same(Attribute::MaxNorm, training().clip_grad_norm.value_or(0));
    if (!is_optimizer(compute.kernel)) return;
    if ((compute.kernel == Kernel::Sgd) != (optimizer.name == OptimizerJob::Name::Sgd))
      fault(name, fmt::format("is not the job's optimizer, {}", to_string(optimizer.name)));
    if (attributes.real(Attribute::WeightDecay) != 0)  // some parameters may not decay
      same(Attribute::WeightDecay, optimizer.weight_decay);
    if (compute.kernel == Kernel::Sgd) return same(Attribute::Momentum, optimizer.momentum);
    same(Attribute::Beta1, optimizer.beta1);
    same(Attribute::Beta2, optimizer.beta2);
    same(Attribute::Epsilon, optimizer.eps);
    same(Attribute::DecoupledDecay, optimizer.name == OptimizerJob::Name::AdamW ? 1 : 0);
  }

  const Plan& plan_;
  std::vector<Fault>& faults_;
};

}  // namespace

void check_job(const Plan& plan, std::vector<Fault>& faults) { JobCheck(plan, faults).run(); }

}  // namespace shardplan
