#pragma once

#include "plans/plan.h"

namespace shardplan {

/// The members of a rank's group: ranks first, first + step, ... `size` of them. Rank = replica *
/// mesh.shard + index in the shard group.
struct GroupMembers {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t size = 1;
  std::int64_t place = 0;  // of the rank among them, from 0 on

  std::int64_t rank(std::int64_t member) const { return first + member * step; }
};
GroupMembers members_of(const Mesh& mesh, std::int64_t rank, Group group);

}  // namespace shardplan
