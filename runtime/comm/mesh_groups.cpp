#include "runtime/comm/mesh_groups.h"

#include "plans/error.h"

namespace shardplan {

GroupMembers members_of(const Mesh& mesh, std::int64_t rank, Group group) {
  const std::int64_t size = mesh.size(group);
  const std::int64_t index = rank % mesh.shard;
  switch (group) {
    case Group::World: return {0, 1, size, rank};
    case Group::Shard: return {rank - index, 1, size, index};
    case Group::Span: return {rank - rank % size, 1, size, rank % size};
    case Group::Replicate: return {index, mesh.shard, size, rank / mesh.shard};
  }
  check(false, "a group is world, shard, replicate or span");
  return {};
}

}  // namespace shardplan
