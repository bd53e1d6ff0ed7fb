#include "planner/torch/flat_partitions.h"

#include <algorithm>

#include "plans/units.h"

namespace shardplan::torch {
FlatPartitions::FlatPartitions(const Process& process, bool round_robin,
                               std::int64_t aligned_elems) {
  const auto& parameters = process.model.parameters;
  const std::int64_t world = process.plan().world_size();
  std::vector<int> trained;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].trains()) trained.push_back(static_cast<int>(i));
  const auto count = static_cast<std::int64_t>(trained.size());
  const std::int64_t turns = round_robin ? std::min(world, count) : 1;
  for (std::int64_t turn = 0; turn < turns; ++turn)
    for (std::int64_t i = turn; i < count; i += round_robin ? world : 1)
      order_.push_back(trained[static_cast<std::size_t>(i)]);
  at_.resize(parameters.size());
  sizes_.resize(parameters.size());
  for (const int index : order_) {
    at_[index] = round_up(valid_, aligned_elems);
    sizes_[index] = parameters[index].elements();
    valid_ = at_[index] + sizes_[index];
  }
  elems_ = round_up(valid_, kNcclStartAlignment * world);
  partition_ = elems_ / world;
  for (const RankClass& ranks : process.plan().classes) {
    std::int64_t largest = ranks.first;
    const auto consider = [&](std::int64_t rank) {
      rank = std::clamp(rank, ranks.first, ranks.last);
      if (touched_by(rank) > touched_by(largest)) largest = rank;
    };
    // Between the ends of parameters all ranks are alike.
    for (const int index : order_) {
      if (ranks.first == ranks.last) break;
      const auto [first, last] = ranks_of(index);
      for (const std::int64_t rank : {first, first + 1, last})
        consider(rank);
    }
    ranks_.push_back(largest);
  }
}

std::pair<std::int64_t, std::int64_t> FlatPartitions::ranks_of(int parameter) const {
  return {at_[parameter] / partition_, (at_[parameter] + sizes_[parameter] - 1) / partition_};
}

bool FlatPartitions::touches(int parameter, std::size_t rank_class) const {
  const auto [first, last] = ranks_of(parameter);
  return first <= ranks_[rank_class] && ranks_[rank_class] <= last;
}

std::int64_t FlatPartitions::touched_by(std::int64_t rank) const {
  std::int64_t elems = 0;
  for (const int index : touching(rank))
    elems += sizes_[index];
  return elems;
}

std::span<const int> FlatPartitions::touching(std::int64_t rank) const {
  const auto first = std::ranges::partition_point(
      order_, [&](int index) { return ranks_of(index).second < rank; });
  const auto last = std::partition_point(first, order_.end(),
                                         [&](int index) { return ranks_of(index).first <= rank; });
  return {first, last};
}

std::int64_t FlatPartitions::largest_piece(std::size_t rank_class) const {
  const std::int64_t begin = ranks_[rank_class] * partition_;
  std::int64_t largest = 0;
  for (const int index : touching(ranks_[rank_class])) {
    const std::int64_t from = std::max(begin, at_[index]);
    const std::int64_t to = std::min(begin + partition_, at_[index] + sizes_[index]);
    largest = std::max(largest, to - from);
  }
  return largest;
}

bool FlatPartitions::is_one_piece(std::size_t rank_class) const {
  return largest_piece(rank_class) == partition_;
}

}  // namespace shardplan::torch
