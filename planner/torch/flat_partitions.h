#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "planner/torch/engine.h"

namespace shardplan::torch {

/// The trained parameters of a model in one flat buffer that all ranks own equal parts of
/// (DeepSpeed's stages 1 and 2, which call the parts partitions). Parts do not end where parameters
/// do: a parameter may touch those of several ranks.
class FlatPartitions {
 public:
  /// In the model's order; `round_robin`: every so manieth parameter in turn, one for each rank
  /// (_round_robin_reorder). `aligned_elems`: parameters begin at multiples of it.
  FlatPartitions(const Process& process, bool round_robin, std::int64_t aligned_elems);

  const std::vector<int>& order() const { return order_; }  // parameters of the model
  std::int64_t elems() const { return elems_; }             // a multiple of twice the ranks
  std::int64_t valid() const { return valid_; }             // without the padding at the end
  std::int64_t partition() const { return partition_; }     // elements of one rank
  std::int64_t at(int parameter) const { return at_[parameter]; }

  /// The first and the last rank whose parts a parameter touches.
  std::pair<std::int64_t, std::int64_t> ranks_of(int parameter) const;
  /// Of a rank class: whether that rank of it whose parameters are largest has to do with it.
  bool touches(int parameter, std::size_t rank_class) const;
  /// Elements of the parameters that touch its part, whole.
  std::int64_t touched(std::size_t rank_class) const { return touched_by(ranks_[rank_class]); }
  /// The most elements of one parameter that lie inside its part, and whether that is all of it.
  std::int64_t largest_piece(std::size_t rank_class) const;
  bool is_one_piece(std::size_t rank_class) const;

 private:
  std::int64_t touched_by(std::int64_t rank) const;
  std::span<const int> touching(std::int64_t rank) const;

  std::vector<int> order_;
  std::vector<std::int64_t> at_;     // by parameter of the model
  std::vector<std::int64_t> sizes_;  // by parameter of the model
  std::int64_t valid_ = 0;
  std::int64_t elems_ = 0;
  std::int64_t partition_ = 0;
  std::vector<std::int64_t> ranks_;  // by rank class: the one that stands for it
};

}  // namespace shardplan::torch
