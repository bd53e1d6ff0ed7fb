#pragma once

#include <optional>
#include <vector>

#include "planner/torch/engine.h"

namespace shardplan::torch {

/// torch.optim: state that the first step makes, and what each step allocates meanwhile.
class Optimizer {
 public:
  explicit Optimizer(Host& host) : host_(host), settings_(host.plan().job.training.optimizer) {}

  /// Makes the state of what is trained.
  void init(const std::vector<Trained>& trained);
  void step(const std::vector<Trained>& trained);
  /// torch.nn.utils.clip_grad_norm_: `group`: over which gradients are sharded; none: they are not.
  void clip(const std::vector<Trained>& trained, std::optional<Group> group);

 private:
  struct State {
    std::vector<StoragePtr> tensors;  // none on ranks that hold nothing
    StoragePtr steps;                 // a count that stays on the device
  };

  int moments() const;
  StoragePtr allocate(const Trained& trained, std::string_view what, Category category);
  void update(const Trained& trained, const State& state);

  Host& host_;
  const OptimizerJob& settings_;
  std::vector<State> states_;
};

}  // namespace shardplan::torch
