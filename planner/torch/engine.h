#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "planner/passes/wrap.h"
#include "planner/torch/aten.h"
#include "plans/model_graph.h"
#include "plans/plan.h"

namespace shardplan::torch {

/// What an engine is built upon; all outlive it.
struct Process {
  Host& host;
  Graph& autograd;
  Aten& aten;
  const ModelGraph& model;
  const std::vector<ParameterGroup>& groups;  // by unit
  View buffers;                               // of the model; no elements: it has none

  const Plan& plan() const { return host.plan(); }
  const Job& job() const { return plan().job; }
  /// The same number of elements in every rank class.
  std::vector<std::int64_t> alike(std::int64_t elems) const {
    return std::vector<std::int64_t>(plan().classes.size(), elems);
  }
};

/// A tensor that the optimizer updates, and its gradient.
struct Trained {
  std::string name;
  View parameter;
  View gradient;
  std::vector<std::int64_t> class_elems;  // by rank class: elements that a rank updates
  int unit = -1;
  std::vector<std::int64_t> class_tensors = {};  // by rank class: how many; empty: one
};

class Optimizer;

/// Modules that run as one, with hooks of the engine before and after them.
struct Hooked {
  std::vector<std::string> modules;  // paths
  int unit = -1;                     // what runs in them is of
};

/// A data-parallel engine: what it does where PyTorch calls its hooks.
class Engine {
 public:
  virtual ~Engine() = default;

  /// Makes what wrapping the model makes.
  virtual void init(Optimizer& optimizer) = 0;
  /// The first step is unlike the others, in this process or on the wire.
  virtual bool first_step_differs() const { return false; }
  /// Micro-steps of the first step until one is like the next.
  virtual int micro_steps_to_settle() const { return 1; }
  /// What it changes between the first step and the second.
  virtual void end_first_step() {}
  /// What operators read as a parameter of the model.
  virtual Tensor parameter(int index) = 0;

  virtual std::vector<Hooked> hooked() const { return {}; }
  /// Hooks run, too, where a checkpointed region is computed again.
  virtual bool hooks_recomputation() const { return false; }
  enum class Sync { No, Yes };  // under no_sync(), or not
  virtual void begin_micro_step(Sync) {}
  /// Before that of the last micro-step of a step.
  virtual void reach_boundary() {}
  /// Before the first of the modules of a place in hooked() runs. Returns what they see as
  /// `inputs`.
  virtual Tensors pre_forward(int, Tensors inputs) { return inputs; }
  /// After the last of them has run.
  virtual void post_forward(int, const Tensors&) {}
  /// After the root module.
  virtual void end_forward() {}
  /// Callbacks at the end of backward.
  virtual void end_backward() {}

  /// What the optimizer updates, once there are gradients.
  virtual std::vector<Trained> trained() const = 0;
  /// Clips gradients and updates parameters.
  virtual void step(Optimizer& optimizer);
  virtual void zero_grad() = 0;
};

/// Every unit with its modules, in their order.
std::vector<Hooked> hooked_units(const std::vector<ParameterGroup>& groups);

/// Dtype in which a parameter is stored and optimised.
Dtype stored_dtype(const Job& job, const Parameter& parameter);
/// Dtype of a parameter that operators read, but for what autocast casts.
Dtype compute_dtype(const Job& job, const Parameter& parameter);
/// Dtype of what operators compute in, but for what autocast casts.
Dtype compute_dtype(const Job& job);

/// Elements of the rows that ranks hold of a parameter cut by rows, without padding, by rank class.
std::vector<std::int64_t> local_elems(const Plan& plan, const Parameter& parameter);

/// The engine that the job names.
std::unique_ptr<Engine> make_engine(const Process& process);

std::unique_ptr<Engine> make_fsdp2(const Process& process);
std::unique_ptr<Engine> make_fsdp1(const Process& process);
std::unique_ptr<Engine> make_ddp(const Process& process);
std::unique_ptr<Engine> make_deepspeed(const Process& process);

}  // namespace shardplan::torch
