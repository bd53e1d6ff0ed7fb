#include "planner/torch/torch_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "planner/passes/optimizer_step.h"
#include "planner/torch/compiled.h"
#include "planner/torch/engine.h"
#include "planner/torch/forward_pass.h"
#include "planner/torch/optimizer.h"
#include "plans/error.h"

namespace shardplan::torch {
namespace {

void refuse_unmodelled(const ModelGraph& model) {
  std::set<std::string_view> unknown;
  for (const auto vertex : boost::make_iterator_range(boost::vertices(model.dag)))
    if (const OperatorKind kind = model.dag[vertex].kind;
        kind != OperatorKind::Input && !is_modelled(kind))
      unknown.insert(spec(kind).name);
  if (!unknown.empty())
    throw InputError(
        fmt::format("profile torch-eager: operator {} is not modelled yet; engine native plans it",
                    *unknown.begin()));
}

AtenSettings aten_settings(const Setup& setup, const Plan& plan) {
  const StrategyJob& strategy = plan.job.strategy;
  const bool ddp = strategy.engine == shardplan::Engine::Ddp;
  std::optional<Dtype> autocast = setup.autocast;
  if (ddp && strategy.mixed_precision) autocast = strategy.mixed_precision->param;
  return {.gradients = ddp ? Category::Gradients : Category::UnshardedGradients,
          .cpu = setup.cpu,
          .fake = setup.fake,
          .autocast = autocast,
          .backend = setup.backend};
}

/// Emits the segments of a training program.
class Program {
 public:
  Program(Plan& plan, const ModelGraph& model, const std::vector<ParameterGroup>& groups,
          const Setup& setup)
      : plan_(plan),
        emitter_(plan),
        host_(emitter_),
        graph_(host_, setup.fake ? Graph::Sums::OutOfPlace : Graph::Sums::InPlace),
        aten_(host_, graph_, aten_settings(setup, plan)),
        process_{host_, graph_, aten_, model, groups, {}},
        engine_(make_engine(process_)),
        optimizer_(host_),
        setup_(setup) {}

  void emit() {
    plan_.program = {segment("init", [&] { init(); })};
    ForwardPass forward(process_, *engine_, inputs_, setup_);
    ProgramItem step = micro_steps(forward, engine_->micro_steps_to_settle());
    ProgramItem first = step;
    // What the loop keeps of a step is first made in the first one.
    if (engine_->first_step_differs() || setup_.keeps_outputs) {
      first.body.push_back(update("optimizer.first"));
      first.body.push_back(zero_grad());
      first.body.push_back(segment("first_step.end", [&] {
        host_.enter(Phase::Forward);
        engine_->end_first_step();
      }));
      step = micro_steps(forward, 1);
      step.body.push_back(update("optimizer"));
      step.body.push_back(zero_grad());
    } else {
      first.body.push_back(update("optimizer.first"));
      step.body.push_back(update("optimizer"));
      step.body.push_back(zero_grad());
      first.body.push_back(step.body.back());
    }
    first.count = ProgramItem::kFirstStep;
    step.count = ProgramItem::kOncePerStep;
    plan_.program.push_back(std::move(first));
    plan_.program.push_back(std::move(step));
    host_.close();
  }

 private:
  template <typename Body>
  ProgramItem segment(const std::string& name, Body body) {
    const int seen = ++names_[name];
    const std::string unique = seen == 1 ? name : fmt::format("{}#{}", name, seen);
    return {.segment = emitter_.segment(unique, body), .body = {}};
  }

  void init() {
    host_.enter(Phase::Init);
    if (const Bytes bytes = plan_.buffers_bytes.value_or(0); bytes > 0)
      process_.buffers = host_.whole(host_.resident({.name = "buffers",
                                                     .category = Category::Parameters,
                                                     .elems = bytes / size_of(Dtype::Float32)}));
    engine_->init(optimizer_);
    const Sizes sizes = plan_.job.training.sizes();
    for (const auto vertex : boost::make_iterator_range(boost::vertices(process_.model.dag))) {
      const Operator& op = process_.model.dag[vertex];
      if (op.kind != OperatorKind::Input) continue;
      const bool counts = op.output.dtype == Dtype::Int32;  // torch.long
      Tensor& input = inputs_.emplace_back();
      input.elems = op.output.elements(sizes);
      input.dtype = counts ? Dtype::Int64 : op.output.dtype;
      input.storage = host_.resident({.name = op.module,
                                      .category = Category::Inputs,
                                      .elems = input.elems,
                                      .dtype = input.dtype});
    }
  }

  void read_inputs() {
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      host_.issue(fmt::format("read.{}", plan_.buffers[inputs_[i].storage->buffer()].name),
                  Stream::Compute,
                  Read{i == 0   ? Source::Tokens
                       : i == 1 ? Source::Targets
                                : Source::Input},
                  {}, {inputs_[i].view()});
  }

  void micro_step(ForwardPass& forward, Engine::Sync sync) {
    host_.enter(Phase::Forward);
    engine_->begin_micro_step(sync);
    read_inputs();
    ForwardPass::Result result = forward.run();
    host_.enter(Phase::Backward);
    forward.run_backward(std::move(result));
    engine_->end_backward();
  }

  /// The first micro-step makes what the others add to; the last one may be the only one that
  /// reduces. `single`: how many come before those that are alike.
  ProgramItem micro_steps(ForwardPass& forward, int single) {
    const auto& accumulation = plan_.job.training.gradient_accumulation;
    const Engine::Sync early = accumulation.sync == GradientAccumulation::Sync::Last
                                   ? Engine::Sync::No
                                   : Engine::Sync::Yes;
    ProgramItem step;
    const auto add = [&](const char* name, Engine::Sync sync) -> ProgramItem& {
      return step.body.emplace_back(segment(name, [&] { micro_step(forward, sync); }));
    };
    const int before_last = accumulation.steps - 1;
    for (int i = 0; i < std::min(single, before_last); ++i)
      add(i == 0 ? "micro.first" : "micro.next", early);
    if (before_last > single) add("micro", early).count = before_last - single;
    step.body.emplace_back(segment("micro.last", [&] {
      engine_->reach_boundary();
      micro_step(forward, Engine::Sync::Yes);
    }));
    return step;
  }

  ProgramItem update(const char* name) {
    return segment(name, [&] {
      host_.enter(Phase::Optimizer);
      engine_->step(optimizer_);
    });
  }
  ProgramItem zero_grad() {
    return segment("zero_grad", [&] { engine_->zero_grad(); });
  }

  Plan& plan_;
  Emitter emitter_;
  Host host_;
  Graph graph_;
  Aten aten_;
  Process process_;
  std::unique_ptr<Engine> engine_;
  Optimizer optimizer_;
  const Setup setup_;
  Tensors inputs_;
  std::map<std::string, int> names_;
};

}  // namespace

void schedule(Plan& plan, const ModelGraph& model, const std::vector<ParameterGroup>& groups,
              const Setup& setup) {
  refuse_unmodelled(model);
  plan.expandable_segments = plan.job.strategy.expandable_segments;
  plan.scalars = optimizer_scalars(plan.job.training.optimizer);
  Program(plan, model, groups, setup).emit();
  if (plan.profile == Profile::TorchCompile) {
    compile_blocks(plan, model, setup.compiles_loss);
    plan.remarks.emplace_back("torch.compile: of every block by itself");
  }
}

}  // namespace shardplan::torch
