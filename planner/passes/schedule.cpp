#include "planner/passes/schedule.h"

#include "planner/passes/emitter.h"
#include "planner/passes/gradient_path.h"
#include "planner/passes/micro_step.h"
#include "planner/passes/model_state.h"
#include "planner/passes/optimizer_step.h"

namespace shardplan {

void schedule(Plan& plan, const ModelGraph& graph, const Tape& tape,
              const std::vector<ParameterPlace>& places) {
  plan.scalars = optimizer_scalars(plan.job.training.optimizer);
  Emitter emitter(plan);
  const ModelState state(emitter, plan);
  GradientPath gradients(emitter, places);
  const BufferId loss = emitter.buffer("loss", Category::Temporaries, 1, Dtype::Float64);
  MicroStep micro_step(emitter, graph, tape, places, gradients, loss);

  const auto segment = [&](const char* name, auto body) {
    return ProgramItem{.segment = emitter.segment(name, body), .body = {}};
  };
  plan.program = {segment("load", [&] { state.load(); }), segment("init", [&] { state.init(); })};
  ProgramItem step{.count = ProgramItem::kOncePerStep, .body = {}};
  const std::int64_t micro_steps = plan.job.training.gradient_accumulation.steps;
  if (micro_steps > 1)
    step.body.push_back(segment("zero_grad", [&] {
      gradients.zero();
      emitter.emit("zero_loss", {Stream::Compute, Phase::Optimizer}, Fill{0}, {},
                   {emitter.whole(loss)});
    }));
  if (WholeParameters& parameters = micro_step.parameters(); parameters.gathers_once())
    step.body.push_back(segment("gather", [&] { parameters.gather_for_step(); }));
  if (gradients.sum() == GradientPath::Sum::Whole) {
    step.body.push_back(segment("micro", [&] { micro_step.emit(GradientPath::Reduce::No); }));
    step.body.back().count = micro_steps - 1;
  }
  step.body.push_back(segment("micro_sync", [&] { micro_step.emit(GradientPath::Reduce::Yes); }));
  if (gradients.sum() == GradientPath::Sum::Shards) step.body.back().count = micro_steps;
  step.body.push_back(
      segment("optimizer", [&] { emit_optimizer_step(emitter, gradients, state, loss); }));
  plan.program.push_back(std::move(step));
  plan.program.push_back(segment("save", [&] { state.save(); }));
}

}  // namespace shardplan
