#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/torch/engine.h"

namespace shardplan::torch {

/// torch.optim: state that the first step makes, and what each step allocates meanwhile.
class Optimizer {
 public:
  explicit Optimizer(Host& host) : host_(host), settings_(host.plan().job.training.optimizer) {}

  /// Updates what is trained; the first time, makes its state.
  void step(const std::vector<Trained>& trained);
  enum class Norm {
    OfTensors,  // torch.nn.utils.clip_grad_norm_: ranks sum the norm of every gradient
    OfRanks,    // FullyShardedDataParallel.clip_grad_norm_: they sum the norm of all that they hold
  };
  void clip(const std::vector<Trained>& trained, Norm norm = Norm::OfTensors);

 private:
  struct State {
    std::vector<StoragePtr> tensors;  // none on ranks that hold nothing
    StoragePtr steps;                 // a count that stays on the device
  };

  int moments() const;
  Space space_of(const Trained& trained) const;
  Stream stream_of(const Trained& trained) const;
  void make_state(const Trained& trained);
  StoragePtr allocate(const Trained& trained, std::string_view what, Category category);
  void update(const Trained& trained);

  Host& host_;
  const OptimizerJob& settings_;
  std::map<std::string, State> states_;  // by name of what is trained
  StoragePtr total_norm_;                // that FSDP1 returned; the loop's until the next
};

}  // namespace shardplan::torch
