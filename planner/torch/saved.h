#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "planner/torch/tensor.h"

namespace shardplan::torch {

/// A checkpointed region (non-reentrant torch.utils.checkpoint): what its operators would save is
/// computed again when backward first asks for any of it, and stops as soon as all of it is there.
class Checkpoint {
 public:
  /// `run` runs the region's forward again; it holds the region's inputs.
  void keep(std::function<void()> run) { run_ = std::move(run); }

  std::size_t add() { return saved_++; }
  void add_again(Tensor tensor) { again_.push_back(std::move(tensor)); }
  /// Results that are not computed again, in the order of forward.
  void keep_result(Tensor tensor) { results_.push_back(std::move(tensor)); }
  Tensor take_result() { return std::move(results_[next_result_++]); }
  /// All that the region saves has been computed again.
  bool complete() const { return again_.size() == saved_; }
  Tensor take(std::size_t index) {
    if (again_.empty()) run_();
    return std::exchange(again_[index], {});
  }

 private:
  std::function<void()> run_;
  std::size_t saved_ = 0;
  std::vector<Tensor> again_;
  std::vector<Tensor> results_;
  std::size_t next_result_ = 0;
};

/// A tensor that a node keeps for backward, or the promise of one.
class SavedTensor {
 public:
  SavedTensor() = default;
  explicit SavedTensor(Tensor tensor) : tensor_(std::move(tensor)) {}
  SavedTensor(std::shared_ptr<Checkpoint> checkpoint, std::size_t index)
      : checkpoint_(std::move(checkpoint)), index_(index) {}

  /// Once. A tensor computed again belongs to the caller from then on.
  Tensor unpack() const { return checkpoint_ ? checkpoint_->take(index_) : tensor_; }

 private:
  Tensor tensor_;
  std::shared_ptr<Checkpoint> checkpoint_;
  std::size_t index_ = 0;
};

}  // namespace shardplan::torch
