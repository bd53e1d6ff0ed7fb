#include "planner/families/module_tree.h"

#include <algorithm>

#include "plans/error.h"

namespace shardplan {

const Parts::Found* Parts::find(PartRole part, PartRole role) const {
  const auto found = std::ranges::find_if(
      found_, [&](const Found& one) { return one.part == part && one.role == role; });
  return found == found_.end() ? nullptr : &*found;
}

const Operator& Parts::op(PartRole part, PartRole role) const {
  const Found* found = find(part, role);
  check(found != nullptr && found->op.has_value(), "the family declares the module that is run");
  return *found->op;
}

const std::string& Parts::path(PartRole part, PartRole role) const {
  const Found* found = find(part, role);
  return found == nullptr ? root : found->path;
}

}  // namespace shardplan
