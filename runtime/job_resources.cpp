#include "runtime/job_resources.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace shardplan {
namespace {

template <typename Kind, typename Predicate>
bool any_instruction(const Plan& plan, Predicate predicate) {
  return std::ranges::any_of(plan.instructions, [&](const Instruction& instruction) {
    const auto* operation = std::get_if<Kind>(&instruction.operation);
    return operation && predicate(*operation);
  });
}

/// At least one entry, for instructions outside the steps.
std::vector<StepScalars> scalars_of(const Job& job) {
  const OptimizerJob& optimizer = job.training.optimizer;
  std::vector<StepScalars> scalars(std::max(job.run.steps, 1));
  for (int step = 0; step < static_cast<int>(scalars.size()); ++step)
    scalars[step] = {learning_rate(optimizer, job.training.schedule, step, job.run.steps),
                     1 - std::pow(optimizer.beta1, step + 1),
                     1 - std::pow(optimizer.beta2, step + 1)};
  return scalars;
}

}  // namespace

JobResources::JobResources(const Plan& plan, std::optional<SafetensorsWriter::Open> open,
                           const Checkpoint* checkpoint)
    : checkpoint_(checkpoint), scalars_(scalars_of(plan.job)), steps_(scalars_.size()) {
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    steps_[step].step = static_cast<int>(step) + 1;
    steps_[step].learning_rate = scalars_[step].learning_rate;
  }
  if (any_instruction<Read>(plan, [](Read read) { return read.source != Source::Weights; }))
    batches_.emplace(plan, checkpoint ? checkpoint->position() : TrainingPosition{});
  if (any_instruction<Read>(plan, [](Read read) { return read.source == Source::Weights; }))
    weight_source_.emplace(plan, checkpoint);
  if (open && any_instruction<Write>(plan, [](Write write) { return write.sink == Sink::Weights; }))
    weight_sink_.emplace(plan, *open);
}

JobData JobResources::data() {
  return {.batches = batches_ ? &*batches_ : nullptr,
          .weight_source = weight_source_ ? &*weight_source_ : nullptr,
          .weight_sink = weight_sink_ ? &*weight_sink_ : nullptr,
          .checkpoint = checkpoint_,
          .scalars = scalars_,
          .steps = steps_};
}

void JobResources::commit() {
  if (weight_sink_) weight_sink_->commit();
}

}  // namespace shardplan
