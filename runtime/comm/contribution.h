#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "plans/units.h"

namespace shardplan {

/// What one member brings to a collective. All members bring the same but for the addresses.
struct Contribution {
  enum class Kind { AllGather, ReduceScatter, AllReduce, Broadcast };
  Kind kind = Kind::AllGather;
  Dtype dtype = Dtype::UInt8;
  const std::byte* data = nullptr;  // what peers may read
  std::size_t bytes = 0;            // of `data`
  double pre_scale = 1;
  double post_scale = 1;
  int root = 0;
};
std::string_view to_string(Contribution::Kind kind);

/// Throws SystemError that names the ranks when members bring different collectives. `place` names
/// where they met ("stream ag, group shard"), `ranks` are the members in group order.
void expect_same(std::string_view place, std::span<const std::int64_t> ranks,
                 std::span<const Contribution> contributions);

}  // namespace shardplan
